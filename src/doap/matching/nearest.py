"""Exact nearest neighbours by Euclidean and Hamming distance, with deterministic ties.

Real-valued descriptors of any floating-point type are compared by Euclidean distance, packed bits (uint8) by Hamming
distance. Of equally near items the first is taken. Results do not depend on the device or the number of threads.

Arrays are searched on the CPU and give arrays; tensors are searched on their device and give tensors there. Memory is
bounded: the distance matrix is reduced tile by tile.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.matching.bits import BitSearch
from doap.matching.vectors import VectorSearch

Array = TypeVar("Array", NDArray[Any], Tensor)

MAX_VALUE, MIN_VALUE = 1e100, 1e-100  # of float64 descriptors: squares of others overflow, or become 0


@dataclass(frozen=True)
class PairSearch(Generic[Array]):
    """Pairs of a search between two sets of descriptors.

    Attributes:
        indices: (P, 2) int64 indices into first and second, ascending in the first.
        distances: (P,) float64 distance of each pair (float32 for tensors on MPS, which has no float64).
        second_distances: (P,) distance of the pair's first item to its nearest item of `second` but one, at least
            `distances`; infinity if `second` has one item.
    """

    indices: Array
    distances: Array
    second_distances: Array


def nearest(queries: Array, database: Array) -> tuple[Array, Array]:
    """Find the nearest database item of each query; of equally near items, the first.

    Args:
        queries: (N, D) of a floating-point type, or (N, bits / 8) uint8.
        database: (K, …) of the same type, K > 0.

    Returns:
        (N,) int64 indices into the database; (N,) float64 distances.

    Raises:
        ValueError: If the descriptors differ in type or length, are not finite, or the database is empty.
    """
    first, second = _tensors(queries, database)
    if not len(second):
        raise ValueError("the database is empty")
    with _plain_mode(first):
        _, _, indices, distances = _pairs(first, second, mutual=False)
        return _like(queries, indices), _distances_like(queries, distances)


def mutual_nearest(first: Array, second: Array) -> tuple[Array, Array]:
    """Find the pairs that are each other's nearest neighbours.

    Args:
        first: (N, …) descriptors of the first image; see `nearest`.
        second: (K, …) descriptors of the second image.

    Returns:
        (P, 2) int64 indices into first and second, ascending in the first; (P,) float64 distances.
    """
    a, b = _tensors(first, second)
    with _plain_mode(a):
        _, items, indices, distances = _pairs(a, b, mutual=True)
        return _like(first, torch.stack([items, indices], 1)), _distances_like(first, distances)


def search_matches(first: Array, second: Array, mutual: bool = True) -> PairSearch[Array]:
    """Find the nearest neighbour in `second` of each item of `first`, and the distance to the next nearest.

    Args:
        first: (N, …) descriptors of the first image; see `nearest`.
        second: (K, …) descriptors of the second image.
        mutual: Whether to keep only the pairs that are each other's nearest neighbours.

    Example:
        >>> import numpy as np
        >>> pairs = search_matches(np.float32([[0], [1]]), np.float32([[4], [1], [3]]))
        >>> pairs.indices.tolist(), pairs.distances.tolist(), pairs.second_distances.tolist()
        ([[1, 1]], [0.0], [2.0])
    """
    a, b = _tensors(first, second)
    with _plain_mode(a):
        search, items, indices, distances = _pairs(a, b, mutual)
        seconds = distances if search is None else search.second_distances(items, indices)
        pairs = torch.stack([items, indices], 1)
        return PairSearch(_like(first, pairs), _distances_like(first, distances), _distances_like(first, seconds))


def distinctive_matches(first: Array, second: Array, ratio: float) -> Array:
    """Find the mutual nearest neighbours that pass Lowe's ratio test.

    The distance to the nearest neighbour must be below `ratio` times the distance to the second nearest.

    Args:
        first: (N, …) descriptors of the first image; see `nearest`.
        second: (K, …) descriptors of the second image.
        ratio: Limit of the nearest distance over the second nearest; smaller is stricter.

    Returns:
        (P, 2) int64 indices into first and second, ascending in the first; none if K < 2.
    """
    a, b = _tensors(first, second)
    with _plain_mode(a):
        search, items, indices, distances = _pairs(a, b, mutual=True, ratio=ratio)
        if search is None or len(b) < 2:
            return _like(first, torch.zeros(0, 2, dtype=torch.int64))
        is_distinctive = distances < ratio * search.second_distances(items, indices)
        return _like(first, torch.stack([items, indices], 1)[is_distinctive])


def _pairs(
    first: Tensor, second: Tensor, mutual: bool, ratio: float | None = None
) -> tuple[VectorSearch | BitSearch | None, Tensor, Tensor, Tensor]:
    """Find pairs: the search, (P,) indices into `first` and `second`, (P,) distances. No search if a set is empty.

    With a ratio, some pairs that fail the ratio test are left out.
    """
    if not len(first) or not len(second):
        none = torch.zeros(0, dtype=torch.int64)
        return None, none, none, torch.zeros(0, dtype=torch.float64)
    if not first.shape[1]:
        raise ValueError("descriptors have no values: 0 dimensions")
    search: VectorSearch | BitSearch
    if first.dtype == torch.uint8:
        search = BitSearch(first, second, both=mutual)
    else:
        search = VectorSearch(first, second, _largest(first, second), both=mutual)
    if ratio is None:
        indices = search.forward()
        items = torch.arange(len(first), device=indices.device)
    else:
        items = search.distinct_items(ratio)
        indices = search.forward(items)
    if mutual:
        is_mutual = search.is_mutual(items, indices)
        items, indices = items[is_mutual], indices[is_mutual]
    return search, items, indices, search.distances(items, indices)


def _tensors(first: Array, second: Array) -> tuple[Tensor, Tensor]:
    """Return the descriptors as tensors, those of arrays on the CPU.

    Raises:
        ValueError: If they differ in type, length or device.
    """
    if first.dtype != second.dtype or first.ndim != 2 or first.shape[1:] != second.shape[1:]:
        raise ValueError(
            f"descriptors differ: {first.dtype} {tuple(first.shape)} against {second.dtype} {tuple(second.shape)}"
        )
    a, b = (
        x.detach() if isinstance(x, Tensor) else torch.from_numpy(np.require(x, requirements=["C", "W"]))
        for x in (first, second)
    )
    if a.device != b.device:
        raise ValueError(f"descriptors are on different devices: {a.device} and {b.device}")
    if a.dtype != torch.uint8 and not a.dtype.is_floating_point:
        raise ValueError(f"descriptors must be uint8 or of a floating-point type, not {a.dtype}")
    return a, b


def _like(original: Array, result: Tensor) -> Array:
    """Return indices as an int64 array, or as a tensor on the device of the original."""
    return result.to(original.device) if isinstance(original, Tensor) else result.numpy()


def _distances_like(original: Array, distances: Tensor) -> Array:
    """Return distances as `_like`, in float64 where the device has it."""
    has_double = isinstance(original, np.ndarray) or original.device.type != "mps"
    return _like(original, distances.double() if has_double else distances.float())


def _largest(first: Tensor, second: Tensor) -> float:
    """Return the largest absolute value.

    Raises:
        ValueError: If a value is not finite, or the squares of values are not in the range of float64.
    """
    largest = float(torch.stack([bound.abs() for x in (first, second) for bound in torch.aminmax(x)]).amax())
    if largest == 0 or MIN_VALUE < largest < MAX_VALUE:
        return largest
    if math.isfinite(largest):
        raise ValueError(f"the largest value is {largest:.3g}; scale descriptors to {MIN_VALUE}..{MAX_VALUE}")
    for name, values in (("first", first), ("second", second)):
        rows = (~values.isfinite().all(1)).nonzero()[:, 0]
        if len(rows):
            raise ValueError(f"descriptor {int(rows[0])} of the {name} set holds NaN or infinity; remove it")
    raise AssertionError


@contextmanager
def _plain_mode(values: Tensor) -> Iterator[None]:
    """Compute without gradients, and in the types given: callers can be in autocast or inference mode."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(values.device.type, enabled=False):
        yield
