"""Which extents are valid: half the side of a patch in units of its frame's scale."""

from doap.errors import DoapError, check_number

MAX_EXTENT = 1000.0


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
