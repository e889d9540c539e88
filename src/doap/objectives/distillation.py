"""Distillation losses: a student learns the descriptors or the similarities of a trained teacher.

    ImitationLoss    L = 1 - 1/M Σ_i s(F(x_i), T(x_i))
    SimilarityLoss   L = 1/(M (M - 1)) Σ_{i ≠ j} (s(F(x_i), F(x_j)) - s(T(x_i), T(x_j)))²

F is the student and T the teacher. The similarity s, in [-1, 1], is the cosine between real-valued descriptors, and
F(x)ᵀF(x')/d, that is 1 - 2/d times the Hamming distance, between d bits. Bits of the student are relaxed by tanh,
those of the teacher are binarised.
"""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import inner_products, relaxed_descriptors
from doap.types import Kind


class ImitationLoss(nn.Module):
    """One minus the mean similarity of the student's descriptors to the teacher's, patch by patch.

        L = 1 - 1/M Σ_i s(F(x_i), T(x_i))

    with s as above. Student and teacher have the same kind and dimensions, and descriptors of one can be matched
    with those of the other.

    Args:
        kind: "real" or "binary", of both.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind: Kind = kind

    def forward(self, outputs: Tensor, teacher_outputs: Tensor) -> Tensor:
        """Compute the loss of a list, a scalar.

        Args:
            outputs: (M, d) raw activations of the student.
            teacher_outputs: (M, d) raw activations of the teacher for the same patches; treated as constant.
        """
        if outputs.ndim != 2 or outputs.shape != teacher_outputs.shape or not len(outputs):
            shapes = f"{tuple(outputs.shape)} and {tuple(teacher_outputs.shape)}"
            raise ValueError(f"outputs of student and teacher must have the same shape, not {shapes}")
        student = _student_descriptors(outputs, self.kind)
        teacher = teacher_descriptors(teacher_outputs, self.kind)
        return 1 - (student * teacher.to(student.dtype)).sum(1).mean()


class SimilarityLoss(nn.Module):
    """Mean squared difference between the student's and the teacher's similarities of the patches of a list.

        L = 1/(M (M - 1)) Σ_{i ≠ j} (s(F(x_i), F(x_j)) - s(T(x_i), T(x_j)))²

    over all pairs of the M patches, with s as above. Student and teacher may differ in dimensions and in kind.

    With S, (M, d), and T, (M, D), the descriptors scaled so that their inner products are the similarities, the sum
    over all pairs follows from three small matrices, and time and memory are linear in M:

        Σ_{i,j} (SᵢᵀSⱼ - TᵢᵀTⱼ)² = ‖SᵀS‖² + ‖TᵀT‖² - 2 ‖SᵀT‖²

    Args:
        kind: "real" or "binary", of the student.
        teacher_kind: Of the teacher.
    """

    def __init__(self, kind: Kind, teacher_kind: Kind) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.teacher_kind: Kind = teacher_kind

    def forward(self, outputs: Tensor, teacher_outputs: Tensor) -> Tensor:
        """Compute the loss of a list, a scalar.

        Args:
            outputs: (M, d) raw activations of the student.
            teacher_outputs: (M, D) raw activations of the teacher for the same patches; treated as constant.
        """
        if outputs.ndim != 2 or teacher_outputs.ndim != 2 or not 2 <= len(outputs) == len(teacher_outputs):
            shapes = f"{tuple(outputs.shape)} and {tuple(teacher_outputs.shape)}"
            raise ValueError(f"outputs of student and teacher must be of the same patches, two or more, not {shapes}")
        student = _student_descriptors(outputs, self.kind)
        teacher = teacher_descriptors(teacher_outputs, self.teacher_kind).to(student.dtype)
        all_pairs = (
            _squared_norm(student, student) + _squared_norm(teacher, teacher) - 2 * _squared_norm(student, teacher)
        )
        diagonal = (student.square().sum(1) - teacher.square().sum(1)).square().sum()
        return (all_pairs - diagonal) / (len(outputs) * (len(outputs) - 1))


def teacher_descriptors(outputs: Tensor, kind: Kind) -> Tensor:
    """Return descriptors with hard bits, scaled so that their inner products are similarities."""
    values = torch.where(outputs > 0, 1.0, -1.0).to(outputs.dtype) if kind == "binary" else outputs
    return relaxed_descriptors(values, "real").detach()


def _student_descriptors(outputs: Tensor, kind: Kind) -> Tensor:
    """Return descriptors with relaxed bits, scaled so that their inner products are similarities."""
    descriptors = relaxed_descriptors(outputs, kind)
    return descriptors if kind == "real" else descriptors / descriptors.shape[1] ** 0.5


def _squared_norm(first: Tensor, second: Tensor) -> Tensor:
    """Return ‖AᵀB‖² of (M, d) and (M, D): the sum of all squared entries."""
    return inner_products(first.T, second.T).square().sum()
