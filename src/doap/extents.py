"""Extents, half the side of a patch in units of its frame's scale: the best for a detector, and which are valid."""

from collections.abc import Mapping

from doap.errors import DoapError, check_number

MAX_EXTENT = 1000.0

OPENCV_FACTORS = {"orb": 0.09, "akaze": 0.7, "brisk": 0.25, "gftt": 0.7, "fast": 0.3}
"""Extent for keypoints of OpenCV's other detectors over that for DoG keypoints.

Each means something else by the size of a keypoint. Chosen by benchmarks/opencv_bridge.py --extents.
"""


def best_extent(extents: Mapping[str, float], detector: str, training: float) -> float:
    """Return the best extent for the frames of a detector.

    Args:
        extents: Best extent by detector, of those that were measured.
        detector: Name of the detector. If it was not measured, that of DoG serves, whose scales are similar, times the
            factor of `OPENCV_FACTORS` for OpenCV's detectors, whose scales are not.
        training: Extent of the training, if DoG was not measured either.

    Example:
        >>> [best_extent({"dog": 12.0, "harris": 8.5}, detector, 17.0) for detector in ("harris", "hessian", "brisk")]
        [8.5, 12.0, 3.0]
    """
    return extents.get(detector, extents.get("dog", training) * OPENCV_FACTORS.get(detector, 1.0))


def check_extent(extent: float, name: str = "the extent") -> float:
    """Return a valid extent, of Python or of an array library, as a float.

    Args:
        extent: The extent.
        name: What the error calls it.

    Raises:
        DoapError: If it is no number, or 0, negative, infinite, NaN or larger than any image.
    """
    check_number(name, extent)
    if not 0 < extent <= MAX_EXTENT:
        raise DoapError(f"{name} must be positive and finite, up to {MAX_EXTENT:g}, not {extent}")
    return float(extent)
