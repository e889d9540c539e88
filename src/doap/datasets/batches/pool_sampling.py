"""Batches from few sequences or photos, whose patches are harder to tell apart (paper, "Label Mining in HPatches").

Interface and promises as in `sampling`.
"""

from collections.abc import Iterator

import numpy as np

from doap.datasets.batches.sampling import GroupItems
from doap.datasets.sets.groups import Grouping, Ids
from doap.errors import DoapError


class SequencePairs:
    """Two sequences a batch, equally many groups from each; an epoch visits every pair of sequences once.

    So about half of a patch's distractors are of its own sequence. The groups are drawn anew for each
    batch, as many as fit half a list; if one sequence has fewer, both give as many as it has.

    Args:
        grouping: where to draw from.
        list_size: M, how many patches a batch holds at most; groups are never cut to fill it.
        seed: fixes all batches.
        views: how many items each group gives, see `GroupItems`; all it has by default.
    """

    def __init__(self, grouping: Grouping, list_size: int, seed: int, views: int | None = None) -> None:
        self.list_size = list_size
        self.seed = seed
        self._items = items = GroupItems(grouping, views)
        largest = int(items.counts[items.usable].max())
        if largest > list_size // 2:
            raise DoapError(f"a group of {largest} patches does not fit half a list of {list_size}; raise list_size")
        sequences = np.unique(grouping.sequences)
        self._pools = _Pools(items.usable, grouping.group_sequences[items.usable])
        missing = np.setdiff1d(sequences, self._pools.names)
        if len(missing):
            name = grouping.sequence_names[missing[0]] if grouping.sequence_names else missing[0]
            raise DoapError(f"sequence {name} has no group with a match: leave it out to draw pairs of sequences")
        if len(sequences) < 2:
            raise DoapError("pairs of sequences need a set of two sequences or more, and this one has one")
        self._pairs = np.stack(np.triu_indices(len(sequences), 1), 1)
        # No half of a list holds more groups than this.
        self._most = list_size // 2 // int(items.counts[items.usable].min())

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """The batches of an epoch from number `start` on, each an array of item indices, group by group."""
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self._pairs))
        for number in range(start, len(order)):
            random = np.random.default_rng((self.seed, epoch, number))
            halves = [self._half(sequence, random) for sequence in self._pairs[order[number]]]
            each = min(map(len, halves))
            yield self._items.take(np.concatenate([half[:each] for half in halves]), random)

    def count(self, epoch: int) -> int:  # noqa: ARG002 (the same for all)
        """How many batches an epoch has: S (S - 1) / 2 for S sequences."""
        return len(self._pairs)

    def _half(self, sequence: int, random: np.random.Generator) -> Ids:
        """Groups of a sequence, as many as fit half a list."""
        groups = self._pools.groups[self._pools.start[sequence] : self._pools.start[sequence + 1]]
        drawn = random.choice(groups, min(self._most, len(groups)), replace=False)
        fitting = np.searchsorted(np.cumsum(self._items.counts[drawn]), self.list_size // 2, side="right")
        return drawn[:fitting]


class PoolBatches:
    """G groups from each of P pools a batch: hard lists for any set, from few sequences or few photos.

    An epoch shuffles each pool's groups and deals them in hands of G; a batch takes a hand from each of P
    different pools, more often from those with more hands left. Each group comes at most once an epoch.
    Left out, other groups in each epoch, are exactly:

    - what is left of each pool after hands of G: its size modulo G, so all of a pool smaller than G;
    - a pool's hands beyond one a batch;
    - at most P - 1 hands more, too few for another batch.

    Args:
        grouping: where to draw from.
        per_batch: P, the pools in a batch.
        per_pool: G, the groups from each of them.
        seed: fixes all batches.
        views: how many items each group gives, see `GroupItems`; all it has by default.
        pools: (number of groups,) integer pool of each group, in the order of `members_start`: for example
            the photo it was seen in. The sequences by default.
    """

    def __init__(
        self,
        grouping: Grouping,
        per_batch: int,
        per_pool: int,
        seed: int,
        views: int | None = None,
        pools: Ids | None = None,
    ) -> None:
        self.per_batch = per_batch
        self.per_pool = per_pool
        self.seed = seed
        self._items = GroupItems(grouping, views)
        pool_of_group = grouping.group_sequences if pools is None else np.asarray(pools, np.int64)
        if pool_of_group.shape != grouping.group_sequences.shape:
            raise DoapError(f"pools has shape {pool_of_group.shape}, but there are {len(self._items.counts)} groups")
        self._pool_of_group = pool_of_group
        self._sizes = np.diff(_Pools(self._items.usable, pool_of_group[self._items.usable]).start)
        if (self._sizes >= per_pool).sum() < per_batch:
            raise DoapError(
                f"{(self._sizes >= per_pool).sum()} pools have {per_pool} groups with a match, "
                f"but a batch takes {per_batch}; lower one of the two"
            )
        hands = self._sizes // per_pool
        # The most batches: a pool gives each at most one hand. From above, so that the first that fits is the most.
        count = int(hands.sum()) // per_batch
        while (given := int(np.minimum(hands, count).sum()) // per_batch) < count:
            count = given
        self._count = count
        self._hands = np.minimum(hands, count)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """The batches of an epoch from number `start` on, each an array of item indices, group by group."""
        random = np.random.default_rng((self.seed, epoch))
        shuffled = random.permutation(self._items.usable)
        pools = _Pools(shuffled, self._pool_of_group[shuffled])
        dealt = np.zeros(len(self._sizes), np.int64)
        for number, chosen in enumerate(self._deal(random)):
            if number >= start:
                first = pools.start[chosen] + dealt[chosen] * self.per_pool
                groups = pools.groups[(first[:, None] + np.arange(self.per_pool)).ravel()]
                yield self._items.take(groups, np.random.default_rng((self.seed, epoch, number)))
            dealt[chosen] += 1

    def count(self, epoch: int) -> int:  # noqa: ARG002 (the same for all)
        """How many batches an epoch has."""
        return self._count

    def _deal(self, random: np.random.Generator) -> Iterator[Ids]:
        """The P pools of each batch."""
        every_hand = np.repeat(np.arange(len(self._hands)), self._hands)
        kept = random.permutation(every_hand)[: self._count * self.per_batch]
        left = np.bincount(kept, minlength=len(self._hands))
        for batches_left in range(self._count, 0, -1):
            # A race at speeds of the hands left is a draw without repeats. Whoever has a hand for each of the
            # batches left must be in all of them; since the hands are just enough, there are never more than P.
            with np.errstate(divide="ignore"):
                arrival = random.standard_exponential(len(left)) / left
            arrival[left == batches_left] = -1
            chosen = np.argpartition(arrival, self.per_batch - 1)[: self.per_batch]
            left[chosen] -= 1
            yield chosen


class _Pools:
    """Groups by pool: pool p, named `names[p]`, has `groups[start[p]:start[p + 1]]`."""

    def __init__(self, groups: Ids, pool_of_group: Ids) -> None:
        self.names, sizes = np.unique(pool_of_group, return_counts=True)
        self.groups = groups[np.argsort(pool_of_group, kind="stable")]
        self.start = np.concatenate(([0], np.cumsum(sizes)))
