"""Mean Average Precision of patches that rank each other."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.errors import DoapError
from doap.objectives.exact import exact_average_precisions
from doap.types import Descriptors, Progress, no_progress

BLOCK_ENTRIES = 1 << 21  # of the distance matrix, which is held a few times in float64


def mean_average_precision(
    descriptors: Descriptors,
    groups: NDArray[np.int64],
    queries: NDArray[np.bool_] | None = None,
    device: str = "cpu",
    progress: Progress = no_progress,
) -> float:
    """Compute the mean AP of the queries that have a match.

    Args:
        descriptors: (N, d) float32, or (N, bits / 8) uint8.
        groups: (N,) group of each patch.
        queries: (N,) bool, which patches are queries; they rank the patches that are not. By default each patch ranks
            all others.
        device: Device that ranks patches.
        progress: Callback, called as `progress(done, total)` with numbers of queries.

    Returns:
        Mean AP in [0, 1].

    Raises:
        DoapError: If no query has a match.
    """
    ranking_device = device if torch.device(device).type == "cuda" else "cpu"  # Apple's GPUs have no float64
    group = torch.from_numpy(groups).to(ranking_device)
    query_indices = np.arange(len(groups)) if queries is None else np.flatnonzero(queries)
    listed = torch.from_numpy(np.ones(len(groups), bool) if queries is None else ~queries).to(ranking_device)
    values: list[Tensor] = []
    for indices, distances in distance_rows(descriptors, query_indices, ranking_device):
        rows = torch.from_numpy(indices).to(ranking_device)
        in_list = listed & (rows[:, None] != torch.arange(len(group), device=ranking_device))
        same = group[rows, None] == group
        values.append(exact_average_precisions(distances, same, in_list).cpu())
        progress(sum(map(len, values)), len(query_indices))
    precisions = torch.cat([torch.zeros(0, dtype=torch.float64), *values])
    defined = precisions[precisions.isfinite()]
    if not len(defined):
        raise DoapError("no query has another patch of its group to find; check the labels")
    return float(defined.mean())


def distance_rows(
    descriptors: Descriptors, queries: NDArray[np.int64], device: str
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Yield blocks of queries: their indices, and their (Q, N) float64 distances to all descriptors.

    Equal descriptors have exactly equal distances to any query: a matrix product rounds differently in different
    columns, so each distinct descriptor is compared once and its distance repeated.
    """
    distinct, first = np.unique(np.asarray(descriptors), axis=0, return_inverse=True)
    repeat = torch.from_numpy(first.reshape(-1)).to(device)
    values = torch.from_numpy(distinct).to(device).double()
    if descriptors.dtype == np.uint8:  # for bits as 0 and 1, the squared distance is the Hamming distance
        values = torch.from_numpy(np.unpackbits(distinct, axis=1)).to(device).double()
    lengths = values.square().sum(1)
    step = max(1, BLOCK_ENTRIES // max(1, len(descriptors)))
    for start in range(0, len(queries), step):
        indices = queries[start : start + step]
        rows = repeat[torch.from_numpy(indices).to(device)]
        squared = lengths[rows, None] + lengths - 2 * values[rows] @ values.T
        yield indices, squared.clamp(min=0)[:, repeat]
