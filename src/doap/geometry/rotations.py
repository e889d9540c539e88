"""Rotations of the plane: their matrices, and the rotations in the shapes of frames."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def rotation_matrices(cosine: Tensor, sine: Tensor) -> Tensor:
    """Return the rotations, (N, 2, 2), by angles given by their cosines and sines, (N,) each."""
    return torch.stack([torch.stack([cosine, -sine], 1), torch.stack([sine, cosine], 1)], 1)


def rotation_angles(shapes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the angle of the rotation nearest to each 2x2 matrix in the Frobenius norm, (N,) in radians, -π to π.

    For positive determinants, this is the rotation of the polar decomposition.

    Args:
        shapes: (N, 2, 2) matrices, or (N, 2, 3) frames whose centres are ignored.
    """
    return np.asarray(np.arctan2(shapes[:, 1, 0] - shapes[:, 0, 1], shapes[:, 0, 0] + shapes[:, 1, 1]))


def relative_rotations(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the angles from frames [A | a] to paired frames [B | b]: the rotation in A⁻¹ B.

    Args:
        first: (P, 2, 3) frames.
        second: (P, 2, 3) frames.

    Returns:
        (P,) radians, -π to π.
    """
    return rotation_angles(np.linalg.solve(first[:, :, :2].astype(np.float64), second[:, :, :2].astype(np.float64)))
