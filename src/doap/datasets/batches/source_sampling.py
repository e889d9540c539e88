"""Sampler for frame sets that weights the sources: views of single photos, static views and tracks.

Single photos give most groups of a set, and photos with real changes of light and viewpoint give few; weights balance
them. Interface and determinism as in `sampling`.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from doap.datasets.batches.sampling import GroupItems
from doap.datasets.sets.frame_set import SOURCES, FrameSet, Source
from doap.datasets.sets.groups import Ids
from doap.errors import DoapError


class SourceSampler:
    """G groups from each of P pools per batch; a pool is the groups of one sequence that have the same source.

    Each batch is sampled independently: the number of pools of each source, on average P times its normalised weight
    and always rounded up or down from it; the pools, without repetition and with probability proportional to their
    number of groups; and the groups of each pool. A source with fewer pools than its weight demands contributes all
    of them, and the others fill up by their weights. An epoch has as many batches as all groups of the set would
    fill, whatever the weights.

    Args:
        frames: The set to sample from.
        pools_per_batch: P, the number of pools in a batch.
        groups_per_sequence: G, the number of groups from each pool; smaller pools are skipped.
        seed: Determines all batches.
        views_per_group: Number of items per group, see `GroupItems`.
        source_weights: Relative number of pools in a batch, by source.

    Raises:
        DoapError: If the sources with a positive weight have fewer than P pools.
    """

    def __init__(
        self,
        frames: FrameSet,
        pools_per_batch: int,
        groups_per_sequence: int,
        seed: int,
        views_per_group: int,
        source_weights: Mapping[Source, float],
    ) -> None:
        self.pools_per_batch, self.groups_per_sequence, self.seed = pools_per_batch, groups_per_sequence, seed
        self._items = GroupItems(frames, views_per_group)
        self._count = max(1, len(self._items.usable) // (pools_per_batch * groups_per_sequence))
        source_of_group = frames.sources[frames.members[frames.members_start[:-1]]]
        self._pools = [self._pools_of(frames, source_of_group == source) for source in range(len(SOURCES))]
        self._probabilities = [_normalise([len(pool) for pool in pools]) for pools in self._pools]
        weights = np.array([source_weights.get(source, 0.0) for source in SOURCES])
        available = np.array([len(pools) for pools in self._pools]) * (weights > 0)
        if available.sum() < pools_per_batch:
            raise DoapError(
                f"{available.sum()} sequences have {groups_per_sequence} groups of {' or '.join(source_weights)}, but "
                f"a batch takes {pools_per_batch}; add sources to source_weights, or lower groups_per_sequence or "
                "batch_size"
            )
        self._ends = np.cumsum(_allocate(pools_per_batch, weights, available))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """Iterate over the batches of an epoch from position `start` on, each an array of item indices by group."""
        for position in range(start, self._count):
            random = np.random.default_rng((self.seed, epoch, position))
            groups = [
                random.choice(pool, self.groups_per_sequence, replace=False)
                for source, count in enumerate(self._sample_counts(random))
                for pool in self._sample_pools(source, count, random)
            ]
            yield self._items.take(np.concatenate(groups), random)

    def count(self, epoch: int) -> int:  # noqa: ARG002 (the same for all)
        """Return the number of batches of an epoch."""
        return self._count

    def _sample_counts(self, random: np.random.Generator) -> Ids:
        """Sample the number of pools of each source: systematic sampling, P points 1 apart with a random offset."""
        bounds: Ids = np.floor(self._ends + random.random()).astype(np.int64).clip(max=self.pools_per_batch)
        bounds[-1] = self.pools_per_batch
        counts: Ids = np.diff(bounds, prepend=0)
        return counts

    def _sample_pools(self, source: int, count: int, random: np.random.Generator) -> list[Ids]:
        """Sample different pools of a source, with probability proportional to their size."""
        if not count:
            return []
        pools = self._pools[source]
        return [pools[i] for i in random.choice(len(pools), count, replace=False, p=self._probabilities[source])]

    def _pools_of(self, frames: FrameSet, is_selected: NDArray[np.bool_]) -> list[Ids]:
        """Return the usable groups of each sequence among the selected groups."""
        groups = self._items.usable[is_selected[self._items.usable]]
        order = groups[np.argsort(frames.group_sequences[groups], kind="stable")]
        cuts = np.flatnonzero(np.diff(frames.group_sequences[order])) + 1
        return [pool for pool in np.split(order, cuts) if len(pool) >= self.groups_per_sequence]


def _allocate(total: int, weights: NDArray[np.float64], available: Ids) -> NDArray[np.float64]:
    """Divide a total in proportion to weights, each share at most `available`, which sums to at least the total.

    Example:
        >>> _allocate(16, np.array([1.0, 1.0, 2.0]), np.array([100, 100, 3])).tolist()
        [6.5, 6.5, 3.0]
    """
    allocated = np.zeros(len(weights))
    while (remaining := total - allocated.sum()) > 1e-9:
        open_weights = weights * (allocated < available)
        allocated = np.minimum(allocated + remaining * open_weights / open_weights.sum(), available)
    return allocated


def _normalise(sizes: list[int]) -> NDArray[np.float64]:
    """Return probabilities proportional to sizes."""
    probabilities: NDArray[np.float64] = np.array(sizes, np.float64) / max(1, sum(sizes))
    return probabilities
