"""Distillation: a small network learns to describe each patch as a large one does."""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import relaxed_descriptors
from doap.objectives.lists import Kind


class DistillationLoss(nn.Module):
    """One minus the mean similarity of the student's descriptors to the teacher's, patch by patch.

        L = 1 - 1/M Σ_i s(F(x_i), T(x_i))

    s, in [-1, 1], is the cosine between real-valued descriptors, and F(x)ᵀT(x)/b, that is 1 - 2/b times the Hamming
    distance, between b bits: the student's relaxed by tanh, the teacher's as they are. No label is needed, and the
    descriptors of both can be matched with each other.

    Args:
        kind: "real" or "binary", of both.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind: Kind = kind

    def forward(self, outputs: Tensor, taught: Tensor) -> Tensor:
        """Compute the loss of a list, a scalar.

        Args:
            outputs: (M, d) raw activations of the student.
            taught: (M, d) raw activations of the teacher for the same patches; no gradient flows to it.
        """
        if outputs.ndim != 2 or outputs.shape != taught.shape or not len(outputs):
            shapes = f"{tuple(outputs.shape)} and {tuple(taught.shape)}"
            raise ValueError(f"student and teacher must give the same patches the same dimensions, not {shapes}")
        student = relaxed_descriptors(outputs, self.kind)
        if self.kind == "binary":
            teacher = torch.where(taught > 0, 1.0, -1.0) / taught.shape[1]
        else:
            teacher = relaxed_descriptors(taught, self.kind)
        return 1 - (student * teacher.detach().to(student.dtype)).sum(1).mean()
