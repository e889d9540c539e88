"""What photos of a frame set share: the points that both show, the geometry these prove, and so which make a pair."""

from itertools import combinations

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.datasets.sets.frame_set import FrameSet
from doap.errors import DoapError
from doap.geometry.ground_truth import GroundTruth, from_points
from doap.geometry.robust import Geometry

Points = NDArray[np.float64]

SHARED = 40  # groups that overlapping photos must share to make a pair
FLAT = 1.5  # pixels, root mean square: points so near a homography have no depth
DEEP = 4.0  # pixels: points so far from every homography have enough depth to fix epipolar lines
SURE = 1.0  # pixels that points may be off their epipolar lines on average
SPREAD = 0.15  # of the picture that the points must span, in both: what they do not span they do not prove


def shared_points(data: FrameSet, first: int, second: int) -> Points:
    """The centres of groups that two photos show: (P, 4), rows x, y in the first and x, y in the second.

    A group that a photo shows twice counts once.
    """
    here, there = (np.flatnonzero(data.photos == photo) for photo in (first, second))
    _, a, b = np.intersect1d(data.groups[here], data.groups[there], return_indices=True)
    return np.hstack([data.frames[here[a], :, 2], data.frames[there[b], :, 2]]).astype(np.float64)


def proven_geometry(points: Points, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> GroundTruth | None:
    """The geometry that shared points prove, or None where they leave it open.

    Points that span little of a picture prove nothing of the rest. Points on one homography prove that one, for they
    fix no epipolar lines; points well off every homography prove a fundamental matrix; what lies between is neither.

    Args:
        points: (P, 4) as `shared_points` gives.
        shapes: (height, width) of both pictures.
    """
    if min(_span(points[:, :2], shapes[0]), _span(points[:, 2:], shapes[1])) < SPREAD:
        return None
    flat = fitted(points, "homography")
    off = np.inf if flat is None else np.sqrt((flat.errors(points[:, :2], points[:, 2:]) ** 2).mean())
    if off <= FLAT:
        return flat
    deep = fitted(points, "fundamental") if off >= DEEP else None
    return deep if deep is not None and deep.error_of(deep.matrix) <= SURE else None


def fitted(points: Points, geometry: Geometry) -> GroundTruth | None:
    """The best geometry of a kind by least squares; None where it fits badly, or too few points fix it."""
    try:
        return from_points(points, geometry, "")
    except DoapError:
        return None


def overlapping_pairs(
    data: FrameSet, sequences: tuple[int, ...], count: int, random: np.random.Generator
) -> list[tuple[int, int, GroundTruth]]:
    """Pairs of photos of a scene with the geometry they were proven to have, drawn from the harder half of all such.

    A pair is the harder, the fewer of its groups the photo that shows fewer shares with the other: the camera moved
    more.

    Args:
        data: where the scene is.
        sequences: its ids; photos of different ones share nothing.
        count: how many pairs at most.
        random: draws them.
    """
    proven = [pair for sequence in sequences for pair in _proven_pairs(data, sequence)]
    harder = sorted(proven, key=lambda pair: pair[:3])[: (len(proven) + 1) // 2]
    return [harder[place][1:] for place in sorted(random.permutation(len(harder))[:count])]


def _proven_pairs(data: FrameSet, sequence: int) -> list[tuple[float, int, int, GroundTruth]]:
    """All pairs of photos of a sequence whose geometry is proven, with the share of groups in common.

    Where some pair has depth the scene has, and points that look flat in another pair just do not show it.
    """
    part = data.part(data.sequences == sequence)
    photos = np.unique(part.photos).tolist()
    groups = {photo: len(np.unique(part.groups[part.photos == photo])) for photo in photos}
    shapes = {photo: data.picture(photo).shape for photo in photos}
    proven = []
    for first, second in combinations(photos, 2):
        points = shared_points(part, first, second)
        if len(points) >= SHARED and (truth := proven_geometry(points, (shapes[first], shapes[second]))):
            proven.append((len(points) / min(groups[first], groups[second]), first, second, truth))
    deep = [pair for pair in proven if pair[3].geometry == "fundamental"]
    return deep or proven


def _span(points: Points, shape: tuple[int, ...]) -> float:
    """The area of the convex hull of (P, 2) points as a share of the picture's."""
    if not len(points):
        return 0.0
    return float(cv2.contourArea(cv2.convexHull(points.astype(np.float32)))) / (shape[0] * shape[1])
