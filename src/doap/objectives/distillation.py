"""Distillation: a network learns from a trained one how to describe patches, or how alike they are."""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import inner_products, relaxed_descriptors
from doap.types import Kind


class ImitationLoss(nn.Module):
    """One minus the mean similarity of the student's descriptors to the teacher's, patch by patch.

        L = 1 - 1/M Σ_i s(F(x_i), T(x_i))

    s, in [-1, 1], is the cosine between real-valued descriptors, and F(x)ᵀT(x)/b, that is 1 - 2/b times the Hamming
    distance, between b bits: the student's relaxed by tanh, the teacher's as they are. Both are of one kind and of as
    many dimensions, and the descriptors of one can be matched with the other's.

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
        student, teacher = _unit(outputs, self.kind), _taught(taught, self.kind)
        return 1 - (student * teacher.to(student.dtype)).sum(1).mean()


class SimilarityLoss(nn.Module):
    """Mean squared difference between the student's similarities of the patches of a list and the teacher's.

        L = 1/(M (M - 1)) Σ_{i ≠ j} (s(x_i, x_j) - t(x_i, x_j))²

    over all pairs of the M patches, similarities as above. So the two may differ in dimensions and in kind.

    Written with descriptors S and T, (M, d) and (M, D), scaled so that their products are the similarities, the sum
    over all pairs is one of three small matrices, and time and memory grow with M instead of M²:

        Σ_{i,j} (SᵢᵀSⱼ - TᵢᵀTⱼ)² = ‖SᵀS‖² + ‖TᵀT‖² - 2 ‖SᵀT‖²

    Args:
        kind: "real" or "binary", of the student.
        teacher_kind: of the teacher.
    """

    def __init__(self, kind: Kind, teacher_kind: Kind) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.teacher_kind: Kind = teacher_kind

    def forward(self, outputs: Tensor, taught: Tensor) -> Tensor:
        """Compute the loss of a list, a scalar.

        Args:
            outputs: (M, d) raw activations of the student.
            taught: (M, D) raw activations of the teacher for the same patches; no gradient flows to it.
        """
        if outputs.ndim != 2 or taught.ndim != 2 or not 2 <= len(outputs) == len(taught):
            shapes = f"{tuple(outputs.shape)} and {tuple(taught.shape)}"
            raise ValueError(f"student and teacher must describe the same two or more patches, not {shapes}")
        student = _unit(outputs, self.kind)
        teacher = _taught(taught, self.teacher_kind).to(student.dtype)
        all_pairs = _square(student, student) + _square(teacher, teacher) - 2 * _square(student, teacher)
        with_itself = (student.square().sum(1) - teacher.square().sum(1)).square().sum()
        return (all_pairs - with_itself) / (len(outputs) * (len(outputs) - 1))


def _unit(outputs: Tensor, kind: Kind) -> Tensor:
    """A student's descriptors, scaled so that products are similarities."""
    descriptors = relaxed_descriptors(outputs, kind)
    return descriptors if kind == "real" else descriptors / descriptors.shape[1] ** 0.5


def _taught(outputs: Tensor, kind: Kind) -> Tensor:
    """A teacher's descriptors, bits as they are, scaled so that products are similarities."""
    values = torch.where(outputs > 0, 1.0, -1.0).to(outputs.dtype) if kind == "binary" else outputs
    return relaxed_descriptors(values, "real").detach()


def _square(one: Tensor, other: Tensor) -> Tensor:
    """‖AᵀB‖² of (M, d) and (M, D): the sum of all its squared entries."""
    return inner_products(one.T, other.T).square().sum()
