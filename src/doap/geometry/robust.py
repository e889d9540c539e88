"""Robust geometry: which matches agree on one fundamental matrix or homography."""

import math
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

Geometry = Literal["fundamental", "homography"]

# Points that fix the model, and degrees of freedom left to a further point: distance to a line, or to a point.
SAMPLE = {"fundamental": 7, "homography": 4}
CONFIDENCE = 0.9999
ITERATIONS = 20_000


@dataclass(frozen=True)
class Verified:
    """The geometry of an image pair.

    Attributes:
        matrix: 3x3, or None where the matches do not agree on one.
        inliers: (P,) bool, all False where there is no matrix.
        log_chance: log10 of how many such agreements to expect among as many random matches.
    """

    matrix: NDArray[np.float64] | None
    inliers: NDArray[np.bool_]
    log_chance: float


def verify(
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    size: tuple[int, int],
    geometry: Geometry = "fundamental",
    threshold: float = 1.5,
) -> Verified:
    """Fit a geometry to matched points by OpenCV's USAC (MAGSAC++), and refuse it if chance explains it.

    Among many wrong matches some always agree. The number of false alarms (Moisan and Stival, 2004) says
    how many agreements as large one would expect by chance; only where that is under one in a thousand
    is the geometry accepted.

    Args:
        first: (P, 2) points (x, y) in one image.
        second: (P, 2) their matches in the other.
        size: (height, width) of the second image.
        threshold: pixels an inlier may lie off its epipolar line or its predicted place.
    """
    count = len(first)
    nothing = Verified(None, np.zeros(count, bool), 0.0)
    if count <= SAMPLE[geometry]:
        return nothing
    a, b = (np.ascontiguousarray(p, np.float64) for p in (first, second))
    try:
        if geometry == "fundamental":
            matrix, mask = cv2.findFundamentalMat(a, b, cv2.USAC_MAGSAC, threshold, CONFIDENCE, ITERATIONS)
        else:
            matrix, mask = cv2.findHomography(
                a, b, cv2.USAC_MAGSAC, threshold, maxIters=ITERATIONS, confidence=CONFIDENCE
            )
    except cv2.error:  # raised for degenerate points instead of an empty answer
        return nothing
    if matrix is None or matrix.shape != (3, 3) or mask is None:
        return nothing
    inliers = mask.ravel().astype(bool)
    # A point matched many times over is one witness, not many.
    witnesses = len(np.unique(np.hstack([a, b])[inliers].round(), axis=0))
    chance = log_false_alarms(count, witnesses, size, geometry, threshold)
    return Verified(np.asarray(matrix, np.float64), inliers, chance) if chance < -3 else nothing


def log_false_alarms(matches: int, inliers: int, size: tuple[int, int], geometry: Geometry, threshold: float) -> float:
    """log10 NFA = log10 [(n - s) C(n, k) C(k, s) pᵏ⁻ˢ] for k inliers of n matches, s points fixing the model.

    p is the probability that a random point of the image lies within the threshold: in a band along a
    line through it (fundamental), or in a disc (homography).
    """
    needed = SAMPLE[geometry]
    if inliers <= needed:
        return 0.0
    height, width = size
    reach = 2 * threshold * math.hypot(height, width) if geometry == "fundamental" else math.pi * threshold**2
    p = min(1.0, reach / (height * width))
    return (
        math.log10(matches - needed)
        + _log_choose(matches, inliers)
        + _log_choose(inliers, needed)
        + (inliers - needed) * math.log10(p)
    )


def _log_choose(n: int, k: int) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(10)
