"""Thresholds of matching: which are valid."""

import math

from doap.errors import DoapError, check_number


def check_thresholds(ratio: float | None, max_distance: float | None) -> None:
    """Check the thresholds of the ratio test and of distances; None is no test.

    Raises:
        DoapError: If one is no number or out of range.
    """
    for name, value in (("the ratio", ratio), ("the largest distance", max_distance)):
        if value is not None:
            check_number(name, value)
    if ratio is not None and not 0 < ratio <= 1:
        raise DoapError(f"the ratio must be above 0 and at most 1, not {ratio}")
    if max_distance is not None and not max_distance >= 0:
        raise DoapError(f"the largest distance must not be negative: {max_distance}")


def check_inlier_threshold(threshold: float) -> None:
    """Check the largest error of an inlier.

    Raises:
        DoapError: If it is no positive, finite number.
    """
    check_number("the threshold", threshold)
    if not 0 < threshold < math.inf:
        raise DoapError(f"the threshold must be a positive number of pixels, not {threshold}")
