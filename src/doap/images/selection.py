"""Selection of frames: without duplicates, spread over the image and over scale."""

import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import overlap, scales
from doap.types import Frames

CELLS = 12  # of the grid, along each side of the image
MAX_OVERLAP = 0.5  # two frames that overlap by more are duplicates
BLOCK_PAIRS = 1 << 19


def select_frames(frames: Frames, limit: int, shape: tuple[int, int]) -> Frames:
    """Select up to `limit` frames, strong ones first, spread over the image and over scale.

    Of frames that overlap by more than half, only the first is kept. Octaves of scale receive numbers of frames in
    proportion to the square root of their counts, because small frames greatly outnumber large ones. Within an octave,
    the strongest frames of all cells of a 12x12 grid come before the second strongest.

    Args:
        frames: (N, 2, 3), strongest first.
        limit: Maximum number of frames.
        shape: (height, width) of the image.

    Returns:
        (K, 2, 3), in the input's order.
    """
    distinct = frames[suppress_duplicates(frames)]
    if len(distinct) <= limit:
        return distinct
    octaves = np.floor(np.log2(np.maximum(scales(distinct), 1e-6))).astype(np.int64)
    cells = np.floor(distinct[:, ::-1, 2] / np.asarray(shape) * CELLS).astype(np.int64).clip(0, CELLS - 1)
    strength = np.arange(len(distinct))
    cell_rank = _rank_within((octaves * CELLS + cells[:, 0]) * CELLS + cells[:, 1], strength)
    octave_rank = _rank_within(octaves, np.lexsort((strength, cell_rank)).argsort())
    _, octave, counts = np.unique(octaves, return_inverse=True, return_counts=True)
    order = np.lexsort((strength, (octave_rank + 0.5) / np.sqrt(counts[octave])))
    return distinct[np.sort(order[:limit])]


def suppress_duplicates(frames: Frames) -> NDArray[np.int64]:
    """Return the ascending indices of the frames that overlap no earlier retained frame by more than half, (K,)."""
    first, second = find_overlapping_pairs(frames)
    is_retained = np.ones(len(frames), bool)
    order = np.lexsort((first, second))
    for earlier, later in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if is_retained[earlier]:
            is_retained[later] = False
    return np.flatnonzero(is_retained)


def find_overlapping_pairs(frames: Frames) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the pairs of frames whose ellipses overlap by more than half, as two (P,) arrays with first < second."""
    first, second = _candidate_pairs(frames)
    overlapping = overlap(frames[first], frames[second]) > MAX_OVERLAP
    return first[overlapping], second[overlapping]


def _rank_within(keys: NDArray[np.int64], priority: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rank of each item by priority, from 0, among the items with the same key, (N,)."""
    order = np.lexsort((priority, keys))
    starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order[0]] - 1))
    counts = np.diff(starts, append=len(keys))
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys)) - np.repeat(starts, counts)
    return ranks


def _candidate_pairs(frames: Frames) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs that may overlap by more than half.

    Each centre must lie in the bounding box of the other, and the areas must differ by less than a factor of 2.
    """
    order = np.argsort(frames[:, 0, 2], kind="stable")
    x, y = frames[order, :, 2].astype(np.float64).T
    half_width, half_height = np.sqrt((frames[order, :, :2].astype(np.float64) ** 2).sum(2)).T
    area = scales(frames)[order] ** 2
    # Frames are sorted by x: the partners of a frame to its right follow it.
    counts = np.searchsorted(x, x + half_width, side="right") - np.arange(1, len(x) + 1)
    blocks = [np.zeros((2, 0), np.int64)]
    # Blocks bound the memory that large frames among thousands would take.
    cuts = np.flatnonzero(np.diff(np.cumsum(counts) // BLOCK_PAIRS)) + 1
    for block in np.split(np.arange(len(x)), cuts):
        partners = counts[block]
        one = np.repeat(block, partners)
        other = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(partners) - partners, partners)
        near = np.flatnonzero(np.abs(y[one] - y[other]) <= half_height[one])
        one, other = one[near], other[near]
        near = (x[other] - x[one] <= half_width[other]) & (np.abs(y[one] - y[other]) <= half_height[other])
        near &= np.maximum(area[one], area[other]) * MAX_OVERLAP < np.minimum(area[one], area[other])
        blocks.append(np.stack([order[one[near]], order[other[near]]]))
    pairs = np.sort(np.concatenate(blocks, 1), axis=0)
    return pairs[0], pairs[1]
