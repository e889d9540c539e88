"""Harris-Laplace corners as VLFeat detects them: corners of each level, then scales selected by the Laplacian."""

import math
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from doap.images.vlfeat.scale_space import FIRST_OCTAVE, LEVELS, Plane, ScaleSpace, level_sigma, smooth

HARRIS_ALPHA = 0.05
HARRIS_WINDOW = 1.4  # sigma of the window over which gradients are summed, in sigmas of the level
PEAK_THRESHOLD = 2e-6
EDGE_THRESHOLD = 10.0  # largest ratio of the principal curvatures of the response
REFINEMENTS = 5
MAX_STEP = 0.6  # a refined corner further away than this from its pixel moves to the next one
MAX_OFFSET = 1.5

# The Laplacian is evaluated at ten sigmas in one octave around that of the corner.
LAPLACIANS = 10
LAPLACIAN_SIGMA = math.sqrt(0.5)  # blur of the sampled patch and sigma of the first Laplacian, in sigmas of the corner
LAPLACIAN_RADIUS = 16
LAPLACIAN_SPACING = LAPLACIAN_SIGMA / 2
LAPLACIAN_THRESHOLD = 0.01
MAX_SCALES = 4  # per corner

DUPLICATE = 0.5  # distance and relative scale below which the weaker of two corners is dropped

