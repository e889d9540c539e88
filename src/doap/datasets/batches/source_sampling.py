"""Batches of a frame set in which each source, views, static images and tracks, has a share of its own.

Single photos give most groups of a set, and photos that differ in light and viewpoint by themselves few: shares give
these a weight. Interface and promises as in `sampling`.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from doap.datasets.batches.sampling import GroupItems
from doap.datasets.sets.frame_set import SOURCES, FrameSet, Source
from doap.datasets.sets.groups import Ids
from doap.errors import DoapError


class SourceSampler:
    """G groups from each of P pools a batch; a pool is what a sequence has of one source.

    Everything is drawn anew for each batch: how many pools each source gives, P times its share on average and never
    off by a whole one; which, without repeating one, each with a chance in proportion to its groups; and which of their
    groups. A source that has fewer pools than its share takes gives all it has, and the others fill up by theirs. An
    epoch has as many batches as all groups of the set would fill, whatever the shares.

    Args:
        frames: where to draw from.
        per_batch: P, the pools in a batch.
        per_pool: G, the groups from each of them; smaller pools are left out.
        seed: fixes all batches.
        views: how many items each group gives, see `GroupItems`.
        shares: of the pools of a batch, by source; in any unit.

    Raises:
        DoapError: if there are not P pools of all sources that have a share.
    """

    def __init__(
        self, frames: FrameSet, per_batch: int, per_pool: int, seed: int, views: int, shares: Mapping[Source, float]
    ) -> None:
        self.per_batch, self.per_pool, self.seed = per_batch, per_pool, seed
        self._items = GroupItems(frames, views)
        self._count = max(1, len(self._items.usable) // (per_batch * per_pool))
        # Each source's pools, and the chance of each of them to be drawn first.
        source_of_group = frames.sources[frames.members[frames.members_start[:-1]]]
        self._pools = [self._pools_of(frames, source_of_group == source) for source in range(len(SOURCES))]
        self._chances = [_in_proportion([len(pool) for pool in pools]) for pools in self._pools]
        asked = np.array([shares.get(source, 0.0) for source in SOURCES])
        room = np.array([len(pools) for pools in self._pools]) * (asked > 0)
        if room.sum() < per_batch:
            raise DoapError(
                f"{room.sum()} sequences have {per_pool} groups of {' or '.join(shares)}, and a batch takes "
                f"{per_batch} such; give shares to more sources, or lower per_pool or list_size"
            )
        self._ends = np.cumsum(_deal(per_batch, asked, room))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Ids]:
        """The batches of an epoch from number `start` on, each an array of item indices, group by group."""
        for number in range(start, self._count):
            random = np.random.default_rng((self.seed, epoch, number))
            drawn = [
                random.choice(pool, self.per_pool, replace=False)
                for source, count in enumerate(self._counts(random))
                for pool in self._some(source, count, random)
            ]
            yield self._items.take(np.concatenate(drawn), random)

    def count(self, epoch: int) -> int:  # noqa: ARG002 (the same for all)
        """How many batches an epoch has."""
        return self._count

    def _counts(self, random: np.random.Generator) -> Ids:
        """How many pools of each source: those of P points, 1 apart, that fall into its part of [0, P]."""
        reached: Ids = np.floor(self._ends + random.random()).astype(np.int64).clip(max=self.per_batch)
        reached[-1] = self.per_batch
        counts: Ids = np.diff(reached, prepend=0)
        return counts

    def _some(self, source: int, count: int, random: np.random.Generator) -> list[Ids]:
        """So many different pools of a source, the larger more often."""
        if not count:
            return []
        pools = self._pools[source]
        return [pools[place] for place in random.choice(len(pools), count, replace=False, p=self._chances[source])]

    def _pools_of(self, frames: FrameSet, chosen: NDArray[np.bool_]) -> list[Ids]:
        """The groups of each sequence among those chosen."""
        groups = self._items.usable[chosen[self._items.usable]]
        order = groups[np.argsort(frames.group_sequences[groups], kind="stable")]
        cuts = np.flatnonzero(np.diff(frames.group_sequences[order])) + 1
        return [pool for pool in np.split(order, cuts) if len(pool) >= self.per_pool]


def _deal(total: int, asked: NDArray[np.float64], room: Ids) -> NDArray[np.float64]:
    """How much of a total each gets, in proportion to what it asks; none more than its room, which is enough for all.

    Example:
        >>> _deal(16, np.array([1.0, 1.0, 2.0]), np.array([100, 100, 3])).tolist()
        [6.5, 6.5, 3.0]
    """
    dealt = np.zeros(len(asked))
    while (left := total - dealt.sum()) > 1e-9:
        open_ = asked * (dealt < room)
        dealt = np.minimum(dealt + left * open_ / open_.sum(), room)
    return dealt


def _in_proportion(sizes: list[int]) -> NDArray[np.float64]:
    """Chances that sum to 1."""
    chances: NDArray[np.float64] = np.array(sizes, np.float64) / max(1, sum(sizes))
    return chances
