"""Samplers of batches of whole groups: all matches of a patch are in its batch (paper, "Minibatch Sampling").

A sampler is a pure function of its seed, the epoch and the position of the batch. Training resumes in the middle of
an epoch by requesting the batches from that position on. `pool_sampling` and `source_sampling` have samplers that take
a batch from few sequences or photos.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from doap.datasets.sets.groups import GroupedSet, Ids
from doap.errors import DoapError


class Sampler(Protocol):
    """Interface of all samplers."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """Iterate over the batches of an epoch from position `start` on, each an array of item indices by group."""

    def count(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""


class GroupItems:
    """The items that each group contributes to a batch.

    Args:
        data: The set to sample from.
        views_per_group: Number of items per group, sampled at random from larger groups. Smaller groups contribute
            all items; if every use of an item gives a new view, items are repeated about equally often to reach the
            number. None for whole groups.

    Attributes:
        usable: Groups, as positions in `members_start`, that contribute at least two items; others have no match.
        counts: Number of items that each group contributes.
    """

    def __init__(self, data: GroupedSet, views_per_group: int | None = None) -> None:
        if views_per_group is not None and views_per_group < 2:
            raise DoapError(f"views_per_group is {views_per_group}, but a match needs at least 2 views; raise it")
        self._views_per_group = views_per_group
        self._repeats = data.is_jittered
        self._members = data.members
        self._start = data.members_start[:-1]
        self._sizes = np.diff(data.members_start)
        if views_per_group is None:
            self.counts = self._sizes
        elif data.is_jittered:
            self.counts = np.full_like(self._sizes, views_per_group)
        else:
            self.counts = np.minimum(self._sizes, views_per_group)
        self.usable: Ids = np.flatnonzero(self.counts >= 2)
        if not len(self.usable):
            raise DoapError("no group of this set has two patches, so there is nothing to match; use another set")

    def take(self, groups: Ids, random: np.random.Generator) -> Ids:
        """Return the items of groups, group by group; `random` selects them in groups that have more than needed."""
        sizes, counts = self._sizes[groups], self.counts[groups]
        positions = _ranges(counts)
        if self._views_per_group is not None:
            full_rounds = counts // sizes * sizes  # complete rounds over all items of the group
            is_extra = positions >= np.repeat(full_rounds, counts)
            if self._repeats:
                positions %= np.repeat(sizes, counts)
            positions[is_extra] = _sample_subsets(sizes, counts - full_rounds, random)
        return self._members[positions + np.repeat(self._start[groups], counts)]


class GroupSampler:
    """Whole groups sampled uniformly, each at most once per epoch, in batches of at most M patches.

    Groups of a single patch have no match and are skipped, unless every use of an item gives a new view. The groups
    left at the end of an epoch, too few for a batch, differ between epochs, because each epoch has its own order.

    Args:
        data: The set to sample from.
        batch_size: M, the maximum number of patches in a batch; groups are never cut to fill it.
        seed: Determines all batches.
        views_per_group: Number of items per group, see `GroupItems`; all items by default.
    """

    def __init__(self, data: GroupedSet, batch_size: int, seed: int, views_per_group: int | None = None) -> None:
        self.batch_size = batch_size
        self.seed = seed
        self._items = GroupItems(data, views_per_group)
        _check_batch_size(self._items, batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """Iterate over the batches of an epoch from position `start` on, each an array of item indices by group."""
        order = self._order(epoch)
        cuts = self._cuts(order)
        for position in range(start, len(cuts) - 1):
            random = np.random.default_rng((self.seed, epoch, position))
            yield self._items.take(order[cuts[position] : cuts[position + 1]], random)

    def count(self, epoch: int) -> int:
        """Return the number of batches of an epoch; it varies if groups differ in size."""
        return len(self._cuts(self._order(epoch))) - 1

    def _order(self, epoch: int) -> Ids:
        return np.random.default_rng((self.seed, epoch)).permutation(self._items.usable)

    def _cuts(self, order: Ids) -> list[int]:
        """Return the bounds of full batches in an order of groups; a batch is full if the next group does not fit."""
        ends = np.cumsum(self._items.counts[order])
        cuts = [0]
        while cuts[-1] < len(order):
            used = ends[cuts[-1] - 1] if cuts[-1] else 0
            last = int(np.searchsorted(ends, used + self.batch_size, side="right"))
            if last == len(order) and ends[-1] - used < self.batch_size:
                break
            cuts.append(last)
        return cuts


class EveryGroupFirstSampler:
    """One batch per group: batch k starts with group k and is filled with other groups sampled at random.

    The paper's sampling of small sets (RomePatches, 1,000 groups): an epoch shows the set many times and each group
    at least once. No group occurs twice in a batch.

    Args:
        data: The set to sample from.
        batch_size: M, the maximum number of patches in a batch; groups are never cut to fill it.
        seed: Determines all batches.
        views_per_group: Number of items per group, see `GroupItems`; all items by default.
    """

    def __init__(self, data: GroupedSet, batch_size: int, seed: int, views_per_group: int | None = None) -> None:
        self.batch_size = batch_size
        self.seed = seed
        self._items = GroupItems(data, views_per_group)
        _check_batch_size(self._items, batch_size)
        usable = self._items.usable
        # Upper bound of the groups in a batch. Sampling no more makes the cost independent of the set's size.
        self._max_groups = min(batch_size // int(self._items.counts[usable].min()), len(usable))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """Iterate over the batches of an epoch from position `start` on, each an array of item indices by group."""
        usable = self._items.usable
        for position in range(start, len(usable)):
            random = np.random.default_rng((self.seed, epoch, position))
            others = random.choice(len(usable) - 1, self._max_groups - 1, replace=False)
            groups = usable[np.concatenate(([position], others + (others >= position)))]
            fitting = int(np.searchsorted(np.cumsum(self._items.counts[groups]), self.batch_size, side="right"))
            yield self._items.take(groups[:fitting], random)

    def count(self, epoch: int) -> int:  # noqa: ARG002 (the same for all)
        """Return the number of batches of an epoch: the number of groups with a match."""
        return len(self._items.usable)


def shard_batch(indices: Ids, groups: Ids, rank: int, ranks: int) -> Ids:
    """Return the part of a batch that one rank processes; the parts of all ranks concatenated are the batch.

    Groups stay whole, so that all ranks together rank the same list as a single process. Each cut is the end of the
    group nearest to the even cut.

    Args:
        indices: (M,) item indices of the batch, group by group, as samplers return them.
        groups: (M,) the group of each item.
        rank: Index of this rank, in 0..ranks-1.
        ranks: Number of ranks.

    Raises:
        DoapError: If there are fewer groups than ranks.
    """
    ends = np.concatenate(([0], np.flatnonzero(groups[1:] != groups[:-1]) + 1, [len(groups)]))
    if len(ends) - 1 < ranks:
        raise DoapError(f"a batch of {len(ends) - 1} groups cannot be split across {ranks} ranks; raise batch_size")
    even = np.arange(ranks + 1) * len(groups) / ranks
    after = np.searchsorted(ends, even).clip(1)
    cuts = np.where(even - ends[after - 1] <= ends[after] - even, after - 1, after)
    # Every rank gets at least one group, however large the others are.
    number = np.arange(ranks + 1)
    cuts = np.minimum(np.maximum.accumulate(cuts - number) + number, len(ends) - 1 - ranks + number)
    return indices[ends[cuts[rank]] : ends[cuts[rank + 1]]]


def _check_batch_size(items: GroupItems, batch_size: int) -> None:
    counts = np.sort(items.counts[items.usable])
    if len(counts) < 2:
        raise DoapError("only one group of this set has two patches, so no query has a negative; use another set")
    if counts[-1] > batch_size:
        raise DoapError(f"a group of {counts[-1]} patches does not fit a batch of {batch_size}; raise batch_size")
    if counts[:2].sum() > batch_size:
        raise DoapError(
            f"a batch of {batch_size} patches holds one group of {counts[0]} or more, so no query has a negative; "
            "raise batch_size"
        )
    if counts.sum() < batch_size:
        raise DoapError(
            f"the set has {counts.sum()} patches with a match, fewer than a batch of {batch_size}; lower batch_size"
        )


def _ranges(counts: Ids) -> Ids:
    """Return 0..c-1 for each count c, concatenated."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) - np.repeat(ends - counts, counts)


def _sample_subsets(sizes: Ids, counts: Ids, random: np.random.Generator) -> Ids:
    """Sample a subset of c elements of 0..s-1 for each size s and count c, concatenated."""
    uniform = random.random((int(counts.max()), len(sizes)))
    subsets = np.empty(uniform.shape, np.int64)
    # Floyd's algorithm: element j of c is sampled from 0..s-c+j; if it is in the subset already, s-c+j is taken.
    for number in range(len(subsets)):
        last = sizes - counts + number
        sampled = (uniform[number] * (last + 1)).astype(np.int64)
        subsets[number] = np.where((subsets[:number] == sampled).any(0), last, sampled)
    is_needed = np.arange(len(subsets))[:, None] < counts
    return subsets.T[is_needed.T]
