"""Choosing among frames: no two of the same place and scale, all of the picture and all scales represented."""

import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import scales
from doap.types import Frames

CELLS = 12  # of the grid, along each side of the picture
SAME = 0.5  # overlap above which two frames are one
DIRECTIONS = 32
PAIRS_AT_ONCE = 1 << 19


def spread(frames: Frames, limit: int, shape: tuple[int, int]) -> Frames:
    """Choose up to `limit` frames, strong ones first, but spread over the picture and over scale.

    Of frames that overlap by more than half the first is kept, whichever detector each came from. Octaves of
    scale get places in proportion to the root of what they hold, so that the few large frames are not lost among
    the many small; within an octave the strongest of every cell of a 12x12 grid come before the second strongest.

    Args:
        frames: (N, 2, 3), strongest first.
        limit: how many at most.
        shape: (height, width) of the picture.

    Returns:
        (K, 2, 3), in the order given.
    """
    chosen = frames[without_duplicates(frames)]
    if len(chosen) <= limit:
        return chosen
    octaves = np.floor(np.log2(np.maximum(scales(chosen), 1e-6))).astype(np.int64)
    cells = np.floor(chosen[:, ::-1, 2] / np.asarray(shape) * CELLS).astype(np.int64).clip(0, CELLS - 1)
    strength = np.arange(len(chosen))
    turn = _places((octaves * CELLS + cells[:, 0]) * CELLS + cells[:, 1], strength)
    place = _places(octaves, np.lexsort((strength, turn)).argsort())
    _, octave, held = np.unique(octaves, return_inverse=True, return_counts=True)
    # Octaves are served side by side, each at a pace of the root of its count.
    order = np.lexsort((strength, (place + 0.5) / np.sqrt(held[octave])))
    return chosen[np.sort(order[:limit])]


def without_duplicates(frames: Frames) -> NDArray[np.int64]:
    """Which frames to keep so that none overlaps an earlier kept one by more than half, (K,) ascending."""
    first, second = overlapping_pairs(frames)
    kept = np.ones(len(frames), bool)
    order = np.lexsort((first, second))
    for earlier, later in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if kept[earlier]:
            kept[later] = False
    return np.flatnonzero(kept)


def overlapping_pairs(frames: Frames) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of frames whose ellipses overlap by more than half, as two arrays (P,) with first < second."""
    first, second = _near_pairs(frames)
    same = _overlap(frames[first], frames[second]) > SAME
    return first[same], second[same]


def _places(keys: NDArray[np.int64], priority: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each item, from 0, among those with the same key, by priority; (N,)."""
    order = np.lexsort((priority, keys))
    starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order[0]] - 1))
    counts = np.diff(starts, append=len(keys))
    places = np.empty(len(keys), np.int64)
    places[order] = np.arange(len(keys)) - np.repeat(starts, counts)
    return places


def _near_pairs(frames: Frames) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs that may overlap by more than half: each centre inside the box of the other, areas within a factor 2."""
    order = np.argsort(frames[:, 0, 2], kind="stable")
    x, y = frames[order, :, 2].astype(np.float64).T
    wide, high = np.sqrt((frames[order, :, :2].astype(np.float64) ** 2).sum(2)).T
    area = scales(frames)[order] ** 2
    # Sorted by x, the partners of a frame to its right follow it.
    counts = np.searchsorted(x, x + wide, side="right") - np.arange(1, len(x) + 1)
    found = [np.zeros((2, 0), np.int64)]
    # In portions, so that large frames among thousands do not take much memory.
    cuts = np.flatnonzero(np.diff(np.cumsum(counts) // PAIRS_AT_ONCE)) + 1
    for portion in np.split(np.arange(len(x)), cuts):
        some = counts[portion]
        one = np.repeat(portion, some)
        other = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(some) - some, some)
        near = np.flatnonzero(np.abs(y[one] - y[other]) <= high[one])
        one, other = one[near], other[near]
        near = (x[other] - x[one] <= wide[other]) & (np.abs(y[one] - y[other]) <= high[other])
        near &= np.maximum(area[one], area[other]) * SAME < np.minimum(area[one], area[other])
        found.append(np.stack([order[one[near]], order[other[near]]]))
    pairs = np.sort(np.concatenate(found, 1), axis=0)
    return pairs[0], pairs[1]


def _overlap(first: Frames, second: Frames) -> NDArray[np.float64]:
    """Intersection over union, (N,), right where above a half and at most a half elsewhere.

    In coordinates where the first ellipse is the unit circle, the intersection is integrated over directions
    from its centre: there min(1, r)² / 2, r the distance to the rim of the second. A centre outside the second
    ellipse means that a line through it leaves half of the first uncovered: the overlap is at most a half.
    """
    inverse = np.linalg.inv(second[:, :, :2].astype(np.float64))
    shape = inverse @ first[:, :, :2]
    centre = (inverse @ (first[:, :, 2] - second[:, :, 2]).astype(np.float64)[:, :, None])[:, :, 0]
    angles = 2 * np.pi * (np.arange(DIRECTIONS) + 0.5) / DIRECTIONS
    # The rim of the second along direction u solves |centre + r shape u| = 1.
    along = shape @ np.stack([np.cos(angles), np.sin(angles)])
    a = (along**2).sum(1)
    b = (centre[:, :, None] * along).sum(1)
    c = (centre**2).sum(1, keepdims=True) - 1
    r = (-b + np.sqrt(np.maximum(b**2 - a * c, 0))) / a
    common = np.pi * (np.minimum(r, 1) ** 2).mean(1)
    union = np.pi * (1 + 1 / np.abs(np.linalg.det(shape))) - common
    return np.where(c[:, 0] < 0, common / union, 0.0)
