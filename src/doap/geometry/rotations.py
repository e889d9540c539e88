"""Rotations of the plane as tensors."""

import torch
from torch import Tensor


def rotation_matrices(cosine: Tensor, sine: Tensor) -> Tensor:
    """Return the rotations, (N, 2, 2), by angles given by their cosines and sines, (N,) each."""
    return torch.stack([torch.stack([cosine, -sine], 1), torch.stack([sine, cosine], 1)], 1)
