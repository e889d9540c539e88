"""Losses of corrected frames."""

import torch
from torch import Tensor


def covariance_loss(shapes: Tensor) -> Tensor:
    """Measure how well the corrected frames of two views agree.

    In coordinates of the photo, the corrected shapes B₁ and B₂ of two views of a point should be equal. With
    E = B₁⁻¹ B₂, their ellipses are equal if E is a rotation, and their orientations if its angle is 0:

        L = mean log(1 + (‖E‖² + ‖E⁻¹‖²) / 2 - 2) + (1 - cos angle(E)) / 2

    The first term does not depend on the orientations, so that a wrong orientation does not disturb the shape.

    Args:
        shapes: (2 P, 2, 2) of positive determinant, in coordinates of the photo; rows 2 i and 2 i + 1 are of one point.

    Returns:
        A scalar, 0 if all pairs agree.
    """
    between = inverse(shapes[::2]) @ shapes[1::2]
    (a, b), (c, d) = (row.unbind(1) for row in between.unbind(1))
    square = a * a + b * b + c * c + d * d
    determinant = a * d - b * c
    # ‖E⁻¹‖² = ‖E‖² / det² of 2x2 matrices.
    shape = torch.log1p((square * (1 + 1 / determinant.square()) / 2 - 2).clamp(min=0))
    cosine = (a + d) / torch.hypot(a + d, c - b).clamp(min=1e-6)
    return (shape + (1 - cosine) / 2).mean()


def inverse(matrices: Tensor) -> Tensor:
    """Invert (N, 2, 2) matrices in closed form: torch's inverse synchronises with the GPU."""
    (a, b), (c, d) = (row.unbind(1) for row in matrices.unbind(1))
    adjugate = torch.stack([torch.stack([d, -b], 1), torch.stack([-c, a], 1)], 1)
    return adjugate / (a * d - b * c)[:, None, None]
