"""The queries whose ranked lists are shown after every epoch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.app.rank.ranking import RankedList, rank_items
from doap.datasets.sets.patch_set import PatchSet
from doap.networks.descriptor import Descriptor, describe_patches

MAX_LIST = 400
LEVEL = 2  # of the listed patches: hard views
SHOWN = 10
QUANTILES = (0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True, eq=False)
class FixedQueries:
    """Queries and the patches that they rank; exactly one of each list is correct.

    Attributes:
        queries: (Q, S, S) undisturbed patches of validation photos.
        patches: (K, S, S) hard views, one per point of the validation photos.
        listed: (Q, K) bool, which of them each query ranks: all but those that overlap with it in a photo.
        correct: (Q,) index of the correct patch of each query.
    """

    queries: NDArray[np.uint8]
    patches: NDArray[np.uint8]
    listed: NDArray[np.bool_]
    correct: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.queries)

    def rank(self, model: Descriptor) -> list[RankedList]:
        """Rank the patches by a model for each query; items are indices into `patches`."""
        first, second = describe_patches(self.queries, model), describe_patches(self.patches, model)
        return [
            _rank(query, second, listed, correct)
            for query, listed, correct in zip(first, self.listed, self.correct, strict=True)
        ]


def choose_queries(data: PatchSet, model: Descriptor, seed: int = 0) -> FixedQueries:
    """Choose queries that an untrained model does not rank among the patches that are shown.

    Of the queries that it misses, those at some quantiles of the rank; of all queries if it misses none.

    Args:
        data: Validation set as cut by `cut_patches`.
        model: The untrained model.
        seed: Determines the listed points.
    """
    levels = data.labels["level"]
    groups = np.unique(data.groups)
    kept = np.sort(np.random.default_rng(seed).permutation(groups)[:MAX_LIST])
    queries, views = (_patches(data, kept, levels == level) for level in (0, LEVEL))
    every = FixedQueries(queries, views, _listed(data, kept), np.arange(len(kept)))
    ranks = np.array([_worst_rank(ranked) for ranked in every.rank(model)])
    missed = np.flatnonzero(ranks > SHOWN)
    candidates = missed if len(missed) else np.arange(len(kept))
    ordered = candidates[np.argsort(ranks[candidates], kind="stable")]
    chosen = np.unique([round(quantile * (len(ordered) - 1)) for quantile in QUANTILES])
    rows = ordered[chosen]
    return FixedQueries(queries[rows], views, every.listed[rows], rows)


def _patches(data: PatchSet, groups: NDArray[np.int64], at_level: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the first patch of each group at a level, in the order of the groups."""
    rows = np.flatnonzero(at_level)
    distinct, first = np.unique(data.groups[rows], return_index=True)
    return data.take(rows[first[np.searchsorted(distinct, groups)]])


def _listed(data: PatchSet, groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which groups each group ranks, (K, K): all but those that overlap with it in a photo."""
    listed = np.ones((len(groups), len(groups)), bool)
    overlaps = data.overlaps[np.isin(data.overlaps, groups).all(1)]
    i, j = np.searchsorted(groups, overlaps).T
    listed[i, j] = listed[j, i] = False
    np.fill_diagonal(listed, True)
    return listed


def _rank(
    query: NDArray[np.generic], items: NDArray[np.generic], listed: NDArray[np.bool_], correct: int
) -> RankedList:
    rows = np.flatnonzero(listed)
    ranked = rank_items(query, items[rows], rows == correct)
    return RankedList(ranked.distances, rows[ranked.items], ranked.correct, ranked.bits)


def _worst_rank(ranked: RankedList) -> int:
    assert ranked.first_correct is not None
    return ranked.first_correct[1]
