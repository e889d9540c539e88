"""Batches of whole groups: every patch's matches are always in its batch (paper, "Minibatch Sampling").

A sampler is a pure function of its seed, the epoch and the number of the batch: the same batch whenever it is
asked for, so a training resumes in the middle of an epoch by asking for the batches from there on. More
samplers, for lists from few sequences or photos, are in `pool_sampling`.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from doap.datasets.sets.groups import Grouping, Ids
from doap.errors import DoapError


class Sampler(Protocol):
    """What every sampler can do."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """The batches of an epoch from number `start` on, each an array of item indices, group by group."""

    def count(self, epoch: int) -> int:
        """How many batches an epoch has."""


class GroupItems:
    """Which items each group gives to a batch.

    Args:
        grouping: where to draw from.
        views: how many items each group gives: chosen at random where it has more. Where it has fewer, all
            of them, or, if items can be drawn afresh, each about equally often. None for whole groups.

    Attributes:
        usable: the groups, as places in `members_start`, that give two items or more: the others have no match.
        counts: how many items each group gives.
    """

    def __init__(self, grouping: Grouping, views: int | None = None) -> None:
        if views is not None and views < 2:
            raise DoapError(f"a group must give at least 2 views to have a match, not {views}")
        self._views = views
        self._repeats = grouping.fresh
        self._members = grouping.members
        self._start = grouping.members_start[:-1]
        self._sizes = np.diff(grouping.members_start)
        if views is None:
            self.counts = self._sizes
        elif grouping.fresh:
            self.counts = np.full_like(self._sizes, views)
        else:
            self.counts = np.minimum(self._sizes, views)
        self.usable: Ids = np.flatnonzero(self.counts >= 2)
        if not len(self.usable):
            raise DoapError("no group of this set has two patches, so there is nothing to match")

    def take(self, groups: Ids, random: np.random.Generator) -> Ids:
        """The items that these groups give, group by group; `random` chooses where there is a choice."""
        sizes, counts = self._sizes[groups], self.counts[groups]
        place = _within(counts)
        if self._views is not None:
            whole = counts // sizes * sizes  # as many rounds of all its items as the group gives
            beyond = place >= np.repeat(whole, counts)
            if self._repeats:
                place %= np.repeat(sizes, counts)
            place[beyond] = _subsets(sizes, counts - whole, random)
        return self._members[place + np.repeat(self._start[groups], counts)]


class GroupBatches:
    """Draws groups uniformly and whole, without repeating one in an epoch, to lists of at most M patches.

    Groups of a single patch have no match and are left out, unless it can be drawn afresh. What is left
    over at an epoch's end, too little for a list, is left to the other epochs, which each draw in another
    order.

    Args:
        grouping: where to draw from.
        list_size: M, how many patches a batch holds at most; groups are never cut to fill it.
        seed: fixes all batches.
        views: how many items each group gives, see `GroupItems`; all it has by default.
    """

    def __init__(self, grouping: Grouping, list_size: int, seed: int, views: int | None = None) -> None:
        self.list_size = list_size
        self.seed = seed
        self._items = GroupItems(grouping, views)
        _check_list(self._items, list_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """The batches of an epoch from number `start` on, each an array of item indices, group by group."""
        order = self._order(epoch)
        cuts = self._cuts(order)
        for number in range(start, len(cuts) - 1):
            random = np.random.default_rng((self.seed, epoch, number))
            yield self._items.take(order[cuts[number] : cuts[number + 1]], random)

    def count(self, epoch: int) -> int:
        """How many batches an epoch has; groups of different sizes fill lists differently in each."""
        return len(self._cuts(self._order(epoch))) - 1

    def _order(self, epoch: int) -> Ids:
        return np.random.default_rng((self.seed, epoch)).permutation(self._items.usable)

    def _cuts(self, order: Ids) -> list[int]:
        """Where to cut an order of groups into full lists: a list is full when the next group does not fit."""
        ends = np.cumsum(self._items.counts[order])
        cuts = [0]
        while cuts[-1] < len(order):
            used = ends[cuts[-1] - 1] if cuts[-1] else 0
            last = int(np.searchsorted(ends, used + self.list_size, side="right"))
            if last == len(order) and ends[-1] - used < self.list_size:
                break
            cuts.append(last)
        return cuts


class EveryGroupFirst:
    """As many batches as groups: the k-th starts with the k-th group, others drawn at random fill the list.

    The paper's way with small sets (RomePatches, 1,000 groups): an epoch shows the set many times, and each
    group at least once. No group comes twice in a batch.

    Args:
        grouping: where to draw from.
        list_size: M, how many patches a batch holds at most; groups are never cut to fill it.
        seed: fixes all batches.
        views: how many items each group gives, see `GroupItems`; all it has by default.
    """

    def __init__(self, grouping: Grouping, list_size: int, seed: int, views: int | None = None) -> None:
        self.list_size = list_size
        self.seed = seed
        self._items = GroupItems(grouping, views)
        _check_list(self._items, list_size)
        usable = self._items.usable
        # No list holds more groups than this; drawing no more makes a batch cost the same in a set of any size.
        self._most = min(list_size // int(self._items.counts[usable].min()), len(usable))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """The batches of an epoch from number `start` on, each an array of item indices, group by group."""
        usable = self._items.usable
        for number in range(start, len(usable)):
            random = np.random.default_rng((self.seed, epoch, number))
            others = random.choice(len(usable) - 1, self._most - 1, replace=False)
            groups = usable[np.concatenate(([number], others + (others >= number)))]
            fitting = int(np.searchsorted(np.cumsum(self._items.counts[groups]), self.list_size, side="right"))
            yield self._items.take(groups[:fitting], random)

    def count(self, epoch: int) -> int:  # noqa: ARG002 (the same for all)
        """How many batches an epoch has: the number of groups with a match."""
        return len(self._items.usable)


def share(indices: Ids, groups: Ids, rank: int, ranks: int) -> Ids:
    """One rank's part of a batch; the parts of all ranks, one after the other, are the batch.

    Groups stay whole, so that all ranks together rank the list that one process would. The parts are even
    to a group: each cut lies at the end of a group that is nearest to where an even one would.

    Args:
        indices: (M,) the batch, group by group, as samplers make it.
        groups: (M,) the group of each.
        rank: this rank, in 0..ranks-1.
        ranks: how many there are.

    Raises:
        DoapError: if there are fewer groups than ranks.
    """
    ends = np.concatenate(([0], np.flatnonzero(groups[1:] != groups[:-1]) + 1, [len(groups)]))
    if len(ends) - 1 < ranks:
        raise DoapError(f"a batch of {len(ends) - 1} groups cannot be shared by {ranks} ranks; raise list_size")
    even = np.arange(ranks + 1) * len(groups) / ranks
    after = np.searchsorted(ends, even).clip(1)
    cuts = np.where(even - ends[after - 1] <= ends[after] - even, after - 1, after)
    # No rank goes without a group, however large its neighbours' are.
    number = np.arange(ranks + 1)
    cuts = np.minimum(np.maximum.accumulate(cuts - number) + number, len(ends) - 1 - ranks + number)
    return indices[ends[cuts[rank]] : ends[cuts[rank + 1]]]


def _check_list(items: GroupItems, list_size: int) -> None:
    counts = items.counts[items.usable]
    if counts.max() > list_size:
        raise DoapError(f"a group of {counts.max()} patches does not fit a list of {list_size}; raise list_size")
    if counts.sum() < list_size:
        raise DoapError(
            f"the set has {counts.sum()} patches with a match, fewer than a list of {list_size}; lower list_size"
        )


def _within(counts: Ids) -> Ids:
    """0..c-1 for each count c, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) - np.repeat(ends - counts, counts)


def _subsets(sizes: Ids, counts: Ids, random: np.random.Generator) -> Ids:
    """A random subset of 0..s-1 for each size s, of as many as its count says, one after the other."""
    chance = random.random((int(counts.max()), len(sizes)))
    chosen = np.empty(chance.shape, np.int64)
    # Floyd's way: the j-th of c is any of 0..s-c+j, or, should that be chosen already, s-c+j itself.
    for number in range(len(chosen)):
        last = sizes - counts + number
        drawn = (chance[number] * (last + 1)).astype(np.int64)
        chosen[number] = np.where((chosen[:number] == drawn).any(0), last, drawn)
    asked = np.arange(len(chosen))[:, None] < counts
    return chosen.T[asked.T]
