"""Which things of a size meet: frames in a photo, points in space."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from doap.types import Frames

Ids = NDArray[np.int64]


def meeting(positions: NDArray[np.floating], radii: NDArray[np.floating]) -> Ids:
    """Pairs of balls that meet: centres closer than the sum of the radii.

    Args:
        positions: (N, D) centres.
        radii: (N,).

    Returns:
        (P, 2) indices, first < second, each pair once.
    """
    # The larger of two that meet reaches the centre of the smaller within twice its radius.
    reached = cKDTree(positions).query_ball_point(positions, 2 * radii)
    first = np.repeat(np.arange(len(positions)), [len(r) for r in reached])
    second = np.concatenate([np.zeros(0, np.int64), *(np.asarray(r, np.int64) for r in reached)])
    met = (first != second) & (
        np.linalg.norm(positions[first] - positions[second], axis=1) < radii[first] + radii[second]
    )
    return np.unique(np.sort(np.stack([first[met], second[met]], 1), axis=1), axis=0).astype(np.int64)


def overlapping_groups(photos: Ids, frames: Frames, groups: Ids) -> Ids:
    """Pairs of groups that overlap in some photo: the circles around their frames' ellipses meet.

    Args:
        photos: (N,) the photo of each frame.
        frames: (N, 2, 3).
        groups: (N,).

    Returns:
        (P, 2) groups, first < second, each pair once.
    """
    pairs = [np.zeros((0, 2), np.int64)]
    for photo in np.unique(photos):
        here = np.flatnonzero(photos == photo)
        shown = frames[here].astype(np.float64)
        met = meeting(shown[:, :, 2], np.linalg.norm(shown[:, :, :2], ord=2, axis=(1, 2)))
        pairs.append(groups[here[met]])
    different = np.concatenate(pairs)
    different = np.sort(different[different[:, 0] != different[:, 1]], axis=1)
    return np.unique(different, axis=0)
