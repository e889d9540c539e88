"""Augmentation on the device: one flip, quarter turn, zoom and padding per group, shared by all its patches."""

from functools import cache

import torch
from torch import Tensor

SYMMETRIES = 8


def sample_symmetries(groups: Tensor, random: torch.Generator) -> Tensor:
    """Sample one of the 8 symmetries of the square per group, uniformly.

    Args:
        groups: (M,) integer group of each patch, in any order. On the CPU, to avoid a synchronisation with the GPU.
        random: Generator on the device of the result.

    Returns:
        (M,) the symmetry of each patch, in 0..7.
    """
    sampled = torch.randint(SYMMETRIES, (len(groups),), generator=random, device=random.device)
    return sampled[_group_ranks(groups, random.device)]


def sample_zooms(groups: Tensor, max_octaves: float, random: torch.Generator) -> Tensor:
    """Sample the zoom of each group in octaves, uniformly in [0, max_octaves].

    Patches of one point match only if they show the same extent of it, so a group shares one value.

    Args:
        groups: (M,) integer group of each patch, as in `sample_symmetries`.
        max_octaves: Largest zoom.
        random: Generator on the device of the result.

    Returns:
        (M,) octaves of each patch.
    """
    sampled = max_octaves * torch.rand(len(groups), generator=random, device=random.device)
    return sampled[_group_ranks(groups, random.device)]


def flip_and_rotate(patches: Tensor, symmetries: Tensor) -> Tensor:
    """Flip and rotate each patch by its symmetry.

    Args:
        patches: (M, S, S) or (M, 1, S, S), of any type.
        symmetries: (M,), see `sample_symmetries`; on the device of the patches.

    Returns:
        New patches of the same shape and type, on the same device.
    """
    pixels = _source_pixels(patches.shape[-1], patches.device)[symmetries]
    return patches.flatten(1).gather(1, pixels).view(patches.shape)


def sample_padded(groups: Tensor, share: float, random: torch.Generator) -> Tensor:
    """Sample the groups whose patches are padded.

    Args:
        groups: (M,) integer group of each patch, as in `sample_symmetries`.
        share: Probability of each group.
        random: Generator on the device of the result.

    Returns:
        (M,) bool, whether each patch is padded.
    """
    sampled = torch.rand(len(groups), generator=random, device=random.device) < share
    return sampled[_group_ranks(groups, random.device)]


def hide_border(patches: Tensor, hidden: Tensor) -> Tensor:
    """Replace what is around the centre of some patches by the mean grey value of the centre.

    Such a patch looks as one of half the size that `doap.networks.descriptor.pad_patches` pads.

    Args:
        patches: (M, S, S) uint8, S a multiple of 4; the centre is S / 2 on each side.
        hidden: (M,) bool, on the device of the patches.

    Returns:
        New patches of the same shape and type.
    """
    side = patches.shape[-1]
    inner = slice(side // 4, side - side // 4)
    means = patches[:, inner, inner].float().mean((1, 2)).round().to(patches.dtype)
    is_border = torch.ones(side, side, dtype=torch.bool, device=patches.device)
    is_border[inner, inner] = False
    return torch.where(is_border & hidden[:, None, None], means[:, None, None], patches)


def _group_ranks(groups: Tensor, device: torch.device) -> Tensor:
    """Return the rank of each patch's group among the distinct groups, (M,)."""
    ranks: Tensor = torch.unique(groups, return_inverse=True)[1]
    return ranks.to(device, non_blocking=True)


@cache
def _source_pixels(side: int, device: torch.device) -> Tensor:
    """Return the flat index that each pixel is read from under each symmetry, (8, S · S)."""
    identity = torch.arange(side * side, device=device).view(side, side)
    rotated = [identity.rot90(quarter) for quarter in range(4)]
    return torch.stack([*rotated, *(square.flip(0) for square in rotated)]).flatten(1)
