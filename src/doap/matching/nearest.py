"""Exact nearest neighbours by Euclidean and Hamming distance, with deterministic ties."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.types import Descriptors

BLOCK_ENTRIES = 1 << 24  # of the distance matrix: 64 MiB
BLOCK_PAIRS = 1 << 17


def nearest(queries: Descriptors, database: Descriptors) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the nearest database item of each query; of equally near items, the first.

    Real-valued descriptors are compared by Euclidean distance, packed bits (uint8) by Hamming distance. The distance
    matrix is computed in blocks.

    Args:
        queries: (N, D) float32, or (N, bits / 8) uint8.
        database: (K, …) of the same kind, K > 0.

    Returns:
        (N,) indices into the database; (N,) distances.

    Raises:
        ValueError: If the descriptors differ in type or length, or the database is empty.
    """
    if queries.dtype != database.dtype or queries.shape[1:] != database.shape[1:]:
        raise ValueError(
            f"descriptors differ: {queries.dtype} {queries.shape[1:]} against {database.dtype} {database.shape[1:]}"
        )
    if not len(database):
        raise ValueError("the database is empty")
    search = _nearest_bits if queries.dtype == np.uint8 else _nearest_vectors
    indices = np.empty(len(queries), np.int64)
    distances = np.empty(len(queries), np.float64)
    rows = max(1, BLOCK_ENTRIES // len(database))
    for start in range(0, len(queries), rows):
        block = slice(start, start + rows)
        indices[block], distances[block] = search(queries[block], database)
    return indices, distances


def mutual_nearest(first: Descriptors, second: Descriptors) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the pairs that are each other's nearest neighbours.

    Args:
        first: (N, …) descriptors of the first image.
        second: (K, …) descriptors of the second image.

    Returns:
        (P, 2) indices into first and second, ascending in the first; (P,) distances.
    """
    if not len(first) or not len(second):
        return np.zeros((0, 2), np.int64), np.zeros(0)
    forward, distances = nearest(first, second)
    backward, _ = nearest(second, first)
    mutual = np.flatnonzero(backward[forward] == np.arange(len(first)))
    return np.stack([mutual, forward[mutual]], 1), distances[mutual]


def distinctive_matches(first: Descriptors, second: Descriptors, ratio: float) -> NDArray[np.int64]:
    """Find the mutual nearest neighbours that pass Lowe's ratio test.

    The distance to the nearest neighbour must be below `ratio` times the distance to the second nearest. Meant for
    many pairs of photos, where speed matters more than a single match: distances of real-valued descriptors come from
    a float32 product, and its rounding decides matches at the limit.

    Args:
        first: (N, D) float32 unit vectors, or (N, bits / 8) uint8.
        second: (K, …) of the same kind.
        ratio: Limit of the nearest distance over the second nearest; smaller is stricter.

    Returns:
        (P, 2) indices into first and second, ascending in the first; none if K < 2.
    """
    if not len(first) or len(second) < 2:
        return np.zeros((0, 2), np.int64)
    is_binary = first.dtype == np.uint8
    a, b = (_signs(x) if is_binary else torch.from_numpy(x) for x in (first, second))
    # Hamming distances are (bits - similarity) / 2, squared Euclidean distances 2 (1 - similarity).
    largest, factor = (a.shape[1], ratio) if is_binary else (1, ratio**2)
    similarity = (a @ b.T).numpy()
    rows = np.arange(len(first))
    best = similarity.argmax(1)
    nearest_similarity = similarity[rows, best]
    similarity[rows, best] = -np.inf
    selected = np.flatnonzero(largest - nearest_similarity < factor * (largest - similarity.max(1)))
    # Search back from the selected matches only: a search from every item of `second` would double the cost.
    backward = (b[best[selected]] @ a.T).numpy().argmax(1)
    selected = selected[backward == selected]
    return np.stack([selected, best[selected]], 1)


def _signs(bits: Descriptors) -> Tensor:
    """Unpack (N, bits / 8) uint8 to (N, bits) float32 values ±1."""
    return torch.from_numpy(np.unpackbits(bits, axis=1)).float() * 2 - 1


def _nearest_bits(queries: Descriptors, database: Descriptors) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Search by D = (b - F·F') / 2 on bits as ±1: integers, which float32 sums exactly in any order."""
    a, b = _signs(queries), _signs(database)
    products, indices = (a @ b.T).max(dim=1)  # on the CPU, the first of equal maxima
    return indices.numpy(), ((a.shape[1] - products) / 2).double().numpy()


def _nearest_vectors(queries: Descriptors, database: Descriptors) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Search by a float32 product, then compare the candidates in float64.

    The rounding of the product depends on the position in the matrix. Differences in float64 do not: equal descriptors
    get equal distances. Of equal database items only the first is searched, to limit the number of candidates.
    """
    unique = np.sort(np.unique(database, axis=0, return_index=True)[1])
    database = database[unique]
    a, b = torch.from_numpy(queries), torch.from_numpy(database)
    squared = a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * (a @ b.T)
    scale = a.square().sum(1) + b.square().sum(1).max()
    is_candidate = squared <= (squared.amin(1) + 1e-5 * scale)[:, None]
    rows, columns = (index.numpy() for index in is_candidate.nonzero(as_tuple=True))
    exact = np.empty(len(rows))
    for start in range(0, len(rows), BLOCK_PAIRS):
        block = slice(start, start + BLOCK_PAIRS)
        difference = queries[rows[block]].astype(np.float64) - database[columns[block]]
        exact[block] = np.sqrt((difference**2).sum(1))
    order = np.lexsort((columns, exact, rows))
    first = order[np.searchsorted(rows[order], np.arange(len(queries)))]
    return unique[columns[first]], exact[first]
