"""Detectors of frames: DoG, Harris corners, Hessian blobs, the last two with affine shape, and VLFeat's Harris-Affine.

All detectors but VLFeat's use the same definition of scale: a Gaussian blob of standard deviation s gives frames of
scale 0.89 s, which is half the size of a keypoint of OpenCV's SIFT. At the same extent, patches show equally much of
the scene.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np

from doap.images.affine_shape import adapt_shapes, orient
from doap.images.extraction import Pyramid
from doap.images.frames import Detections, Filter, Finder, detect_dog, find_bounded, find_dog
from doap.images.scale_space import Plane, Response, find_maxima
from doap.images.vlfeat.harris_affine import find_vlfeat_harris_affine
from doap.types import Frames, Grey

Detector = Callable[[Grey, int | None], Frames]

# SIFT reports the smaller of the two sigmas, a third of an octave apart, whose difference of Gaussians is largest: a
# blob of sigma s has scale s · 2^(-1/6).
HESSIAN_SCALE = 2 ** (-1 / 6)
# The settings here and in affine_shape.py were selected with benchmarks/detectors.py --settings.
HARRIS_ALPHA = 0.05
HARRIS_WINDOW = 1.0  # sigma of the window over which gradients are summed, in sigmas of the derivatives
AFFINE_CANDIDATES = 1.3  # candidates per requested affine frame: those on edges do not converge


@dataclass(frozen=True)
class ScaleSpaceDetector:
    """Settings of a detector of maxima in scale space.

    Attributes:
        response: Function whose maxima are detected.
        scale: Scale of a frame over the sigma of its maximum.
        threshold: Minimum response; for both detectors that of a blob 16 grey levels above its surroundings.
        base_sigma: Sigma of the first level of the scale space; for both detectors its frames have scale 1.2.
    """

    response: Response
    scale: float
    threshold: float
    base_sigma: float


def detect_harris(image: Grey, limit: int | None = None) -> Frames:
    """Detect multi-scale Harris corners, strongest first, oriented along the dominant gradient.

    Frames are maxima of the scale-normalised corner response over position and scale.

    Args:
        image: (H, W) uint8.
        limit: Maximum number of frames; None for all.

    Returns:
        (N, 2, 3) float32.
    """
    return find_frames("harris", image, limit).frames


def detect_hessian(image: Grey, limit: int | None = None) -> Frames:
    """Detect bright and dark blobs, strongest first, oriented along the dominant gradient.

    Frames are maxima of the scale-normalised determinant of the Hessian over position and scale.

    Args:
        image: (H, W) uint8.
        limit: Maximum number of frames; None for all.

    Returns:
        (N, 2, 3) float32.
    """
    return find_frames("hessian", image, limit).frames


def detect_harris_affine(image: Grey, limit: int | None = None) -> Frames:
    """Detect Harris corners with affine shape; see `detect_harris` and `affine_shape`."""
    return find_frames("harris-affine", image, limit).frames


def detect_hessian_affine(image: Grey, limit: int | None = None) -> Frames:
    """Detect Hessian blobs with affine shape; see `detect_hessian` and `affine_shape`."""
    return find_frames("hessian-affine", image, limit).frames


def detect_vlfeat_harris_affine(image: Grey, limit: int | None = None) -> Frames:
    """Detect the Harris-Affine frames of VLFeat, strongest first, upright.

    Frames have VLFeat's scale: the smaller axis is the sigma at which the Laplacian is extremal.

    Args:
        image: (H, W) uint8.
        limit: Maximum number of frames; None for all, as `vl_covdet` returns.

    Returns:
        (N, 2, 3) float32.
    """
    return find_frames("vlfeat-harris-affine", image, limit).frames


DETECTORS: dict[str, Detector] = {
    "dog": detect_dog,
    "harris": detect_harris,
    "hessian": detect_hessian,
    "harris-affine": detect_harris_affine,
    "hessian-affine": detect_hessian_affine,
    "vlfeat-harris-affine": detect_vlfeat_harris_affine,
}


def find_frames(name: str, image: Grey, limit: int | None = None, condition: Filter | None = None) -> Detections:
    """Detect frames with their responses, strongest first.

    Args:
        name: One of `DETECTORS`.
        image: (H, W) uint8.
        limit: Maximum number of frames; None for all.
        condition: Condition that frames must meet; the strongest of those are returned.
    """
    return find_bounded(_FINDERS[name], image, limit, condition or Filter())


def _find_maxima(
    detector: ScaleSpaceDetector, affine: bool, image: Grey, limit: int | None, condition: Filter
) -> Detections:
    maxima = find_maxima(image, detector.response, detector.threshold, detector.base_sigma)
    candidates = limit if limit is None or not affine else round(AFFINE_CANDIDATES * limit)
    kept = np.flatnonzero(condition.keeps(maxima.centres, maxima.strengths))[:candidates]
    centres, sizes = maxima.centres[kept], detector.scale * maxima.sigmas[kept]
    frames = np.concatenate([sizes[:, None, None] * np.eye(2), centres[:, :, None]], 2).astype(np.float32)
    detections = Detections(frames, maxima.strengths[kept].astype(np.float32))
    if not len(detections):
        return detections
    pyramid = Pyramid(image)
    if affine:
        detections = with_affine_shape(pyramid, detections)[:limit]
    return Detections(orient(pyramid, detections.frames), detections.responses)


def with_affine_shape(pyramid: Pyramid, detections: Detections) -> Detections:
    """Adapt the shape of detections and drop those that do not converge; see `affine_shape`."""
    frames, converged = adapt_shapes(pyramid, detections.frames)
    return Detections(frames, detections.responses)[converged]


def _hessian(level: Plane, sigma: float) -> Plane:
    """Compute σ⁴ (Lxx Lyy - Lxy²)."""
    xx = cv2.Sobel(level, cv2.CV_32F, 2, 0, ksize=1)
    yy = cv2.Sobel(level, cv2.CV_32F, 0, 2, ksize=1)
    xy = cv2.Sobel(level, cv2.CV_32F, 1, 1, ksize=3, scale=0.25)
    return np.asarray(cv2.multiply(xx, yy, scale=sigma**4) - cv2.multiply(xy, xy, scale=sigma**4), np.float32)


def _harris(level: Plane, sigma: float) -> Plane:
    """Compute det M - α trace² M of the second moments M of σ ∇L under a Gaussian window of sigma wσ."""
    x = cv2.Scharr(level, cv2.CV_32F, 1, 0, scale=sigma / 32)
    y = cv2.Scharr(level, cv2.CV_32F, 0, 1, scale=sigma / 32)
    window = HARRIS_WINDOW * sigma
    side = 2 * round(3 * window) + 1
    xx, xy, yy = (cv2.GaussianBlur(cv2.multiply(a, b), (side, side), window) for a, b in ((x, x), (x, y), (y, y)))
    trace = xx + yy
    determinant = cv2.multiply(xx, yy) - cv2.multiply(xy, xy)
    return np.asarray(determinant - cv2.multiply(trace, trace, scale=HARRIS_ALPHA), np.float32)


# The normalised Harris response of a blob of sigma s is maximal at s / (1 + 2 w²)^(1/4) for a window w.
HARRIS = ScaleSpaceDetector(_harris, HESSIAN_SCALE * (1 + 2 * HARRIS_WINDOW**2) ** 0.25, threshold=16.0, base_sigma=1.0)
HESSIAN = ScaleSpaceDetector(_hessian, HESSIAN_SCALE, threshold=16.0, base_sigma=1.3)

_FINDERS: dict[str, Finder] = {
    "dog": find_dog,
    "harris": partial(_find_maxima, HARRIS, False),
    "hessian": partial(_find_maxima, HESSIAN, False),
    "harris-affine": partial(_find_maxima, HARRIS, True),
    "hessian-affine": partial(_find_maxima, HESSIAN, True),
    "vlfeat-harris-affine": find_vlfeat_harris_affine,
}
