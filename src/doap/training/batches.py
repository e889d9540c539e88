"""What a recipe draws from a set: which patches, their pixels on the device, and which pairs to ignore."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from doap.datasets.batches.augmentation import sample_symmetries, sample_zooms, flip_and_rotate
from doap.datasets.batches.overlap_tables import OverlapTables
from doap.datasets.batches.pool_sampling import PoolSampler, SequencePairSampler
from doap.datasets.batches.sampling import EveryGroupFirstSampler, GroupSampler, Sampler, share
from doap.datasets.batches.source_sampling import SourceSampler
from doap.datasets.label_mining.mining import MinedLabels
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.groups import GroupedSet, Ids
from doap.errors import DoapError
from doap.objectives.lists import IgnoreTable
from doap.training.recipe import Recipe
from doap.training.sources import Data, Sources


@dataclass(frozen=True)
class Batch:
    """A list and all its queries; or one rank's rows of it, of which all ranks together rank the whole.

    Attributes:
        pixels: (m, S, S) uint8 on the device, this rank's patches.
        groups: (m,) int64 on the CPU, their groups.
        ignore: groups that are no fair negatives of each other, or None; labels of this rank's patches, and the
            table of the whole list.
        rows: where this rank's patches are in the list.
        total: how many patches the list has.
        seed: for whatever else is random in the step.
    """

    pixels: Tensor
    groups: Tensor
    ignore: IgnoreTable | None
    rows: slice
    total: int
    seed: int


class Batches:
    """The batches of a training, each a pure function of the recipe's seed, the epoch and its number.

    Args:
        data: what to draw from.
        recipe: how.
        device: where the patches are wanted.
        size: side of the patches.
        mined: labels mined from the data, whose tables are respected beside the overlaps of the set.
        rank: which rank's rows to draw, in 0..ranks-1. Ranks draw the same patches that one process would;
            from a frame set each with its own jitter.
        ranks: how many there are.
        progress: called with the share of the set that is loaded.
        sources: where the set may be loaded already.
    """

    def __init__(
        self,
        data: Data,
        recipe: Recipe,
        device: str | torch.device,
        size: int,
        mined: MinedLabels | None = None,
        rank: int = 0,
        ranks: int = 1,
        progress: Callable[[float], None] = lambda _done: None,
        sources: Sources | None = None,
    ) -> None:
        for key in ("zoom", "jitter"):
            value = getattr(recipe, key)
            if value != Recipe.model_fields[key].default and not data.is_jittered:
                raise DoapError(f"{key}={value} cuts patches anew from photos, and {data} has none; take a frame set")
        self._data = data
        self._recipe = recipe
        self._device = torch.device(device)
        self._rank, self._ranks = rank, ranks
        self._sampler = make_sampler(data, recipe)
        self._source = (sources or Sources()).load(data, device, size, progress)
        self._tables: list[OverlapTables | MinedLabels] = []
        if len(data.overlaps):
            self._tables.append(OverlapTables(data, device))
        if mined is not None:
            self._tables.append(mined.to(device))

    def count(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return self._sampler.count(epoch)

    def indices(self, epoch: int, number: int) -> Ids:
        """Which items a batch is made of."""
        return next(self._sampler.batches(epoch, number))

    def draw(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on."""
        for number, indices in enumerate(self._sampler.batches(epoch, start), start):
            groups = self._data.groups[indices]
            places = share(np.arange(len(indices)), groups, self._rank, self._ranks)
            yield self._batch(indices, groups, slice(int(places[0]), int(places[-1]) + 1), (epoch, number))

    def _batch(self, indices: Ids, groups: Ids, rows: slice, place: tuple[int, int]) -> Batch:
        own = (self._rank,) if self._data.is_jittered and self._rank else ()
        random = torch.Generator(self._device).manual_seed(_seed(self._recipe.seed, *place, *own))
        labels = torch.from_numpy(groups)
        zooms = sample_zooms(labels[rows], self._recipe.zoom, random) if self._recipe.zoom else None
        pixels = self._source.draw(indices[rows], random, zooms, self._recipe.jitter)
        if self._recipe.augment:
            pixels = flip_and_rotate(pixels, sample_symmetries(labels, random)[rows])
        # In chunks, dropout knows nothing of the list: each rank draws masks of its own.
        seed = _seed(self._recipe.seed, *place, *((self._rank,) if self._recipe.chunk and self._rank else ()))
        return Batch(pixels, labels[rows], self._ignore(indices, rows), rows, len(indices), seed)

    def _ignore(self, indices: Ids, rows: slice) -> IgnoreTable | None:
        both: IgnoreTable | None = None
        for tables in self._tables:
            found = tables.ignore(indices)
            both = found if both is None else both | found
        return None if both is None else IgnoreTable(both.labels[rows], both.table)


def make_sampler(data: GroupedSet, recipe: Recipe) -> Sampler:
    """The sampler that a recipe names."""
    size, seed, views = recipe.batch_size, recipe.seed, recipe.views_per_group
    if data.is_jittered and views is None:
        raise DoapError("a frame set does not fix the patches per group: set views_per_group, for example views_per_group=4")
    if recipe.sampling == "pools":
        if views is None:
            raise DoapError("sampling=pools needs views_per_group, for example views_per_group=4")
        pools = max(1, size // (views * recipe.groups_per_sequence))
        if recipe.source_weights is None:
            return PoolSampler(data, pools, recipe.groups_per_sequence, seed, views)
        if not isinstance(data, FrameSet):
            raise DoapError("source_weights needs a frame set; a patch set does not record sources")
        return SourceSampler(data, pools, recipe.groups_per_sequence, seed, views, recipe.source_weights)
    if recipe.sampling == "every-group-first":
        return EveryGroupFirstSampler(data, size, seed, views)
    if recipe.sampling == "sequence-pairs":
        return SequencePairSampler(data, size, seed, views)
    return GroupSampler(data, size, seed, views)


def _seed(*numbers: int) -> int:
    """One number for several, different for any two batches but for a chance of 2⁻⁶³."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
