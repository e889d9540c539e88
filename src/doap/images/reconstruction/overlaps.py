"""Overlapping frames of photos and nearby points in space, for building sets."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from doap.types import Frames

Ids = NDArray[np.int64]


def find_intersecting_balls(positions: NDArray[np.floating], radii: NDArray[np.floating]) -> Ids:
    """Find the pairs of balls whose centres are closer than the sum of their radii.

    Args:
        positions: (N, D) centres.
        radii: (N,).

    Returns:
        (P, 2) indices, first < second, without duplicates.
    """
    # The centre of the smaller of two intersecting balls lies within twice the radius of the larger.
    neighbours = cKDTree(positions).query_ball_point(positions, 2 * radii)
    first = np.repeat(np.arange(len(positions)), [len(n) for n in neighbours])
    second = np.concatenate([np.zeros(0, np.int64), *(np.asarray(n, np.int64) for n in neighbours)])
    intersect = (first != second) & (
        np.linalg.norm(positions[first] - positions[second], axis=1) < radii[first] + radii[second]
    )
    return np.unique(np.sort(np.stack([first[intersect], second[intersect]], 1), axis=1), axis=0).astype(np.int64)


def find_overlapping_groups(photos: Ids, frames: Frames, groups: Ids) -> Ids:
    """Find the pairs of groups that overlap in some photo: the circles around their frames' ellipses intersect.

    Args:
        photos: (N,) index of the photo of each frame.
        frames: (N, 2, 3).
        groups: (N,).

    Returns:
        (P, 2) groups, first < second, without duplicates.
    """
    pairs = [np.zeros((0, 2), np.int64)]
    for photo in np.unique(photos):
        indices = np.flatnonzero(photos == photo)
        photo_frames = frames[indices].astype(np.float64)
        radii = np.linalg.norm(photo_frames[:, :, :2], ord=2, axis=(1, 2))
        intersecting = find_intersecting_balls(photo_frames[:, :, 2], radii)
        pairs.append(groups[indices[intersecting]])
    overlaps = np.concatenate(pairs)
    overlaps = np.sort(overlaps[overlaps[:, 0] != overlaps[:, 1]], axis=1)
    return np.unique(overlaps, axis=0)
