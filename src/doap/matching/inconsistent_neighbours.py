"""Ratio test and selection of matches where an image has several features per point, as in synthesised views."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.matching.bits import unpack_signs
from doap.types import Descriptors

BLOCK = 1 << 23  # distances that are computed at once: 32 MiB

Points = NDArray[np.floating]


def inconsistent_neighbour_distances(
    first: Descriptors,
    second: Descriptors,
    indices: NDArray[np.int64],
    points: Points,
    radius: float,
    device: torch.device,
) -> NDArray[np.float64]:
    """Compute the distance of each match's first item to its first geometrically inconsistent neighbour.

    In the ratio test of MODS (Mishkin, Matas and Perdoch, 2015), it replaces the second nearest neighbour, which may be
    the same point in another view.

    Args:
        first: (N, D) float32, or (N, bits / 8) uint8.
        second: (K, …) of the same kind.
        indices: (P, 2) indices of the matches into first and second.
        points: (K, 2) pixel coordinates of the items of `second`.
        radius: Items up to this many pixels from the match's second item are consistent with it.
        device: Device of the computation.

    Returns:
        (P,) Euclidean distances, or numbers of bits; infinity if all items are consistent.
    """
    a, b = (_vectors(values, device) for values in (first[indices[:, 0]], second))
    coordinates = torch.from_numpy(np.ascontiguousarray(points, np.float32)).to(device)
    own = coordinates[torch.from_numpy(indices[:, 1]).to(device)]
    is_binary = first.dtype == np.uint8
    squares = b.square().sum(1)
    distances = np.empty(len(indices))
    step = max(1, BLOCK // max(1, len(second)))
    for start in range(0, len(indices), step):
        block = slice(start, start + step)
        squared = a[block].square().sum(1, keepdim=True) + squares - 2 * a[block] @ b.T
        apart = (own[block, :1] - coordinates[:, 0]).square_() + (own[block, 1:] - coordinates[:, 1]).square_()
        nearest = squared.masked_fill_(apart <= radius**2, math.inf).amin(1).clamp(min=0)
        # Bits are ±1: a different one adds 4.
        distances[block] = (nearest / 4 if is_binary else nearest.sqrt()).cpu().numpy()
    return distances


def distinct_matches(
    first: Points, second: Points, order: NDArray[np.int64], both: float, either: float
) -> NDArray[np.int64]:
    """Select matches greedily, so that each is an observation of its own.

    A match is left out if both its ends lie within `both` pixels of those of an earlier one, which it repeats, or one
    end within `either` pixels: many matches of one point satisfy an epipolar geometry with its epipole there.

    Args:
        first: (P, 2) points in the first image.
        second: (P, 2) points in the second image.
        order: (P,) indices of the matches, best first.
        both: Distance in pixels.
        either: Distance in pixels, less than `both`.

    Returns:
        Ascending indices of the selected matches.
    """
    ends = np.hstack([first, second]).astype(np.float32)[order]
    is_left = np.ones(len(order), bool)
    selected = []
    for position, match in enumerate(order.tolist()):
        if not is_left[position]:
            continue
        selected.append(match)
        squares = (ends[position + 1 :] - ends[position]) ** 2
        a, b = squares[:, 0] + squares[:, 1], squares[:, 2] + squares[:, 3]
        is_left[position + 1 :] &= (np.maximum(a, b) > both**2) & (np.minimum(a, b) > either**2)
    return np.sort(np.array(selected, np.int64))


def _vectors(descriptors: Descriptors, device: torch.device) -> Tensor:
    values = torch.from_numpy(np.ascontiguousarray(descriptors)).to(device)
    return unpack_signs(values, torch.float32) if values.dtype == torch.uint8 else values.float()
