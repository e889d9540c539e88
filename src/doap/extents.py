"""Which extents are valid: half the side of a patch in units of its frame's scale."""

from collections.abc import Mapping

from doap.errors import DoapError, check_number

MAX_EXTENT = 1000.0


def best_extent(extents: Mapping[str, float], detector: str, training: float) -> float:
    """Return the best extent for the frames of a detector.

    Args:
        extents: Best extent by detector, of those that were measured.
        detector: Name of the detector. If it was not measured, that of DoG serves, whose scales are similar.
        training: Extent of the training, if DoG was not measured either.
    """
    return extents.get(detector, extents.get("dog", training))


def check_extent(extent: float, name: str = "the extent") -> float:
    """Return a valid extent as it is.

    Args:
        extent: The extent.
        name: What the error calls it.

    Raises:
        DoapError: If it is no number, or 0, negative, infinite, NaN or larger than any image.
    """
    check_number(name, extent)
    if not 0 < extent <= MAX_EXTENT:
        raise DoapError(f"{name} must be positive and finite, up to {MAX_EXTENT:g}, not {extent}")
    return extent
