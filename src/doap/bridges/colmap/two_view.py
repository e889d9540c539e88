"""Matches of image pairs and their two-view geometry as COLMAP stores it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from doap.folders.collection import cached_features
from doap.geometry.robust import Matrix, Points, Verification, verify

if TYPE_CHECKING:
    from doap.folders import MatchSettings

DEGENERATE, CALIBRATED, UNCALIBRATED, PLANAR_OR_PANORAMIC = 1, 2, 3, 6
"""COLMAP's numbers of the kinds of geometry that are told apart here."""

# COLMAP's thresholds: the essential matrix is trusted if it explains almost what the fundamental matrix explains, and
# the scene is planar, or the camera only rotates, if a homography explains most of it.
MIN_ESSENTIAL_SHARE = 0.95
MIN_HOMOGRAPHY_SHARE = 0.8

ROTATION_ERROR = 0.005  # of a match, relative to the longer side, where the focal length may be wrong by a fifth

PIXEL_CENTRE = 0.5  # of the top left pixel in COLMAP's coordinates; 0 in those of frames

Intrinsics = tuple[Matrix, Matrix]
"""Matrices of the two cameras of a pair."""


@dataclass(frozen=True, eq=False)
class TwoViewGeometry:
    """Geometry of a pair in COLMAP's coordinates.

    Attributes:
        config: COLMAP's number of its kind.
        inliers: (P,) bool, matches that agree with it.
        fundamental: (3, 3), None if there is none.
        essential: (3, 3), None if there is none.
        homography: (3, 3), None if there is none.
        rotation: (4,) quaternion w, x, y, z from the first to the second camera, of calibrated pairs.
        translation: (3,) unit vector.
    """

    config: int
    inliers: NDArray[np.bool_]
    fundamental: Matrix | None = None
    essential: Matrix | None = None
    homography: Matrix | None = None
    rotation: Matrix | None = None
    translation: Matrix | None = None

    @property
    def arrays(self) -> tuple[Matrix | None, ...]:
        """F, E, H, qvec and tvec."""
        return self.fundamental, self.essential, self.homography, self.rotation, self.translation


def estimate_geometry(
    first: Points, second: Points, size: tuple[int, int], threshold: float, cameras: Intrinsics | None
) -> TwoViewGeometry:
    """Verify matched points, and choose among fundamental matrix, essential matrix and homography as COLMAP does.

    Args:
        first: (P, 2) points in the first image, in COLMAP's coordinates.
        second: (P, 2) matching points in the second image.
        size: (height, width) of the second image.
        threshold: Largest error of an inlier in pixels.
        cameras: Intrinsics, if the focal lengths of both cameras are known.
    """
    general = verify(first, second, size, "fundamental", threshold)
    homography = verify(first, second, size, "homography", threshold)
    calibrated = verify(first, second, size, "essential", threshold, cameras) if cameras else None
    if calibrated and calibrated.matrix is not None and _explains(calibrated, general, MIN_ESSENTIAL_SHARE):
        config, best = CALIBRATED, calibrated
    elif general.matrix is not None:
        config, best = UNCALIBRATED, general
    else:
        config, best = DEGENERATE, general
    if homography.matrix is not None and _explains(homography, best, MIN_HOMOGRAPHY_SHARE):
        config = PLANAR_OR_PANORAMIC
        best = homography if homography.inliers.sum() > best.inliers.sum() else best
    rotation, translation = None, None
    if config == CALIBRATED and calibrated and calibrated.rotation is not None:  # else the pose is ambiguous
        rotation, translation = quaternion(calibrated.rotation), calibrated.translation
    essential = calibrated.matrix if calibrated else None
    return TwoViewGeometry(config, best.inliers, general.matrix, essential, homography.matrix, rotation, translation)


@dataclass(frozen=True, eq=False)
class RotationTask:
    """Verified matches of a pair, the (height, width) of its second image, and the intrinsics of its cameras."""

    first: Points
    second: Points
    size: tuple[int, int]
    cameras: Intrinsics


def rotation_task(task: RotationTask | None) -> Matrix | None:
    """Return the (3, 3) rotation between the cameras of a pair, None if there is none; runs in a worker."""
    if task is None:
        return None
    threshold = ROTATION_ERROR * max(task.size)
    return verify(task.first, task.second, task.size, "essential", threshold, task.cameras).rotation


def quaternion(rotation: Matrix) -> Matrix:
    """Return the unit quaternion w, x, y, z of a rotation matrix, w not negative."""
    import cv2

    vector = cv2.Rodrigues(rotation)[0].ravel()
    angle = float(np.linalg.norm(vector))
    axis = vector / angle if angle else vector
    return np.array([np.cos(angle / 2), *(np.sin(angle / 2) * axis)])


@dataclass(frozen=True)
class Pair:
    """Two images to match, and the intrinsics of their cameras if known."""

    names: tuple[str, str]
    cameras: Intrinsics | None


@dataclass(frozen=True)
class MatchTask:
    """Pairs to match in a worker, and the stamps of their images."""

    features: Path
    pairs: tuple[Pair, ...]
    stamps: dict[str, str]
    settings: "MatchSettings"
    max_error: float
    device: str


def match_task(task: MatchTask) -> list[tuple[NDArray[np.int64], TwoViewGeometry]]:
    """Match and verify some pairs; runs in a worker.

    Returns:
        For each pair (P, 2) matches before verification, and the geometry.
    """
    results = []
    for pair in task.pairs:
        first, second = (cached_features(task.features, name, task.stamps[name]) for name in pair.names)
        matches = task.settings.match(first, second, task.device)
        a, b = (points + np.float32(PIXEL_CENTRE) for points in matches.points(first, second))
        threshold = task.max_error * max(first.size + second.size)
        geometry = estimate_geometry(a, b, second.size, threshold, pair.cameras)
        results.append((matches.indices, geometry))
    return results


def _explains(model: Verification, other: Verification, share: float) -> bool:
    return bool(model.inliers.sum() >= share * other.inliers.sum())
