"""Exact nearest neighbours, Euclidean and Hamming, with ties that always fall the same way."""

import numpy as np
import torch
from numpy.typing import NDArray

from doap.types import Descriptors

ENTRIES_AT_ONCE = 1 << 24  # of the distance matrix: 64 MiB
PAIRS_AT_ONCE = 1 << 17


def nearest(queries: Descriptors, database: Descriptors) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The nearest item of the database for each query; among equally near ones the first.

    Real-valued descriptors are compared by Euclidean distance, packed bits (uint8) by Hamming distance.
    The distance matrix is never held whole.

    Args:
        queries: (N, d) float32, or (N, bits / 8) uint8.
        database: (K, …) of the same kind, K > 0.

    Returns:
        (N,) indices into the database; (N,) distances.
    """
    if queries.dtype != database.dtype or queries.shape[1:] != database.shape[1:]:
        raise ValueError(
            f"descriptors differ: {queries.dtype} {queries.shape[1:]} against {database.dtype} {database.shape[1:]}"
        )
    if not len(database):
        raise ValueError("the database is empty")
    find = _nearest_bits if queries.dtype == np.uint8 else _nearest_vectors
    indices = np.empty(len(queries), np.int64)
    distances = np.empty(len(queries), np.float64)
    rows = max(1, ENTRIES_AT_ONCE // len(database))
    for start in range(0, len(queries), rows):
        part = slice(start, start + rows)
        indices[part], distances[part] = find(queries[part], database)
    return indices, distances


def mutual_nearest(first: Descriptors, second: Descriptors) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Pairs that are each other's nearest neighbours.

    Args:
        first: (N, …) descriptors of one image.
        second: (K, …) of the other.

    Returns:
        (P, 2) indices into first and second, in the order of the first; (P,) distances.
    """
    if not len(first) or not len(second):
        return np.zeros((0, 2), np.int64), np.zeros(0)
    forth, distances = nearest(first, second)
    back, _ = nearest(second, first)
    mutual = np.flatnonzero(back[forth] == np.arange(len(first)))
    return np.stack([mutual, forth[mutual]], 1), distances[mutual]


def _nearest_bits(queries: Descriptors, database: Descriptors) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """D = (b - F·F') / 2 on bits as ±1: whole numbers, which float32 sums exactly in any order."""
    a, b = (torch.from_numpy(np.unpackbits(x, axis=1)).float() * 2 - 1 for x in (queries, database))
    products, indices = (a @ b.T).max(dim=1)  # the first of equal maxima, on the CPU
    return indices.numpy(), ((a.shape[1] - products) / 2).double().numpy()


def _nearest_vectors(queries: Descriptors, database: Descriptors) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Candidates from a float32 matrix product, whose rounding depends on the place in the matrix;
    the nearest among them by differences in float64, in which equal descriptors are equally far.

    Of equal descriptors only the first is searched, so that many copies of one do not make many candidates.
    """
    originals = np.sort(np.unique(database, axis=0, return_index=True)[1])
    database = database[originals]
    a, b = torch.from_numpy(queries), torch.from_numpy(database)
    squared = a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * (a @ b.T)
    scale = a.square().sum(1) + b.square().sum(1).max()
    close = squared <= (squared.amin(1) + 1e-5 * scale)[:, None]
    rows, columns = (index.numpy() for index in close.nonzero(as_tuple=True))
    exact = np.empty(len(rows))
    for start in range(0, len(rows), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        difference = queries[rows[part]].astype(np.float64) - database[columns[part]]
        exact[part] = np.sqrt((difference**2).sum(1))
    order = np.lexsort((columns, exact, rows))
    first = order[np.searchsorted(rows[order], np.arange(len(queries)))]
    return originals[columns[first]], exact[first]


def distinctive_matches(first: Descriptors, second: Descriptors, ratio: float) -> NDArray[np.int64]:
    """Mutual nearest neighbours that are nearer than `ratio` times the second nearest (Lowe's test).

    For many pairs of photos, where speed counts and one doubtful match does not: unit vectors, distances from
    a float32 product.

    Args:
        first: (N, d) float32 unit vectors.
        second: (K, d).
        ratio: of the nearest distance to the second nearest; smaller is stricter.

    Returns:
        (P, 2) indices into first and second.
    """
    if not len(first) or len(second) < 2:
        return np.zeros((0, 2), np.int64)
    similar = (torch.from_numpy(first) @ torch.from_numpy(second).T).numpy()
    rows = np.arange(len(first))
    best = similar.argmax(1)
    nearest_squared = 2 - 2 * similar[rows, best]
    similar[rows, best] = -1
    second_squared = 2 - 2 * similar.max(1)
    kept = np.flatnonzero(nearest_squared < ratio**2 * second_squared)
    # Back from the few that are left: a search for each item of the other side would cost as much as all before.
    back = (torch.from_numpy(second[best[kept]]) @ torch.from_numpy(first).T).numpy().argmax(1)
    kept = kept[back == kept]
    return np.stack([kept, best[kept]], 1)
