"""Distillation: a small network learns from a large one how alike the patches of a list are."""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import inner_products, relaxed_descriptors
from doap.objectives.lists import Kind


class DistillationLoss(nn.Module):
    """Mean squared difference between the student's similarities of a list and the teacher's.

        L = 1/(M (M - 1)) Σ_{i ≠ j} (s(x_i, x_j) - t(x_i, x_j))²

    over all pairs of the M patches of a list. A similarity, in [-1, 1], is the cosine between real-valued descriptors,
    and F(x)ᵀF(x')/b, that is 1 - 2/b times the Hamming distance, between b bits: the student's relaxed by tanh, the
    teacher's as they are. So the two may differ in dimensions and in kind. No label is needed: of non-matches, too, the
    teacher says how alike they are.

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
        student = relaxed_descriptors(outputs, self.kind)
        if self.kind == "binary":
            student = student / student.shape[1] ** 0.5
        bits = self.teacher_kind == "binary"
        teacher = relaxed_descriptors(torch.where(taught > 0, 1.0, -1.0) if bits else taught, "real")
        teacher = teacher.detach().to(student.dtype)
        all_pairs = _square(student, student) + _square(teacher, teacher) - 2 * _square(student, teacher)
        with_itself = (student.square().sum(1) - teacher.square().sum(1)).square().sum()
        return (all_pairs - with_itself) / (len(outputs) * (len(outputs) - 1))


def _square(one: Tensor, other: Tensor) -> Tensor:
    """‖AᵀB‖² of (M, d) and (M, D): the sum of all its squared entries."""
    return inner_products(one.T, other.T).square().sum()
