"""One-to-one matching of descriptors, greedily by distance."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.types import Descriptors

BLOCK_ROWS = 1024
ROUNDING = 1e-12  # squared distances of vectors of length 1 that are 0 up to rounding


def match_one_to_one(first: Descriptors, second: Descriptors) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Match descriptors greedily: the nearest pair is taken, both items are removed, and so on.

    Every item of the smaller set gets a partner. Real-valued descriptors are compared by Euclidean distance, packed
    bits (uint8) by Hamming distance. Equal distances are ordered by the index into `first`, then into `second`. The
    whole distance matrix is held in memory, as float32. Distances below a millionth of the longest vector are 0.

    Args:
        first: (N, D) float32, or (N, bits / 8) uint8.
        second: (K, …) of the same kind.

    Returns:
        (min(N, K), 2) indices into first and second, ascending in the first; (min(N, K),) distances.

    Raises:
        ValueError: If a value is not finite.

    Example:
        >>> import numpy as np
        >>> indices, distances = match_one_to_one(np.float32([[0], [1]]), np.float32([[0.9], [0.7]]))
        >>> indices.tolist(), distances.round(3).tolist()  # the second takes 0.9
        ([[0, 1], [1, 0]], [0.7, 0.1])
    """
    partners, nearest_distances = np.full(len(first), -1), np.zeros(len(first))
    rows, columns = np.arange(len(first)), np.arange(len(second))
    distances, unit = _distances(first, second)
    # Pairs that are nearest to each other among those left are taken by the greedy order before any pair they block.
    while distances.size:
        nearest, nearest_back = distances.argmin(1), distances.argmin(0)
        mutual = nearest_back[nearest] == np.arange(len(rows))
        partner = nearest[mutual]
        partners[rows[mutual]] = columns[partner]
        nearest_distances[rows[mutual]] = distances[mutual, partner]
        left = np.ones(len(columns), bool)
        left[partner] = False
        rows, columns = rows[~mutual], columns[left]
        distances = distances[np.ix_(~mutual, left)]
    matched = np.flatnonzero(partners >= 0)
    return np.stack([matched, partners[matched]], 1), unit * nearest_distances[matched]


def _distances(first: Descriptors, second: Descriptors) -> tuple[NDArray[np.float32], float]:
    """Compute Euclidean or Hamming distances, (N, K), and their unit: the power of two next to the longest vector.

    Products are computed in float64 and rounded to float32, so that equal descriptors get equal distances.
    """
    is_binary = first.dtype == np.uint8
    a, b = (
        torch.from_numpy(np.unpackbits(x, axis=1) if is_binary else np.ascontiguousarray(x)).double()
        for x in (first, second)
    )
    unit = 1.0 if is_binary else _unit(a, b)
    a, b = a / unit, b / unit
    distances = np.empty((len(first), len(second)), np.float32)
    for start in range(0, len(first), BLOCK_ROWS):
        block = a[start : start + BLOCK_ROWS]
        squared = (block.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * block @ b.T).clamp(min=0)
        squared[squared < ROUNDING] = 0
        distances[start : start + BLOCK_ROWS] = squared.numpy() if is_binary else squared.sqrt().numpy()
    return distances, unit


def _unit(first: Tensor, second: Tensor) -> float:
    """Return the power of two that is next to the length of the longest vector, 1 if all are 0."""
    longest = float(torch.cat([x.square().sum(1) for x in (first, second)] + [first.new_zeros(1)]).amax()) ** 0.5
    if not math.isfinite(longest):
        raise ValueError("descriptors hold NaN or infinity; remove these")
    return 2.0 ** round(math.log2(longest)) if longest else 1.0
