"""Augmentation on the device: the same flips and quarter turns for all patches of a group."""

import torch
import torch.nn.functional as F
from torch import Tensor


def flip_and_turn(patches: Tensor, groups: Tensor, random: torch.Generator) -> Tensor:
    """Give each group one of the 8 symmetries of the square, all equally likely.

    Args:
        patches: (M, S, S) or (M, 1, S, S), of any type.
        groups: (M,) integer group of each patch, in any order.
        random: draws the symmetries; on the device of the patches.

    Returns:
        New patches of the same shape and type, on the same device, without waiting for it.
    """
    ordered, order = groups.to(patches.device).sort()
    # Numbered by sorting rather than by `unique`, whose result's shape a GPU would have to tell first.
    number = torch.empty_like(order)
    number[order] = F.pad((ordered[1:] != ordered[:-1]).cumsum(0), (1, 0))
    symmetry = torch.randint(8, (len(patches),), generator=random, device=patches.device)[number]
    symmetry = symmetry.view(-1, *[1] * (patches.ndim - 1))
    patches = torch.where(symmetry % 2 == 1, patches.flip(-1), patches)
    patches = torch.where(symmetry // 2 % 2 == 1, patches.flip(-2), patches)
    return torch.where(symmetry // 4 == 1, patches.transpose(-1, -2), patches)
