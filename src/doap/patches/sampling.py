"""Batches of whole groups: every patch's matches are always in its batch (paper, "Minibatch Sampling")."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.patches.patchset import PatchSet


class GroupBatches:
    """Draws groups uniformly and whole, without repeating one in an epoch, to lists of at most M patches.

    A pure function of the seed, the epoch and the place in it: the same batch whenever it is asked for,
    so a training resumes in the middle of an epoch by asking for the next one. Groups of a single patch
    have no match and are left out. What is left over at an epoch's end, too little for a list, is left
    to the other epochs, which each draw in another order.

    Args:
        patches: where to draw from.
        list_size: M, how many patches a batch holds at most; groups are never cut to fill it.
        seed: fixes all batches.
    """

    def __init__(self, patches: PatchSet, list_size: int, seed: int) -> None:
        self.list_size = list_size
        self.seed = seed
        self._members = patches.members
        self._start = patches.members_start
        sizes = np.diff(self._start)
        self._sizes = sizes
        self._groups = np.flatnonzero(sizes >= 2)
        if not len(self._groups):
            raise DoapError("no group of this set has two patches, so there is nothing to match")
        largest = int(sizes[self._groups].max())
        if largest > list_size:
            raise DoapError(f"a group of {largest} patches does not fit a list of {list_size}; raise list_size")
        if int(sizes[self._groups].sum()) < list_size:
            raise DoapError(
                f"the set has {int(sizes[self._groups].sum())} patches with a match, "
                f"fewer than a list of {list_size}; lower list_size"
            )

    def batches(self, epoch: int, start: int = 0) -> Iterator[NDArray[np.int64]]:
        """The batches of an epoch from number `start` on, each an array of patch indices, group by group."""
        order = self._order(epoch)
        for number, (first, last) in enumerate(self._cuts(order)):
            if number >= start:
                yield np.concatenate([self._members[self._start[g] : self._start[g + 1]] for g in order[first:last]])

    def count(self, epoch: int) -> int:
        """How many batches an epoch has; groups of different sizes fill lists differently in each."""
        return sum(1 for _ in self._cuts(self._order(epoch)))

    def _order(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng((self.seed, epoch)).permutation(self._groups)

    def _cuts(self, order: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Where to cut an order of groups into full lists: a list is full when the next group does not fit."""
        ends = np.cumsum(self._sizes[order])
        first = 0
        while True:
            used = ends[first - 1] if first else 0
            last = int(np.searchsorted(ends, used + self.list_size, side="right"))
            if last == len(order) and ends[-1] - used < self.list_size:
                return
            yield first, last
            first = last
            if first == len(order):
                return
