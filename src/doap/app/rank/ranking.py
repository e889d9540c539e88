"""The ranked list of one query: distances, ranks, precision and Average Precision."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from doap.evaluation.metrics.average_precision import average_precision
from doap.types import Descriptors


@dataclass(frozen=True, eq=False)
class RankedList:
    """Items ranked by their distance from one query.

    Attributes:
        distances: (K,) of all items, ascending.
        items: (K,) index of the item at each rank; items at equal distance in the order of their indices.
        correct: (K,) bool, whether the item at each rank is correct; None if that is unknown.
        bits: Length of the descriptors in bits; None for real-valued ones.
    """

    distances: NDArray[np.float64]
    items: NDArray[np.int64]
    correct: NDArray[np.bool_] | None
    bits: int | None

    def __len__(self) -> int:
        return len(self.items)

    @property
    def positives(self) -> int:
        """Number of correct items; 0 if it is unknown."""
        return 0 if self.correct is None else int(self.correct.sum())

    @cached_property
    def average_precision(self) -> float | None:
        """Tie-aware AP of the list; None if no item is known to be correct."""
        if self.correct is None or not self.positives:
            return None
        return average_precision(self.distances, self.correct)

    @cached_property
    def precisions(self) -> NDArray[np.float64]:
        """Expected precision at each rank, (K,): the mean over all orders of items at equal distance."""
        assert self.correct is not None
        return expected_precisions(self.distances, self.correct)

    @cached_property
    def first_correct(self) -> tuple[int, int] | None:
        """Best and worst rank of the nearest correct item, from 1.

        They differ if incorrect items are at the same distance: their order is undefined. None if no item is correct.
        """
        if self.correct is None or not self.positives:
            return None
        distance = self.distances[int(self.correct.argmax())]
        tied = self.distances == distance
        best = int((self.distances < distance).sum()) + 1
        return best, best + int((tied & ~self.correct).sum())

    def rank_range(self, position: int) -> tuple[int, int]:
        """Return the first and last rank of the items at the same distance as the item at a position, from 1."""
        distance = self.distances[position]
        first = int(np.searchsorted(self.distances, distance, "left"))
        return first + 1, int(np.searchsorted(self.distances, distance, "right"))


def rank_items(query: Descriptors, items: Descriptors, correct: NDArray[np.bool_] | None) -> RankedList:
    """Rank items by their distance from a query.

    Args:
        query: (D,) float32, or (bits / 8,) uint8.
        items: (K, D) of the same type.
        correct: (K,) bool, which items are correct; None if that is unknown.
    """
    is_binary = query.dtype == np.uint8
    if is_binary:
        distances = np.unpackbits(np.bitwise_xor(items, query, dtype=np.uint8), axis=1).sum(1, dtype=np.float64)
    else:
        distances = np.linalg.norm(items.astype(np.float64) - query, axis=1)
    order = np.argsort(distances, kind="stable")
    ranked = None if correct is None else correct[order]
    return RankedList(distances[order], order, ranked, 8 * len(query) if is_binary else None)


def expected_precisions(distances: NDArray[np.float64], correct: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Compute the precision at each rank of a list, expected over all orders of items at equal distance.

    Within a tie of n items, n⁺ of them correct, that starts after N items, N⁺ of them correct, the precision at rank k
    is [N⁺ + (k - N) n⁺/n] / k.

    Args:
        distances: (K,) ascending.
        correct: (K,) bool.

    Returns:
        (K,) in 0..1.
    """
    _, start, tie, size = np.unique(distances, return_index=True, return_inverse=True, return_counts=True)
    if not len(start):
        return np.zeros(0)
    in_tie = np.add.reduceat(correct.astype(np.float64), start)
    before = np.concatenate([[0.0], np.cumsum(in_tie)[:-1]])
    rank = np.arange(1, len(distances) + 1)
    return np.asarray((before[tie] + (rank - start[tie]) * in_tie[tie] / size[tie]) / rank)
