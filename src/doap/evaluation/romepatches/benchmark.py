"""Patch retrieval on RomePatches: every patch a query, the others of its group to be found (paper, "RomePatches").

The mean of exact Average Precision, in two readings of who asks whom:

    all       every patch is a query, and ranks all other patches of its half
    official  the patches of `labels_gt` are the queries, and rank the patches of `labels`; where a set names them

The paper and the data's authors do not say which they report; the first uses every patch, and is the headline.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.datasets.official.opening import open_any
from doap.datasets.official.romepatches import HALVES, source_files
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.harness.methods import Method, Selection
from doap.evaluation.harness.result import Result, Score
from doap.objectives.exact import exact_average_precisions
from doap.types import Descriptors, Progress, no_progress

RULE = (
    "mAP: exact Average Precision, the mean over all orders of patches at equal distance, so ties gain nothing; "
    "every patch is a query that ranks all others of its half. Squared Euclidean distances in float64; Hamming "
    "distances of bits"
)
ENTRIES_AT_ONCE = 1 << 21  # of the distance matrix, in float64 a few times over


def open_halves(folder: Path, progress: Progress = no_progress) -> PatchSet:
    """The official folder as a patch set, whose sequences are the halves "train" and "test", or the one there is.

    Raises:
        DoapError: one line that names the file and the error.
    """
    if not source_files(folder):
        raise DoapError(f"{folder}: not an official folder of RomePatches (patch_retrieval_Rome_train.mat …)")
    return open_any(folder, progress)


def evaluate(
    patches: PatchSet,
    methods: Sequence[Method],
    data: str,
    device: str = "cpu",
    progress: Callable[[str, int, int], None] = lambda _doing, _done, _total: None,
) -> Result:
    """Every method on every half.

    Args:
        patches: from `open_halves`.
        methods: what to judge.
        data: where the patches lie, for the record.
        device: where to rank; the CPU in place of one without float64.
        progress: told what is done, how much of it, and how much there is.
    """
    scores: list[Score] = []
    halves = [half for half in HALVES if half in patches.sequence_names]
    for half in halves:
        chosen = np.flatnonzero(patches.sequences == patches.sequence_names.index(half))
        groups, query = patches.groups[chosen], patches.labels["query"][chosen] == 1
        selection = Selection(patches, chosen)
        for method in methods:
            found = method.describe_patches(selection, partial(progress, f"describing {half} by {method.name}"))
            tell = partial(progress, f"ranking {half} by {method.name}")
            scores.append(
                {
                    "descriptor": method.name,
                    "half": half,
                    "map": 100 * mean_average_precision(found, groups, None, device, tell),
                    "map official queries": 100 * mean_average_precision(found, groups, query, device, tell)
                    if query.any()
                    else None,
                }
            )
    return Result(
        benchmark="romepatches",
        settings={
            "data": data,
            "patches": {half: int((patches.sequences == patches.sequence_names.index(half)).sum()) for half in halves},
            "rule": RULE,
        },
        methods=[each.about() for each in methods],
        scores=scores,
    )


def mean_average_precision(
    descriptors: Descriptors,
    groups: NDArray[np.int64],
    queries: NDArray[np.bool_] | None = None,
    device: str = "cpu",
    progress: Progress = no_progress,
) -> float:
    """Mean AP of the queries that have a match, in [0, 1].

    Args:
        descriptors: (N, d) float32, or (N, bits / 8) uint8.
        groups: (N,) of each.
        queries: (N,) bool, which rank the patches that are none; by default each ranks all others.
        device: where to rank.
        progress: told the queries done, and how many there are.

    Raises:
        DoapError: if no query has a match.
    """
    place = device if torch.device(device).type == "cuda" else "cpu"  # Apple's GPUs have no float64
    group = torch.from_numpy(groups).to(place)
    asking = np.arange(len(groups)) if queries is None else np.flatnonzero(queries)
    ranked = np.ones(len(groups), bool) if queries is None else ~queries
    listed = torch.from_numpy(ranked).to(place)
    values = []
    for rows, distances in distance_rows(descriptors, asking, place):
        asked = torch.from_numpy(rows).to(place)
        in_list = listed & (asked[:, None] != torch.arange(len(group), device=place))
        same = group[asked, None] == group
        values.append(exact_average_precisions(distances, same, in_list).cpu())
        progress(sum(map(len, values)), len(asking))
    precisions = torch.cat(values)
    found = precisions[precisions.isfinite()]
    if not len(found):
        raise DoapError("no query has another patch of its group to find; are these the right labels?")
    return float(found.mean())


def distance_rows(
    descriptors: Descriptors, queries: NDArray[np.int64], device: str
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Distances of queries to all descriptors, some queries at a time: their indices, and (Q, N) float64.

    Equal descriptors are at exactly equal distance of any query: each is compared once, and its distance repeated,
    since a matrix product rounds by the place in the matrix.
    """
    distinct, first = np.unique(np.asarray(descriptors), axis=0, return_inverse=True)
    repeat = torch.from_numpy(first.reshape(-1)).to(device)
    values = torch.from_numpy(distinct).to(device).double()
    if descriptors.dtype == np.uint8:  # of bits as 0 and 1, the squared distance is the Hamming distance
        values = torch.from_numpy(np.unpackbits(distinct, axis=1)).to(device).double()
    lengths = values.square().sum(1)
    step = max(1, ENTRIES_AT_ONCE // len(descriptors))
    for start in range(0, len(queries), step):
        rows = queries[start : start + step]
        asked = repeat[torch.from_numpy(rows).to(device)]
        squared = lengths[asked, None] + lengths - 2 * values[asked] @ values.T
        yield rows, squared.clamp(min=0)[:, repeat]
