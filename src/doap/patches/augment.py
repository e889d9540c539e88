"""Augmentation on the device: the same flips and quarter turns for all patches of a group."""

from functools import cache

import torch
from torch import Tensor

SYMMETRIES = 8


def flip_and_turn(patches: Tensor, groups: Tensor, random: torch.Generator) -> Tensor:
    """Give each group one of the 8 symmetries of the square, all equally likely.

    Args:
        patches: (M, S, S) or (M, 1, S, S), of any type.
        groups: (M,) integer group of each patch, in any order; on the CPU, so that a GPU need not wait.
        random: draws the symmetries; on the device of the patches.

    Returns:
        New patches of the same shape and type, on the same device.
    """
    number = torch.unique(groups, return_inverse=True)[1].to(patches.device, non_blocking=True)
    symmetry = torch.randint(SYMMETRIES, (len(patches),), generator=random, device=patches.device)[number]
    places = _places(patches.shape[-1], patches.device)[symmetry]
    return patches.flatten(1).gather(1, places).view(patches.shape)


@cache
def _places(side: int, device: torch.device) -> Tensor:
    """From where each pixel comes under each symmetry, (8, S · S)."""
    plain = torch.arange(side * side, device=device).view(side, side)
    turned = [plain.rot90(quarter) for quarter in range(4)]
    return torch.stack([*turned, *(square.flip(0) for square in turned)]).flatten(1)
