"""Losses of corrected frames."""

import torch
from torch import Tensor


def covariance_loss(shapes: Tensor) -> Tensor:
    """Measure how well the corrected frames of two views agree.

    In coordinates of the photo, the corrected shapes B₁ and B₂ of two views of a point should be equal:

        E = B₁⁻¹ B₂,   L = mean log(1 + ‖E - I‖² + ‖E⁻¹ - I‖²)

    The logarithm limits the weight of pairs that differ by a large rotation.

    Args:
        shapes: (2 P, 2, 2) of positive determinant, in coordinates of the photo; rows 2 i and 2 i + 1 are of one point.

    Returns:
        A scalar, 0 if all pairs agree.
    """
    first, second = shapes[::2], shapes[1::2]
    identity = torch.eye(2, dtype=shapes.dtype, device=shapes.device)
    forward, backward = inverse(first) @ second, inverse(second) @ first
    error = (forward - identity).square().sum((1, 2)) + (backward - identity).square().sum((1, 2))
    return torch.log1p(error).mean()


def inverse(matrices: Tensor) -> Tensor:
    """Invert (N, 2, 2) matrices in closed form: torch's inverse synchronises with the GPU."""
    (a, b), (c, d) = (row.unbind(1) for row in matrices.unbind(1))
    adjugate = torch.stack([torch.stack([d, -b], 1), torch.stack([-c, a], 1)], 1)
    return adjugate / (a * d - b * c)[:, None, None]
