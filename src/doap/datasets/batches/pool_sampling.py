"""Samplers that take a batch from few sequences or photos, whose patches are harder to distinguish.

See the paper, "Label Mining in HPatches". Interface and determinism as in `sampling`.
"""

from collections.abc import Iterator

import numpy as np

from doap.datasets.batches.sampling import GroupItems
from doap.datasets.sets.groups import GroupedSet, Ids
from doap.errors import DoapError


class SequencePairSampler:
    """Two sequences per batch, with equally many groups of each; an epoch visits every pair of sequences once.

    About half of the negatives of a patch come from its own sequence. The groups are sampled independently for
    each batch, as many as fit half of it. If one sequence has fewer, both contribute as many as that one.

    Args:
        data: The set to sample from.
        batch_size: M, the maximum number of patches in a batch; groups are never cut to fill it.
        seed: Determines all batches.
        views_per_group: Number of items per group, see `GroupItems`; all items by default.
    """

    def __init__(self, data: GroupedSet, batch_size: int, seed: int, views_per_group: int | None = None) -> None:
        self.batch_size = batch_size
        self.seed = seed
        self._items = items = GroupItems(data, views_per_group)
        largest = int(items.counts[items.usable].max())
        if largest > batch_size // 2:
            raise DoapError(f"a group of {largest} patches does not fit half a batch of {batch_size}; raise batch_size")
        sequences = np.unique(data.sequences)
        self._pools = _Pools(items.usable, data.group_sequences[items.usable])
        missing = np.setdiff1d(sequences, self._pools.names)
        if len(missing):
            name = data.sequence_names[missing[0]] if data.sequence_names else missing[0]
            raise DoapError(f"sequence {name} has no group with a match; remove it to sample pairs of sequences")
        if len(sequences) < 2:
            raise DoapError("pairs of sequences need at least two sequences, and this set has one; use another set")
        self._pairs = np.stack(np.triu_indices(len(sequences), 1), 1)
        # Upper bound of the groups in half a batch.
        self._max_groups = batch_size // 2 // int(items.counts[items.usable].min())

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """Iterate over the batches of an epoch from position `start` on, each an array of item indices by group."""
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self._pairs))
        for position in range(start, len(order)):
            random = np.random.default_rng((self.seed, epoch, position))
            halves = [self._sample_half(sequence, random) for sequence in self._pairs[order[position]]]
            count = min(map(len, halves))
            yield self._items.take(np.concatenate([half[:count] for half in halves]), random)

    def count(self, epoch: int) -> int:  # noqa: ARG002 (the same for all)
        """Return the number of batches of an epoch: S (S - 1) / 2 for S sequences."""
        return len(self._pairs)

    def _sample_half(self, sequence: int, random: np.random.Generator) -> Ids:
        """Sample groups of a sequence, as many as fit half a batch."""
        groups = self._pools.groups[self._pools.start[sequence] : self._pools.start[sequence + 1]]
        sampled = random.choice(groups, min(self._max_groups, len(groups)), replace=False)
        fitting = np.searchsorted(np.cumsum(self._items.counts[sampled]), self.batch_size // 2, side="right")
        return sampled[:fitting]


class PoolSampler:
    """G groups from each of P pools per batch: hard lists from few sequences or few photos.

    An epoch shuffles the groups of each pool and cuts them into blocks of G. A batch takes one block from each of P
    different pools; pools with more blocks left are more likely. Each group occurs at most once per epoch.
    An epoch omits, with different groups each time, exactly:

    - the remainder of each pool after blocks of G, its size modulo G; so all of a pool smaller than G;
    - the blocks of a pool beyond one per batch;
    - at most P - 1 further blocks, too few for another batch.

    Args:
        data: The set to sample from.
        pools_per_batch: P, the number of pools in a batch.
        groups_per_sequence: G, the number of groups from each pool.
        seed: Determines all batches.
        views_per_group: Number of items per group, see `GroupItems`; all items by default.
        pools: (number of groups,) integer pool of each group, in the order of `members_start`, for example its
            photo. By default the pools are the sequences.
    """

    def __init__(
        self,
        data: GroupedSet,
        pools_per_batch: int,
        groups_per_sequence: int,
        seed: int,
        views_per_group: int | None = None,
        pools: Ids | None = None,
    ) -> None:
        self.pools_per_batch = pools_per_batch
        self.groups_per_sequence = groups_per_sequence
        self.seed = seed
        self._items = GroupItems(data, views_per_group)
        pool_of_group = data.group_sequences if pools is None else np.asarray(pools, np.int64)
        if pool_of_group.shape != data.group_sequences.shape:
            raise DoapError(f"pools has shape {pool_of_group.shape}, but there are {len(self._items.counts)} groups")
        self._pool_of_group = pool_of_group
        self._sizes = np.diff(_Pools(self._items.usable, pool_of_group[self._items.usable]).start)
        if (large := int((self._sizes >= groups_per_sequence).sum())) < pools_per_batch:
            raise DoapError(
                f"{large} pools have {groups_per_sequence} groups with a match, "
                f"but a batch takes {pools_per_batch}; lower groups_per_sequence or batch_size"
            )
        blocks = self._sizes // groups_per_sequence
        # The largest number of batches if a pool gives each at most one block: decrease until it is consistent.
        count = int(blocks.sum()) // pools_per_batch
        while (possible := int(np.minimum(blocks, count).sum()) // pools_per_batch) < count:
            count = possible
        self._count = count
        self._blocks = np.minimum(blocks, count)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """Iterate over the batches of an epoch from position `start` on, each an array of item indices by group."""
        random = np.random.default_rng((self.seed, epoch))
        shuffled = random.permutation(self._items.usable)
        pools = _Pools(shuffled, self._pool_of_group[shuffled])
        used = np.zeros(len(self._sizes), np.int64)
        for position, selected in enumerate(self._sample_pools(random)):
            if position >= start:
                first = pools.start[selected] + used[selected] * self.groups_per_sequence
                groups = pools.groups[(first[:, None] + np.arange(self.groups_per_sequence)).ravel()]
                yield self._items.take(groups, np.random.default_rng((self.seed, epoch, position)))
            used[selected] += 1

    def count(self, epoch: int) -> int:  # noqa: ARG002 (the same for all)
        """Return the number of batches of an epoch."""
        return self._count

    def _sample_pools(self, random: np.random.Generator) -> Iterator[Ids]:
        """Iterate over the P pools of each batch."""
        pool_of_block = np.repeat(np.arange(len(self._blocks)), self._blocks)
        used = random.permutation(pool_of_block)[: self._count * self.pools_per_batch]
        blocks_left = np.bincount(used, minlength=len(self._blocks))
        for batches_left in range(self._count, 0, -1):
            # The P smallest exponential times with the blocks left as rates are a weighted sample without repetition.
            # A pool with one block for each remaining batch must be in all of them; there are never more than P such
            # pools, because the blocks are just enough.
            with np.errstate(divide="ignore"):
                arrival = random.standard_exponential(len(blocks_left)) / blocks_left
            arrival[blocks_left == batches_left] = -1
            selected = np.argpartition(arrival, self.pools_per_batch - 1)[: self.pools_per_batch]
            blocks_left[selected] -= 1
            yield selected


class _Pools:
    """Groups by pool: pool p, named `names[p]`, has `groups[start[p]:start[p + 1]]`."""

    def __init__(self, groups: Ids, pool_of_group: Ids) -> None:
        self.names, sizes = np.unique(pool_of_group, return_counts=True)
        self.groups = groups[np.argsort(pool_of_group, kind="stable")]
        self.start = np.concatenate(([0], np.cumsum(sizes)))
