"""Features to matches: mutual nearest neighbours, verified by a fundamental matrix or homography."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.features.features import Features
from doap.geometry.robust import verify
from doap.matching.nearest import mutual_nearest
from doap.types import Geometry


@dataclass(frozen=True)
class Matches:
    """Mutual nearest neighbours of two images and the geometry estimated from them.

    Attributes:
        indices: (P, 2) indices into the features of the first and of the second image.
        distances: (P,) distances between the descriptors.
        inliers: (P,) bool, matches that agree with the geometry.
        matrix: (3, 3) fundamental matrix or homography from the first to the second image; None if the matches do
            not agree on one.
    """

    indices: NDArray[np.int64]
    distances: NDArray[np.float64]
    inliers: NDArray[np.bool_]
    matrix: NDArray[np.float64] | None

    def __len__(self) -> int:
        return len(self.indices)

    def verified_points(self, first: Features, second: Features) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the points (x, y) of the inliers in the first and in the second image, each (K, 2)."""
        verified = self.indices[self.inliers]
        return first.keypoints[verified[:, 0]], second.keypoints[verified[:, 1]]


def match(first: Features, second: Features, geometry: Geometry = "fundamental", threshold: float = 1.5) -> Matches:
    """Match two images by mutual nearest neighbours and verify the matches geometrically.

    Args:
        first: Features of the first image.
        second: Features of the second image, by the same model.
        geometry: "fundamental" for any scene, "homography" for planar scenes and rotating cameras.
        threshold: Largest error of an inlier, in pixels.

    Raises:
        DoapError: If the features come from different models.

    Example:
        >>> import doap, skimage
        >>> model = doap.load("doap-demo-128")
        >>> left, right, _ = skimage.data.stereo_motorcycle()
        >>> first, second = (doap.detect_and_describe(image, model, 1000) for image in (left, right))
        >>> matches = doap.match(first, second)
        >>> int(matches.inliers.sum()) > 200, matches.matrix.shape
        (True, (3, 3))
    """
    if first.model != second.model:
        raise DoapError(f"features of {first.model} and {second.model} cannot be matched with each other")
    indices, distances = mutual_nearest(first.descriptors, second.descriptors)
    points = first.keypoints[indices[:, 0]], second.keypoints[indices[:, 1]]
    verified = verify(*points, second.size, geometry, threshold)
    return Matches(indices, distances, verified.inliers, verified.matrix)
