"""Ground truth of image pairs: a homography, or a geometry fitted to labelled points."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.choices import Geometry
from doap.errors import DoapError
from doap.geometry.homographies import transform_points

Points = NDArray[np.floating]
Matrix = NDArray[np.float64]

MIN_POINTS = {"homography": 4, "fundamental": 8}  # labelled points that determine the geometry
RANK_TOLERANCE = 1e-7  # singular values below this share of the largest count as zero
MAX_LABEL_ERROR = 5.0  # pixels: mean distance of labelled points from the geometry fitted to them


@dataclass(frozen=True)
class GroundTruth:
    """The geometry of an image pair, and the points at which an estimate of it is evaluated.

    Attributes:
        geometry: The kind of matrix.
        matrix: (3, 3), from the first to the second image.
        points: (P, 4), rows x, y in the first and x, y in the second image: the labelled points, or the corners of
            the first image and their positions under the homography.
    """

    geometry: Geometry
    matrix: Matrix
    points: NDArray[np.float64]

    def errors(self, first: Points, second: Points) -> NDArray[np.float64]:
        """Compute the errors of matched (P, 2) points in pixels, (P,); see `match_errors`."""
        return match_errors(self.matrix, self.geometry, first, second)

    def mean_error(self, estimate: Matrix) -> float:
        """Compute the mean error in pixels of the ground truth's points under an estimated matrix."""
        return float(match_errors(estimate, self.geometry, self.points[:, :2], self.points[:, 2:]).mean())


def from_homography(homography: Matrix, shape: tuple[int, ...]) -> GroundTruth:
    """Return the ground truth of a pair whose first image has the shape (height, width)."""
    height, width = shape[:2]
    corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)
    return GroundTruth("homography", homography, np.hstack([corners, transform_points(corners, homography)]))


def from_points(points: NDArray[np.float64], geometry: Geometry, name: str) -> GroundTruth:
    """Fit a geometry to all labelled points by least squares.

    Args:
        points: (P, 4), rows x, y in the first and x, y in the second image.
        geometry: The kind of matrix to fit.
        name: Name of the labels for error messages.

    Raises:
        DoapError: For too few points, or points that do not agree on a geometry.
    """
    required = MIN_POINTS[geometry]
    distinct = len(np.unique(points, axis=0))
    if distinct < required:
        raise DoapError(f"{name}: {distinct} different points; a {geometry} takes {required} or more")
    matrix = _fit(points, geometry)
    if matrix is None:
        degenerate = "a line" if geometry == "homography" else "a plane"
        raise DoapError(f"{name}: the points do not determine a {geometry}; do they lie on {degenerate}?")
    ground_truth = GroundTruth(geometry, matrix, points)
    error = ground_truth.mean_error(matrix)
    if not error <= MAX_LABEL_ERROR:
        raise DoapError(
            f"{name}: no {geometry} fits the points: their mean error is {error:.1f} pixels; correct the labels"
        )
    return ground_truth


def match_errors(matrix: Matrix, geometry: Geometry, first: Points, second: Points) -> NDArray[np.float64]:
    """Compute the errors of matched (P, 2) points under a geometry in pixels, (P,).

    For a homography H this is the distance between H x and x'. For a fundamental matrix F it is the symmetric
    epipolar distance: the mean of the distance of x' from the line F x and of x from the line Fᵀ x'.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if geometry == "homography":
        with np.errstate(divide="ignore", invalid="ignore"):  # points on the horizon map to infinity
            return np.asarray(np.linalg.norm(transform_points(a, matrix) - b, axis=1))
    return (_line_distances(a @ matrix[:, :2].T + matrix[:, 2], b) + _line_distances(b @ matrix[:2] + matrix[2], a)) / 2


def _fit(points: NDArray[np.float64], geometry: Geometry) -> Matrix | None:
    """Fit a matrix by least squares; None if the points do not determine one."""
    if not _determine_matrix(points, geometry):
        return None
    fit = cv2.findHomography if geometry == "homography" else cv2.findFundamentalMat
    method = 0 if geometry == "homography" else cv2.FM_8POINT
    try:
        matrix = fit(points[:, :2], points[:, 2:], method=method)[0]
    except cv2.error:  # raised for some degenerate points instead of returning None
        return None
    if matrix is None or matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        return None
    return np.asarray(matrix, np.float64)


def _determine_matrix(points: NDArray[np.float64], geometry: Geometry) -> bool:
    """Return whether (P, 4) points determine one matrix: the linear equations in its nine entries have rank 8.

    With a lower rank, the solution depends on the solver and the machine, and may fit the points by accident.
    """
    deviation = np.maximum(points.std(0), 1e-300)
    x, y, u, v = ((points - points.mean(0)) / deviation).T
    one, zero = np.ones_like(x), np.zeros_like(x)
    if geometry == "homography":
        rows = [[x, y, one, zero, zero, zero, -u * x, -u * y, -u], [zero, zero, zero, x, y, one, -v * x, -v * y, -v]]
    else:
        rows = [[u * x, u * y, u, v * x, v * y, v, x, y, one]]
    equations = np.concatenate([np.stack(row, 1) for row in rows])
    if not np.isfinite(equations).all():
        return False
    singular = np.linalg.svd(equations, compute_uv=False)
    return bool(singular[7] > RANK_TOLERANCE * singular[0])


def _line_distances(lines: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the distances of (P, 2) points from (P, 3) lines l_x x + l_y y + l_1 = 0."""
    length = np.maximum(np.hypot(lines[:, 0], lines[:, 1]), 1e-300)
    return np.asarray(np.abs((lines[:, :2] * points).sum(1) + lines[:, 2]) / length)
