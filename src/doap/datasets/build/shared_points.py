"""Points that two photos of a frame set share, the geometry they determine, and the pairs with known geometry."""

from itertools import combinations

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.choices import Geometry
from doap.datasets.sets.frame_set import FrameSet
from doap.errors import DoapError
from doap.geometry.ground_truth import GroundTruth, from_points

Points = NDArray[np.float64]

MIN_SHARED_GROUPS = 40  # of the photos of a pair
MAX_PLANAR_ERROR = 1.5  # pixels, root mean square: points this near a homography have no depth
MIN_DEPTH_ERROR = 4.0  # pixels: points this far from every homography have enough depth to determine epipolar lines
MAX_EPIPOLAR_ERROR = 1.0  # pixels, mean distance of points from their epipolar lines
MIN_SPAN = 0.15  # fraction of both images that the points must span; the geometry is unknown outside the span


def shared_points(data: FrameSet, first: int, second: int) -> Points:
    """Return the centres of the groups in both photos: (P, 4), rows x, y in the first and x, y in the second.

    A group that occurs twice in a photo counts once.
    """
    in_first, in_second = (np.flatnonzero(data.photos == photo) for photo in (first, second))
    _, a, b = np.intersect1d(data.groups[in_first], data.groups[in_second], return_indices=True)
    return np.hstack([data.frames[in_first[a], :, 2], data.frames[in_second[b], :, 2]]).astype(np.float64)


def determine_geometry(points: Points, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> GroundTruth | None:
    """Return the geometry that shared points determine, or None if it is ambiguous.

    Points on a plane determine a homography, but no epipolar lines. Points far from every homography determine a
    fundamental matrix. Points in between, or points that span a small part of an image, determine neither.

    Args:
        points: (P, 4) as returned by `shared_points`.
        shapes: (height, width) of both images.
    """
    if min(_span(points[:, :2], shapes[0]), _span(points[:, 2:], shapes[1])) < MIN_SPAN:
        return None
    planar = fit_geometry(points, "homography")
    error = np.inf if planar is None else np.sqrt((planar.errors(points[:, :2], points[:, 2:]) ** 2).mean())
    if error <= MAX_PLANAR_ERROR:
        return planar
    epipolar = fit_geometry(points, "fundamental") if error >= MIN_DEPTH_ERROR else None
    is_accurate = epipolar is not None and epipolar.mean_error(epipolar.matrix) <= MAX_EPIPOLAR_ERROR
    return epipolar if is_accurate else None


def fit_geometry(points: Points, geometry: Geometry) -> GroundTruth | None:
    """Fit a geometry by least squares; return None if the fit is bad or the points do not determine it."""
    try:
        return from_points(points, geometry, "")
    except DoapError:
        return None


def sample_overlapping_pairs(
    data: FrameSet, sequences: tuple[int, ...], count: int, random: np.random.Generator
) -> list[tuple[int, int, GroundTruth]]:
    """Sample pairs of photos of a scene with known geometry from the harder half of all such pairs.

    A pair is harder if its photos share a smaller fraction of their groups, because the camera moved more. The
    fraction refers to the photo with fewer groups.

    Args:
        data: The set.
        sequences: The sequences of the scene; photos of different sequences share no groups.
        count: Maximum number of pairs.
        random: Generator of the sample.

    Returns:
        First photo, second photo and ground truth of each pair.
    """
    pairs = [pair for sequence in sequences for pair in _determined_pairs(data, sequence)]
    harder = sorted(pairs, key=lambda pair: pair[:3])[: (len(pairs) + 1) // 2]
    return [harder[i][1:] for i in sorted(random.permutation(len(harder))[:count])]


def _determined_pairs(data: FrameSet, sequence: int) -> list[tuple[float, int, int, GroundTruth]]:
    """Return all pairs of photos of a sequence whose geometry is known, with the fraction of groups they share.

    If some pair shows depth, the scene is not planar: pairs that fit a homography are then dropped.
    """
    scene = data.select(data.sequences == sequence)
    photos = np.unique(scene.photos).tolist()
    groups = {photo: len(np.unique(scene.groups[scene.photos == photo])) for photo in photos}
    shapes = {photo: data.read_photo(photo).shape for photo in photos}
    pairs = []
    for first, second in combinations(photos, 2):
        points = shared_points(scene, first, second)
        if len(points) < MIN_SHARED_GROUPS:
            continue
        if ground_truth := determine_geometry(points, (shapes[first], shapes[second])):
            pairs.append((len(points) / min(groups[first], groups[second]), first, second, ground_truth))
    with_depth = [pair for pair in pairs if pair[3].geometry == "fundamental"]
    return with_depth or pairs


def _span(points: Points, shape: tuple[int, ...]) -> float:
    """Return the area of the convex hull of (P, 2) points as a fraction of the image."""
    if not len(points):
        return 0.0
    return float(cv2.contourArea(cv2.convexHull(points.astype(np.float32)))) / (shape[0] * shape[1])
