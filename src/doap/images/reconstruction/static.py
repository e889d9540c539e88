"""Pictures of a view that did not move: exposure brackets, webcams.

Exposure and light change grey values beyond recognition, but not where edges are. So pictures are compared as maps of
edges: how strong the gradient is against its surroundings.
"""

from contextlib import suppress

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.types import Grey

Map = NDArray[np.float32]

CELLS = 6  # the view is checked in CELLS x CELLS places
MAX_SHIFT = 0.05  # of the longer side: more than that is not a view that stood still
MAX_RESIDUAL = 1.0  # pixels that half of the cells may be off after registration; things in others may have moved
SURE = 0.15  # phase correlation's peak in a cell that shows the same thing twice; noise peaks near 0.03
MIN_CELLS = 5
MAX_ROUGH = 4.0  # pixels that half of the cells may be off before the registration is refined
THUMBNAIL = 32


def edge_map(image: Grey) -> Map:
    """Strength of the gradient of log grey values, divided by its local mean: (H, W) float32."""
    light = np.log1p(cv2.GaussianBlur(image.astype(np.float32), (0, 0), 1.0))
    strength = cv2.magnitude(cv2.Sobel(light, cv2.CV_32F, 1, 0), cv2.Sobel(light, cv2.CV_32F, 0, 1))
    around = cv2.GaussianBlur(strength, (0, 0), max(image.shape) / 20)
    return np.asarray(np.minimum(strength / (around + 0.02), 4.0), np.float32)


def thumbnail(edges: Map) -> NDArray[np.float32]:
    """A unit vector, (1024,), whose products with others tell views that may be the same."""
    small = cv2.resize(edges, (THUMBNAIL, THUMBNAIL), interpolation=cv2.INTER_AREA).ravel()
    small = small - small.mean()
    return np.asarray(small / max(float(np.linalg.norm(small)), 1e-6), np.float32)


def register_static(reference: Map, other: Map) -> NDArray[np.float64] | None:
    """Find the small motion between two pictures of one view, or None if it is not one view.

    A shift is found by phase correlation and refined to an affine map by maximising the correlation (ECC).
    Then the view is checked place by place: where both pictures have edges, half of them must lie within a pixel.

    Args:
        reference: edge map of one picture.
        other: of the other, of the same size.

    Returns:
        3x3 matrix from the reference to the other picture.
    """
    if reference.shape != other.shape or min(reference.shape) < 8 * CELLS:
        return None
    height, width = reference.shape
    (x, y), _ = cv2.phaseCorrelate(reference, other, _window(height, width))
    motion = np.array([[1, 0, x], [0, 1, y]], np.float32)
    if not _small(motion, reference.shape):
        motion = np.eye(2, 3, dtype=np.float32)
    if _residual(reference, _move(other, motion)) > MAX_ROUGH:
        return None
    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 50, 1e-4)
    with suppress(cv2.error):  # raised where nothing correlates; the shift alone is then put to the check
        motion = np.asarray(cv2.findTransformECC(reference, other, motion, cv2.MOTION_AFFINE, stop, None, 3)[1])  # type: ignore[call-overload]  # the mask may be None
    if not _small(motion, reference.shape):
        return None
    still = _residual(reference, _move(other, motion)) <= MAX_RESIDUAL
    return np.vstack([motion, [0, 0, 1]]).astype(np.float64) if still else None


def _move(edges: Map, motion: NDArray[np.float32]) -> Map:
    """The map as it would be without the motion."""
    height, width = edges.shape
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpAffine(edges, motion, (width, height), flags=flags), np.float32)


def _small(motion: NDArray[np.float32], shape: tuple[int, ...]) -> bool:
    """Whether no corner of a picture moves by more than MAX_SHIFT of its longer side."""
    height, width = shape
    corners = np.array([[0, 0, 1], [width, 0, 1], [0, height, 1], [width, height, 1]], np.float64)
    shift = corners @ motion.T - corners[:, :2]
    return bool(np.isfinite(shift).all() and np.linalg.norm(shift, axis=1).max() <= MAX_SHIFT * max(shape))


def _residual(reference: Map, moved: Map) -> float:
    """How far the cells that surely show the same thing are off, the median in pixels; infinite if they are few."""
    height, width = (side // CELLS for side in reference.shape)
    window = _window(height, width)
    residuals = []
    for row in range(CELLS):
        for column in range(CELLS):
            part = np.s_[row * height : (row + 1) * height, column * width : (column + 1) * width]
            (x, y), peak = cv2.phaseCorrelate(
                np.ascontiguousarray(reference[part]), np.ascontiguousarray(moved[part]), window
            )
            if peak >= SURE:
                residuals.append(np.hypot(x, y))
    return float(np.median(residuals)) if len(residuals) >= MIN_CELLS else float("inf")


def _window(height: int, width: int) -> NDArray[np.float32]:
    return np.asarray(cv2.createHanningWindow((width, height), cv2.CV_32F), np.float32)