_NEIGHBOURS = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], np.uint8)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Corners:
    """Corners in image pixels: (N, 2) centres (x, y), (N,) sigmas and (N,) responses, negative for minima."""

    centres: Array
    sigmas: Array
    responses: Array

    def __getitem__(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> "Corners":
        return Corners(self.centres[index], self.sigmas[index], self.responses[index])


def find_harris_laplace(space: ScaleSpace) -> Corners:
    """Find Harris corners at scales where the Laplacian is extremal, without duplicates, smallest octave first."""
    return suppress_weaker(select_scales(space, find_corners(space)))


def find_corners(space: ScaleSpace) -> Corners:
    """Find the local extrema of the Harris response in each level but the last of every octave.

    As in VLFeat, minima count too, and the last level of an octave has no corners.
    """
    parts = [np.zeros((0, 4))]
    for octave in range(FIRST_OCTAVE, space.last_octave + 1):
        for index in range(LEVELS - 1):
            sigma = level_sigma(octave, index)
            response = harris_response(space[octave, index], sigma / 2.0**octave)
            x, y, values = _refine(response, *_find_extrema(response))
            parts.append(np.stack([x * 2.0**octave, y * 2.0**octave, np.full(len(x), sigma), values], 1))
    corners = np.concatenate(parts)
    return Corners(corners[:, :2], corners[:, 2], corners[:, 3])


def harris_response(level: Plane, sigma: float) -> Plane:
    """Compute σ⁴ (det M - α trace² M) of the second moments M of the gradient under a window of 1.4 σ.

    Args:
        level: (H, W) grey values in 0..1.
        sigma: Sigma of the level in its own pixels.
    """
    y, x = (np.asarray(derivative, np.float32) for derivative in np.gradient(level))
    xx, xy, yy = (smooth(product, HARRIS_WINDOW * sigma) for product in (x * x, x * y, y * y))
    return np.asarray(sigma**4 * (xx * yy - xy * xy - HARRIS_ALPHA * (xx + yy) ** 2), np.float32)


def select_scales(space: ScaleSpace, corners: Corners) -> Corners:
    """Replace the sigma of each corner by those in its octave at which the Laplacian is extremal.

    A corner without such a sigma is dropped; one with several gives several corners, of which all but the first are
    appended at the end.
    """
    shapes = torch.from_numpy(corners.sigmas[:, None, None] * np.eye(2)).float()
    centres = torch.from_numpy(corners.centres).float()
    extent = LAPLACIAN_RADIUS * LAPLACIAN_SPACING
    patches, level_sigmas = space.sample(shapes, centres, LAPLACIAN_RADIUS, extent, LAPLACIAN_SIGMA)
    # The blur of the sampled level is less than requested.
    excess = (level_sigmas.numpy() / corners.sigmas) ** 2 - LAPLACIAN_SIGMA**2
    variances = _laplacian_variance(np.arange(LAPLACIANS)) + excess[:, None]
    scores = patches.flatten(1).numpy() @ _laplacian_filters() * variances
    before, here, after = scores[:, :-2], scores[:, 1:-1], scores[:, 2:]
    extremal = ((here > before) & (here > after)) | ((here < before) & (here < after))
    extremal &= np.abs(here) >= LAPLACIAN_THRESHOLD
    rank = np.cumsum(extremal, axis=1)
    rows, columns = np.nonzero(extremal & (rank <= MAX_SCALES))
    before, here, after = (values[rows, columns] for values in (before, here, after))
    positions = columns + 1 - 0.5 * (after - before) / (after + before - 2 * here)
    factors = np.sqrt(_laplacian_variance(positions) + excess[rows])
    selected = Corners(corners.centres[rows], corners.sigmas[rows] * factors, corners.responses[rows])
    return selected[np.argsort(rank[rows, columns] > 1, kind="stable")]


def suppress_weaker(corners: Corners) -> Corners:
    """Drop corners close in position and scale to an earlier retained or a later stronger one.

    Corners are visited in order. Each one that is still retained drops all weaker ones within half its sigma along x
    and y whose sigma differs by less than a factor of 1.5.
    """
    first, second = _close_pairs(corners)
    is_retained = np.ones(len(corners.sigmas), bool)
    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        if is_retained[one]:
            is_retained[other] = False
    return corners[is_retained]


def _find_extrema(response: Plane) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return x and y of the values greater, or less, than their eight neighbours and at least 0.8 thresholds."""
    inner = response[1:-1, 1:-1]
    highest, lowest = (
        np.asarray(morph(response, _NEIGHBOURS), np.float32)[1:-1, 1:-1] for morph in (cv2.dilate, cv2.erode)
    )
    limit = 0.8 * PEAK_THRESHOLD
    y, x = np.nonzero(((inner >= limit) & (inner > highest)) | ((inner <= -limit) & (inner < lowest)))
    return x + 1, y + 1


def _refine(
    response: Plane, x: NDArray[np.int64], y: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Fit a quadratic around each extremum; return x, y and value of the stable, strong and round ones."""
    height, width = response.shape
    moving = np.ones(len(x), bool)
    for _ in range(REFINEMENTS):
        fit = _Quadratic.around(response, x, y)
        step_x = np.where((np.abs(fit.x) > MAX_STEP) & moving, np.sign(fit.x), 0).astype(np.int64)
        step_y = np.where((np.abs(fit.y) > MAX_STEP) & moving, np.sign(fit.y), 0).astype(np.int64)
        moved_x, moved_y = (x + step_x).clip(1, width - 2), (y + step_y).clip(1, height - 2)
        moving = (moved_x != x) | (moved_y != y)
        x, y = moved_x, moved_y
        if not moving.any():
            break
    fine_x, fine_y = x + fit.x, y + fit.y
    stable = fit.is_regular & (np.abs(fit.x) < MAX_OFFSET) & (np.abs(fit.y) < MAX_OFFSET)
    stable &= (fine_x >= 0) & (fine_x <= width - 1) & (fine_y >= 0) & (fine_y <= height - 1)
    stable &= (np.abs(fit.value) > PEAK_THRESHOLD) & (fit.curvature_ratio < EDGE_THRESHOLD)
    return fine_x[stable], fine_y[stable], fit.value[stable]


@dataclass(frozen=True)
class _Quadratic:
    """Extrema of quadratics: offsets from the pixel, values, ratios of curvatures (inf for saddles), (N,) each."""

    x: Array
    y: Array
    value: Array
    curvature_ratio: Array
    is_regular: NDArray[np.bool_]

    @staticmethod
    def around(response: Plane, x: NDArray[np.int64], y: NDArray[np.int64]) -> "_Quadratic":
        """Fit quadratics to 3x3 values around pixels."""

        def at(dx: int, dy: int) -> Array:
            return response[y + dy, x + dx].astype(np.float64)

        slope_x, slope_y = (at(1, 0) - at(-1, 0)) / 2, (at(0, 1) - at(0, -1)) / 2
        xx, yy = at(1, 0) + at(-1, 0) - 2 * at(0, 0), at(0, 1) + at(0, -1) - 2 * at(0, 0)
        xy = (at(1, 1) + at(-1, -1) - at(-1, 1) - at(1, -1)) / 4
        determinant = xx * yy - xy * xy
        is_regular = determinant != 0
        divisor = np.where(is_regular, determinant, 1)
        offset_x = np.where(is_regular, (xy * slope_y - yy * slope_x) / divisor, 0)
        offset_y = np.where(is_regular, (xy * slope_x - xx * slope_y) / divisor, 0)
        value = at(0, 0) + (slope_x * offset_x + slope_y * offset_y) / 2
        # With the curvatures a and b, (a + b)² / ab = r + 2 + 1/r for their ratio r.
        half = (xx + yy) ** 2 / divisor / 2 - 1
        ratio = np.where(determinant > 0, half + np.sqrt(np.maximum(half**2 - 1, 0)), np.inf)
        return _Quadratic(offset_x, offset_y, value, ratio, is_regular)


def _laplacian_variance(position: ArrayLike) -> Array:
    """Return the squared sigma of the Laplacian at an index or between two, in sigmas of the corner."""
    return np.asarray(4 ** (np.asarray(position) / (LAPLACIANS - 1) - 0.5), np.float64)


def _laplacian_filters() -> NDArray[np.float32]:
    """Return the Laplacians for patches with the blur of the first, one (33 x 33) filter per column."""
    side = 2 * LAPLACIAN_RADIUS + 1
    impulse = np.zeros((side, side), np.float32)
    impulse[LAPLACIAN_RADIUS, LAPLACIAN_RADIUS] = 1
    laplacian = np.asarray(cv2.Laplacian(impulse, cv2.CV_32F), np.float32)
    filters = []
    for index in range(LAPLACIANS):
        sigma = math.sqrt(max(float(_laplacian_variance(index)) - LAPLACIAN_SIGMA**2, 0))
        filters.append(smooth(laplacian, sigma / LAPLACIAN_SPACING).ravel())
    return np.stack(filters, 1)


def _close_pairs(corners: Corners) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs (stronger, weaker) of close corners, in the order of the stronger."""
    x, y = corners.centres.T
    sigmas, strengths = corners.sigmas, np.abs(corners.responses)
    order = np.argsort(x, kind="stable")
    starts = np.searchsorted(x[order], x - DUPLICATE * sigmas)
    counts = np.searchsorted(x[order], x + DUPLICATE * sigmas) - starts
    first = np.repeat(np.arange(len(x)), counts)
    second = order[np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts - starts, counts)]
    close = np.abs(y[first] - y[second]) < DUPLICATE * sigmas[first]
    first, second = first[close], second[close]
    close = np.abs(x[first] - x[second]) < DUPLICATE * sigmas[first]
    close &= np.maximum(sigmas[first], sigmas[second]) < (1 + DUPLICATE) * np.minimum(sigmas[first], sigmas[second])
    close &= strengths[first] > strengths[second]
    return first[close], second[close]
