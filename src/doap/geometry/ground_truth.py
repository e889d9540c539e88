"""How two images truly relate: by a homography, or by the epipolar geometry of points that somebody labelled."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.geometry.homographies import transform_points
from doap.geometry.robust import Geometry

Points = NDArray[np.floating]
Matrix = NDArray[np.float64]

NEEDED = {"homography": 4, "fundamental": 8}  # labelled points that fix the geometry
RANK = 1e-7  # of the largest singular value: what counts as none
DISAGREE = 5.0  # pixels that labels may be off the geometry fitted to them, on average


@dataclass(frozen=True)
class GroundTruth:
    """The geometry of an image pair, and the points by which an estimate of it is judged.

    Attributes:
        geometry: what kind of matrix it is.
        matrix: (3, 3), from the first to the second image.
        points: (P, 4), rows x, y in the first and x, y in the second image: the labelled ones, or the corners of the
            first image and where the homography sends them.
    """

    geometry: Geometry
    matrix: Matrix
    points: NDArray[np.float64]

    def errors(self, first: Points, second: Points) -> NDArray[np.float64]:
        """By how many pixels matched (P, 2) points contradict the truth, (P,); see `match_errors`."""
        return match_errors(self.matrix, self.geometry, first, second)

    def error_of(self, estimate: Matrix) -> float:
        """By how many pixels the points of the truth contradict an estimate, on average."""
        return float(match_errors(estimate, self.geometry, self.points[:, :2], self.points[:, 2:]).mean())


def from_homography(homography: Matrix, shape: tuple[int, ...]) -> GroundTruth:
    """The truth of a pair whose first image has the shape (height, width)."""
    height, width = shape[:2]
    corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)
    return GroundTruth("homography", homography, np.hstack([corners, transform_points(corners, homography)]))


def from_points(points: NDArray[np.float64], geometry: Geometry, name: str) -> GroundTruth:
    """The geometry that fits (P, 4) labelled points best: least squares over all of them.

    Args:
        points: rows x, y in the first and x, y in the second image.
        geometry: what relates them.
        name: of the labels, if they are at error.

    Raises:
        DoapError: for too few points, or points that agree on no such geometry.
    """
    needed = NEEDED[geometry]
    different = len(np.unique(points, axis=0))
    if different < needed:
        raise DoapError(f"{name}: {different} different points; a {geometry} takes {needed} or more")
    fit = cv2.findHomography if geometry == "homography" else cv2.findFundamentalMat
    method = 0 if geometry == "homography" else cv2.FM_8POINT
    try:
        found = fit(points[:, :2], points[:, 2:], method=method)[0] if _fix_one(points, geometry) else None
    except cv2.error:  # raised for some points instead of an empty answer
        found = None
    if found is None or found.shape != (3, 3) or not np.isfinite(found).all():
        where = "a line" if geometry == "homography" else "a plane"
        raise DoapError(f"{name}: the points fix no {geometry}; do they lie on {where}?")
    truth = GroundTruth(geometry, np.asarray(found, np.float64), points)
    off = truth.error_of(truth.matrix)
    if not off <= DISAGREE:
        raise DoapError(f"{name}: no {geometry} fits the points, they are {off:.1f} pixels off the best on average")
    return truth


def _fix_one(points: NDArray[np.float64], geometry: Geometry) -> bool:
    """Whether (P, 4) points leave one matrix: the linear equations in its nine entries have rank 8.

    What a solver makes of fewer differs from machine to machine, and may well fit the points.
    """
    spread = np.maximum(points.std(0), 1e-300)
    x, y, u, v = ((points - points.mean(0)) / spread).T
    one, nil = np.ones_like(x), np.zeros_like(x)
    if geometry == "homography":
        rows = [[x, y, one, nil, nil, nil, -u * x, -u * y, -u], [nil, nil, nil, x, y, one, -v * x, -v * y, -v]]
    else:
        rows = [[u * x, u * y, u, v * x, v * y, v, x, y, one]]
    equations = np.concatenate([np.stack(row, 1) for row in rows])
    if not np.isfinite(equations).all():
        return False
    singular = np.linalg.svd(equations, compute_uv=False)
    return bool(singular[7] > RANK * singular[0])


def match_errors(matrix: Matrix, geometry: Geometry, first: Points, second: Points) -> NDArray[np.float64]:
    """By how many pixels matched (P, 2) points contradict a geometry, (P,).

    Under a homography H, the distance of H x from x'. Under a fundamental matrix F, the symmetric epipolar distance:
    the mean of the distance of x' from the line F x and that of x from the line Fᵀ x'.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if geometry == "homography":
        with np.errstate(divide="ignore", invalid="ignore"):  # on the horizon: infinitely far, or nowhere
            return np.asarray(np.linalg.norm(transform_points(a, matrix) - b, axis=1))
    return (_from_lines(a @ matrix[:, :2].T + matrix[:, 2], b) + _from_lines(b @ matrix[:2] + matrix[2], a)) / 2


def _from_lines(lines: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances of (P, 2) points from (P, 3) lines l_x x + l_y y + l_1 = 0."""
    length = np.maximum(np.hypot(lines[:, 0], lines[:, 1]), 1e-300)
    return np.asarray(np.abs((lines[:, :2] * points).sum(1) + lines[:, 2]) / length)
