"""Names, descriptors and scores as hloc stores them; descriptors are unit vectors, compared by their dot product."""

import math
import re
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from doap.errors import check_choice
from doap.types import Descriptors

HlocPrecision = Literal["float32", "float16"]
"""Number format of descriptors in hloc's files."""

SUM_BITS = 24  # significant bits of float32, in which hloc sums products


def features_name(model: str) -> str:
    """Return the name of the features of a model, without a suffix; separators would lead out of a folder.

    Example:
        >>> features_name("doap-128@64"), features_name("mine/first")
        ('feats-doap-128@64', 'feats-mine-first')
    """
    return "feats-" + re.sub(r"[/\\]", "-", model)


def bit_value(bits: int) -> float:
    """Return the value v that stands for a bit 1, as -v does for a bit 0: about 1 / √bits, which gives unit vectors.

    v = k / 4096 with the largest whole k for which bits · k² ≤ 2²⁴. All sums of products ±v² are then exact in float32,
    in any order of summation: dot products rank exactly as Hamming distances, and equal distances stay equal. v is
    1 / √bits for 256 and 1,024 bits, at most 0.8 % less for others up to 1,024, and exact in float16.

    Example:
        >>> bit_value(256), bit_value(128) * 2048
        (0.0625, 181.0)
    """
    return math.isqrt((1 << SUM_BITS) // bits) / (1 << SUM_BITS // 2)


def to_hloc(descriptors: Descriptors, precision: HlocPrecision = "float32") -> NDArray[Any]:
    """Convert descriptors to hloc's layout.

    Args:
        descriptors: (N, D) float32 unit vectors, or (N, bits / 8) uint8.
        precision: Number format of the result; bits are exact in both.

    Returns:
        (D, N), one column per keypoint; bits become ± `bit_value`, D = bits.

    Raises:
        DoapError: For another precision.
    """
    check_choice("precision", precision, get_args(HlocPrecision))
    if descriptors.dtype == np.uint8:
        value = bit_value(8 * descriptors.shape[1])
        descriptors = np.where(np.unpackbits(descriptors, axis=1), np.float32(value), np.float32(-value))
    return np.ascontiguousarray(descriptors.T.astype(precision))


def match_scores(distances: NDArray[np.float64], bits: int | None) -> NDArray[np.float64]:
    """Return the scores that hloc's nearest-neighbour matcher gives to matches: (1 + dot product) / 2.

    Args:
        distances: Euclidean distances of unit vectors, or numbers of different bits.
        bits: Number of bits of binary descriptors, None for unit vectors.
    """
    return np.asarray(1 - distances**2 / 4 if bits is None else 1 - distances / bits)
