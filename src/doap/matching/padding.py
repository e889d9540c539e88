"""Padding of descriptors to whole groups."""

import torch
from torch import Tensor


def pad_to_multiple(rows: Tensor, size: int) -> Tensor:
    """Repeat the last row until the number of rows is a multiple of `size`, which changes no maximum."""
    missing = -len(rows) % size
    return torch.cat([rows, rows[-1:].expand(missing, -1)]) if missing else rows
