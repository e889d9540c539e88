"""Augmentation on the device: the same flips, quarter turns and zoom for all patches of a group."""

from functools import cache

import torch
from torch import Tensor

SYMMETRIES = 8


def draw_symmetries(groups: Tensor, random: torch.Generator) -> Tensor:
    """One of the 8 symmetries of the square for each group, all equally likely.

    Args:
        groups: (M,) integer group of each patch, in any order; on the CPU, so that a GPU need not wait.
        random: draws the symmetries; on the device where they are wanted.

    Returns:
        (M,) the symmetry of each patch, in 0..7.
    """
    drawn = torch.randint(SYMMETRIES, (len(groups),), generator=random, device=random.device)
    return drawn[_number(groups, random.device)]


def draw_zooms(groups: Tensor, most: float, random: torch.Generator) -> Tensor:
    """How many octaves closer each group is seen, uniformly in [0, most].

    Args:
        groups: (M,) integer group of each patch, as in `draw_symmetries`.
        most: octaves at most; patches of one point match only if they show as much of it, so a group shares one value.
        random: draws the values; on the device where they are wanted.

    Returns:
        (M,) octaves of each patch.
    """
    drawn = most * torch.rand(len(groups), generator=random, device=random.device)
    return drawn[_number(groups, random.device)]


def flip_and_turn(patches: Tensor, symmetries: Tensor) -> Tensor:
    """Flip and turn each patch by its symmetry.

    Args:
        patches: (M, S, S) or (M, 1, S, S), of any type.
        symmetries: (M,), see `draw_symmetries`; on the device of the patches.

    Returns:
        New patches of the same shape and type, on the same device.
    """
    places = _places(patches.shape[-1], patches.device)[symmetries]
    return patches.flatten(1).gather(1, places).view(patches.shape)


def _number(groups: Tensor, device: torch.device) -> Tensor:
    """The place of each patch's group among the different groups, (M,)."""
    number: Tensor = torch.unique(groups, return_inverse=True)[1]
    return number.to(device, non_blocking=True)


@cache
def _places(side: int, device: torch.device) -> Tensor:
    """From where each pixel comes under each symmetry, (8, S · S)."""
    plain = torch.arange(side * side, device=device).view(side, side)
    turned = [plain.rot90(quarter) for quarter in range(4)]
    return torch.stack([*turned, *(square.flip(0) for square in turned)]).flatten(1)
