"""Robust estimation of a fundamental matrix or homography from matches, with an a-contrario test."""

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.types import Geometry

SAMPLE_SIZE = {"fundamental": 7, "homography": 4}  # points that determine the model
CONFIDENCE = 0.9999
MAX_ITERATIONS = 20_000
MAX_LOG_NFA = -3.0  # a model is accepted below this


@dataclass(frozen=True)
class Verification:
    """The estimated geometry of an image pair.

    Attributes:
        matrix: (3, 3), or None if no geometry was accepted.
        inliers: (P,) bool, all False without a matrix.
        log_nfa: log10 of the number of false alarms; see `log_false_alarms`.
    """

    matrix: NDArray[np.float64] | None
    inliers: NDArray[np.bool_]
    log_nfa: float


def verify(
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    size: tuple[int, int],
    geometry: Geometry = "fundamental",
    threshold: float = 1.5,
) -> Verification:
    """Fit a geometry to matched points with OpenCV's USAC (MAGSAC++), and reject it if chance explains it.

    Among many wrong matches, some always agree. The number of false alarms (Moisan and Stival, 2004) is the expected
    number of agreements of this size among random matches. The geometry is accepted if it is below 1e-3.

    Args:
        first: (P, 2) points (x, y) in the first image.
        second: (P, 2) matching points in the second image.
        size: (height, width) of the second image.
        geometry: The model to fit.
        threshold: Maximum distance in pixels of an inlier from its epipolar line or its predicted position.
    """
    count = len(first)
    rejected = Verification(None, np.zeros(count, bool), 0.0)
    if count <= SAMPLE_SIZE[geometry]:
        return rejected
    a, b = (np.ascontiguousarray(p, np.float64) for p in (first, second))
    try:
        if geometry == "fundamental":
            matrix, mask = cv2.findFundamentalMat(a, b, cv2.USAC_MAGSAC, threshold, CONFIDENCE, MAX_ITERATIONS)
        else:
            matrix, mask = cv2.findHomography(
                a, b, cv2.USAC_MAGSAC, threshold, maxIters=MAX_ITERATIONS, confidence=CONFIDENCE
            )
    except cv2.error:  # raised for some degenerate points instead of returning None
        return rejected
    if matrix is None or matrix.shape != (3, 3) or mask is None:
        return rejected
    inliers = mask.ravel().astype(bool)
    # Several matches of the same two points are not independent: they count once.
    independent = len(np.unique(np.hstack([a, b])[inliers].round(), axis=0))
    log_nfa = log_false_alarms(count, independent, size, geometry, threshold)
    return Verification(np.asarray(matrix, np.float64), inliers, log_nfa) if log_nfa < MAX_LOG_NFA else rejected


def log_false_alarms(matches: int, inliers: int, size: tuple[int, int], geometry: Geometry, threshold: float) -> float:
    """Compute log10 NFA = log10 [(n - s) C(n, k) C(k, s) pᵏ⁻ˢ] for k inliers among n matches.

    s is the number of points that determine the model. p is the probability that a random point of the image lies
    within the threshold: in a band along a line across the image (fundamental), or in a disc (homography).
    """
    sample = SAMPLE_SIZE[geometry]
    if inliers <= sample:
        return 0.0
    height, width = size
    area = 2 * threshold * math.hypot(height, width) if geometry == "fundamental" else math.pi * threshold**2
    p = min(1.0, area / (height * width))
    return (
        math.log10(matches - sample)
        + _log_choose(matches, inliers)
        + _log_choose(inliers, sample)
        + (inliers - sample) * math.log10(p)
    )


def _log_choose(n: int, k: int) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(10)
