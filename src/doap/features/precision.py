"""Unit vectors in fewer bytes: float16, and uint8 with a scale per file."""

from typing import get_args

import numpy as np
from numpy.typing import NDArray

from doap.choices import StoredPrecision
from doap.errors import DoapError, check_choice
from doap.types import Descriptors

ZERO = 128  # the byte of 0.0; -1 and 1 are equally far from it
STEPS = 127  # bytes on either side of zero


def encode(descriptors: Descriptors, precision: StoredPrecision) -> tuple[Descriptors, float]:
    """Convert float32 unit vectors to a precision.

    uint8: b = round(x / s) + 128 in 1..255, with the step s = max |x| / 127 of these vectors, so that none is clipped.
    Values of trained models reach 0.3 to 0.4: a vector of 128 values moves by 0.01.

    Returns:
        The converted vectors; the step s, 0 for floats.

    Raises:
        DoapError: For an unknown precision, if the descriptors are bits and the precision is reduced, or if they are
            not finite and the precision is uint8.
    """
    if descriptors.dtype == np.uint8:
        if precision != "float32":
            raise DoapError(f"binary descriptors are stored as they are; {precision} is for real-valued ones")
        return descriptors, 0.0
    check_choice("precision", precision, get_args(StoredPrecision))
    if precision != "uint8":
        return descriptors.astype(precision), 0.0
    if not np.isfinite(descriptors).all():
        raise DoapError("descriptors with NaN or infinity cannot be stored as uint8; remove them")
    step = max(float(np.abs(descriptors).max(initial=0)), 1e-12) / STEPS
    return (np.round(descriptors / step) + ZERO).astype(np.uint8), step


def decode(stored: Descriptors, step: float) -> NDArray[np.float32]:
    """Convert stored vectors of any precision to float32 unit vectors; the inverse of `encode` but for rounding."""
    if stored.dtype == np.float32:
        return stored
    values = stored.astype(np.float32)
    if stored.dtype == np.uint8:
        values = (values - ZERO) * np.float32(step)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(values / np.where(norms > 0, norms, 1), np.float32)
