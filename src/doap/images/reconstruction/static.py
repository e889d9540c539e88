"""Registration of images of a static camera: exposure brackets, webcams.

Exposure and light change grey values strongly, but not the positions of edges. Therefore images are compared by edge
maps: the strength of the gradient relative to its surroundings.
"""

from contextlib import suppress

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.types import Grey

EdgeMap = NDArray[np.float32]

CELLS = 6  # the registration is checked in CELLS x CELLS cells
MAX_SHIFT = 0.05  # of the longer side: with a larger shift the camera is not static
MAX_RESIDUAL = 1.0  # pixels: median of the cells after registration; objects in other cells may have moved
MIN_PEAK = 0.15  # of the phase correlation in a cell with the same content; noise peaks near 0.03
MIN_CELLS = 5
MAX_INITIAL_RESIDUAL = 4.0  # pixels: median of the cells before refinement
THUMBNAIL_SIZE = 32
COARSE_SIGMA = 4.0  # pixels: a Gaussian of this sigma needs no higher resolution


def edge_map(image: Grey) -> EdgeMap:
    """Compute the gradient strength of log grey values, divided by its local mean, (H, W) float32."""
    light = np.log1p(cv2.GaussianBlur(image.astype(np.float32), (0, 0), 1.0))
    x, y = cv2.Sobel(light, cv2.CV_32F, 1, 0), cv2.Sobel(light, cv2.CV_32F, 0, 1)
    strength = np.sqrt(x * x + y * y)  # the rounding of cv2.magnitude depends on the alignment of memory
    local_mean = _blur_coarsely(strength, max(image.shape) / 20)
    return np.asarray(np.minimum(strength / (local_mean + 0.02), 4.0), np.float32)


def thumbnail(edges: EdgeMap) -> NDArray[np.float32]:
    """Compute a (1024,) unit vector; the inner product of two is large if they may show the same view."""
    small = cv2.resize(edges, (THUMBNAIL_SIZE, THUMBNAIL_SIZE), interpolation=cv2.INTER_AREA).ravel()
    small = small - small.mean()
    return np.asarray(small / max(float(np.linalg.norm(small)), 1e-6), np.float32)


def register_static(reference: EdgeMap, other: EdgeMap) -> NDArray[np.float64] | None:
    """Estimate the small motion between two images of a static camera.

    A shift is estimated by phase correlation and refined to an affine map by maximising the correlation (ECC). The
    result is then checked in cells: of the cells where both images have the same edges, half must agree to a pixel.

    Args:
        reference: Edge map of the first image.
        other: Edge map of the second image, of the same size.

    Returns:
        (3, 3) matrix from the first to the second image, or None if they do not show the same view.
    """
    if reference.shape != other.shape or min(reference.shape) < 8 * CELLS:
        return None
    height, width = reference.shape
    (x, y), _ = cv2.phaseCorrelate(reference, other, _window(height, width))
    motion = np.array([[1, 0, x], [0, 1, y]], np.float32)
    if not _is_small(motion, reference.shape):
        motion = np.eye(2, 3, dtype=np.float32)
    if _residual(reference, _undo_motion(other, motion)) > MAX_INITIAL_RESIDUAL:
        return None
    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 50, 1e-4)
    with suppress(cv2.error):  # raised if nothing correlates; the shift alone is checked then
        motion = np.asarray(cv2.findTransformECC(reference, other, motion, cv2.MOTION_AFFINE, stop, None, 3)[1])  # type: ignore[call-overload]  # the mask may be None
    if not _is_small(motion, reference.shape):
        return None
    if _residual(reference, _undo_motion(other, motion)) > MAX_RESIDUAL:
        return None
    return np.vstack([motion, [0, 0, 1]]).astype(np.float64)


def _blur_coarsely(values: EdgeMap, sigma: float) -> EdgeMap:
    """Blur by a Gaussian at a lower resolution, where the filter of a large sigma is small."""
    height, width = values.shape
    factor = max(1.0, sigma / COARSE_SIGMA)
    size = max(1, round(width / factor)), max(1, round(height / factor))
    small = cv2.GaussianBlur(cv2.resize(values, size, interpolation=cv2.INTER_AREA), (0, 0), sigma / factor)
    return np.asarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR), np.float32)


def _undo_motion(edges: EdgeMap, motion: NDArray[np.float32]) -> EdgeMap:
    """Warp an edge map back to the reference."""
    height, width = edges.shape
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpAffine(edges, motion, (width, height), flags=flags), np.float32)


def _is_small(motion: NDArray[np.float32], shape: tuple[int, ...]) -> bool:
    """Return whether no corner of the image moves by more than MAX_SHIFT of its longer side."""
    height, width = shape
    corners = np.array([[0, 0, 1], [width, 0, 1], [0, height, 1], [width, height, 1]], np.float64)
    shift = corners @ motion.T - corners[:, :2]
    return bool(np.isfinite(shift).all() and np.linalg.norm(shift, axis=1).max() <= MAX_SHIFT * max(shape))


def _residual(reference: EdgeMap, moved: EdgeMap) -> float:
    """Return the median shift in pixels of the cells with the same content; infinity if there are too few."""
    height, width = (side // CELLS for side in reference.shape)
    window = _window(height, width)
    residuals = []
    for row in range(CELLS):
        for column in range(CELLS):
            cell = np.s_[row * height : (row + 1) * height, column * width : (column + 1) * width]
            (x, y), peak = cv2.phaseCorrelate(
                np.ascontiguousarray(reference[cell]), np.ascontiguousarray(moved[cell]), window
            )
            if peak >= MIN_PEAK:
                residuals.append(np.hypot(x, y))
    return float(np.median(residuals)) if len(residuals) >= MIN_CELLS else float("inf")


def _window(height: int, width: int) -> NDArray[np.float32]:
    return np.asarray(cv2.createHanningWindow((width, height), cv2.CV_32F), np.float32)
