"""Batches of a training: patches on the device, their groups, and the pairs to ignore."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from doap.datasets.batches.augmentation import (
    flip_and_rotate,
    hide_border,
    sample_padded,
    sample_symmetries,
    sample_zooms,
)
from doap.datasets.batches.overlap_tables import OverlapTables
from doap.datasets.batches.pool_sampling import PoolSampler, SequencePairSampler
from doap.datasets.batches.sampling import EveryGroupFirstSampler, GroupSampler, Sampler, shard_batch
from doap.datasets.batches.sequence_tables import SequenceTables
from doap.datasets.batches.source_sampling import SourceSampler
from doap.datasets.label_mining.mining import MinedLabels
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.groups import GroupedSet, Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.datasets.sets.united_set import original_size
from doap.errors import DoapError
from doap.networks.descriptor import is_padded
from doap.networks.l2net import INPUT_SIZE
from doap.objectives.lists import IgnoreTable
from doap.training.data_cache import Data, DataCache
from doap.training.recipes.recipe import Recipe
from doap.types import Progress, no_progress


@dataclass(frozen=True)
class TeacherInput:
    """Patches that a teacher reads.

    Attributes:
        size: Side in pixels.
        extent: Half the side in units of the frame's scale.
        surroundings: Number of larger extents that the teacher reads beside the centre.
    """

    size: int
    extent: float
    surroundings: int = 0


@dataclass(frozen=True)
class PatchBatch:
    """A batch, or one rank's rows of it. Every patch is a query; it ranks the patches of all ranks.

    Attributes:
        pixels: (m, S, S) uint8 on the device, the patches of this rank.
        groups: (m,) int64 on the CPU, their groups.
        ignore: Pairs of groups that are not used as negatives of each other, or None: the labels of this rank's
            patches and the table of the whole batch.
        rows: Rows of this rank in the batch.
        total: Number of patches in the whole batch.
        seed: Seed of everything else that is random in the step.
        teacher_pixels: (m, S', S') uint8 on the device per teacher: the same patches at the extent of the teacher.
    """

    pixels: Tensor
    groups: Tensor
    ignore: IgnoreTable | None
    rows: slice
    total: int
    seed: int
    teacher_pixels: tuple[Tensor, ...] = ()


class BatchLoader:
    """Batches of a training; each is a pure function of the recipe's seed, the epoch and its position.

    Args:
        data: Set to sample from.
        recipe: How to sample.
        device: Device of the patches.
        size: Side of the patches.
        mined: Labels mined from the data, ignored in addition to the overlaps of the set.
        rank: Rank whose rows to load, in 0..ranks-1. All ranks together load the patches that one process would;
            patches of a frame set are jittered by each rank on its own.
        ranks: Number of ranks.
        progress: Callback while the set is loaded, called as progress(done, total).
        cache: Cache that may hold the loaded set.
        teachers: What each teacher reads. A teacher of another extent gets patches cut from the same photos, at the
            same jittered frames; a patch set has no photos, and teachers of the same extent share the patches. One
            that would pad them gets larger ones, unless those of a patch set are as small.
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
        progress: Progress = no_progress,
        cache: DataCache | None = None,
        teachers: Sequence[TeacherInput] = (),
    ) -> None:
        self._sampler = check_batches(data, recipe)
        self._data = data
        self._recipe = recipe
        self._device = torch.device(device)
        self._rank, self._ranks = rank, ranks
        cache = cache or DataCache()
        self._patches = cache.load(data, device, size, progress, recipe.extent)
        self._size, self._extent = size, recipe.extent or data.extent
        self._teachers = teachers
        self._teacher_patches = [
            cache.load(data, device, teacher.size, extent=recipe.extent) if self._cuts_for(teacher) else None
            for teacher in teachers
        ]
        self._tables: list[OverlapTables | SequenceTables | MinedLabels] = []
        if len(data.overlaps):
            self._tables.append(OverlapTables(data, device))
        if not recipe.in_sequence_negatives:
            self._tables.append(SequenceTables(data, device))
        if mined is not None:
            self._tables.append(mined.to(device))

    def count(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""
        return self._sampler.count(epoch)

    def indices(self, epoch: int, number: int) -> Ids:
        """Return the items of a batch, as indices into the set."""
        return next(self._sampler.batches(epoch, number))

    def batches(self, epoch: int, start: int = 0) -> Iterator[PatchBatch]:
        """Iterate over the batches of an epoch from number `start` on."""
        for number, indices in enumerate(self._sampler.batches(epoch, start), start):
            groups = self._data.groups[indices]
            rows = shard_batch(np.arange(len(indices)), groups, self._rank, self._ranks)
            yield self._load(indices, groups, slice(int(rows[0]), int(rows[-1]) + 1), (epoch, number))

    def _cuts_for(self, teacher: TeacherInput) -> bool:
        """Return whether a teacher reads patches of its own."""
        if self._data.is_jittered and teacher.extent != self._extent:
            return True
        if teacher.surroundings < 2 or not is_padded(self._size, teacher.size):
            return False
        return not (isinstance(self._data, PatchSet) and is_padded(self._data.size, teacher.size))

    def _load(self, indices: Ids, groups: Ids, rows: slice, position: tuple[int, int]) -> PatchBatch:
        recipe = self._recipe
        own_rank = (self._rank,) if self._rank else ()
        seed = _combine_seeds(recipe.seed, *position, *(own_rank if self._data.is_jittered else ()))
        random = torch.Generator(self._device).manual_seed(seed)
        labels = torch.from_numpy(groups)
        zooms = sample_zooms(labels[rows], recipe.zoom, random) if recipe.zoom else None
        state = random.get_state()
        pixels = self._patches.take(indices[rows], random, zooms, recipe.jitter_factors)
        of_teachers = self._take_for_teachers(indices[rows], state, zooms)
        if recipe.augment:
            symmetries = sample_symmetries(labels, random)[rows]
            pixels = flip_and_rotate(pixels, symmetries)
            of_teachers = [own if own is None else flip_and_rotate(own, symmetries) for own in of_teachers]
        # Dropout in chunks does not see the whole batch, so each rank samples its own masks.
        dropout_seed = _combine_seeds(recipe.seed, *position, *(own_rank if recipe.chunk else ()))
        ignore = self._ignore(indices, rows)
        teacher_pixels = tuple(pixels if own is None else own for own in of_teachers)
        if recipe.padding:
            pixels = hide_border(pixels, sample_padded(labels, recipe.padding, random)[rows])
        return PatchBatch(pixels, labels[rows], ignore, rows, len(indices), dropout_seed, teacher_pixels)

    def _take_for_teachers(self, indices: Ids, state: Tensor, zooms: Tensor | None) -> list[Tensor | None]:
        """Return the patches of each teacher, None if they are the student's.

        Args:
            indices: (m,) items of the batch.
            state: State of the generator before the student's patches were taken: the same jitter is sampled again.
            zooms: (m,) zooms of the student's patches, if any.
        """
        teacher_pixels: list[Tensor | None] = []
        for teacher, patches in zip(self._teachers, self._teacher_patches, strict=True):
            if patches is None:
                teacher_pixels.append(None)
                continue
            again = torch.Generator(self._device)
            again.set_state(state)
            # A zoom of negative octaves: it shows more of the same view, its tilt included.
            octaves = -math.log2(teacher.extent / self._extent)
            wider = octaves + (torch.zeros(len(indices), device=self._device) if zooms is None else zooms)
            teacher_pixels.append(patches.take(indices, again, wider, self._recipe.jitter_factors))
        return teacher_pixels

    def _ignore(self, indices: Ids, rows: slice) -> IgnoreTable | None:
        union: IgnoreTable | None = None
        for tables in self._tables:
            table = tables.ignore_table(indices)
            union = table if union is None else union | table
        return None if union is None else IgnoreTable(union.labels[rows], union.table)


def check_batches(data: Data, recipe: Recipe) -> Sampler:
    """Check that a recipe can be trained on a set, and return the sampler of its batches.

    Raises:
        DoapError: If the recipe does not fit the set.
    """
    for key in ("extent", "zoom", "jitter", "blur", "compression"):
        value = getattr(recipe, key)
        if value != Recipe.model_fields[key].default and not data.is_jittered:
            raise DoapError(f"{key}={value} needs the photos of a frame set, and {data} has none")
    if recipe.surround == 2 and isinstance(data, PatchSet):
        smallest = min(map(original_size, data.shards))
        if is_padded(smallest, INPUT_SIZE << 2):
            raise DoapError(
                f"surround=2 reads three extents, and {data} shows fewer in patches of {smallest} pixels; "
                f"use a frame set, patches of {INPUT_SIZE << 2} pixels, or surround=1"
            )
    if not recipe.in_sequence_negatives and len(np.unique(data.sequences)) < 2:
        raise DoapError(
            f"{data}: has no negatives of other sequences; use more sequences, or set in_sequence_negatives=true"
        )
    return make_sampler(data, recipe)


def make_sampler(data: GroupedSet, recipe: Recipe) -> Sampler:
    """Return the sampler of a recipe.

    Raises:
        DoapError: If the recipe does not fit the set.
    """
    size, seed, views = recipe.batch_size, recipe.seed, recipe.views_per_group
    if data.is_jittered and views is None:
        raise DoapError("a frame set needs views_per_group; set it in the recipe, or by --set views_per_group=4")
    if recipe.sampling == "pools":
        if views is None:
            raise DoapError("sampling=pools needs views_per_group, for example views_per_group=4")
        groups = recipe.groups_per_sequence
        pools = max(1, size // (views * groups))
        if pools * groups == 1 or (pools == 1 and not recipe.in_sequence_negatives):
            what = "group" if groups == 1 else "sequence, whose patches ignore each other"
            raise DoapError(
                f"a batch holds one {what}, so no query has a negative; raise batch_size to {2 * views * groups}"
            )
        if recipe.source_weights is None:
            return PoolSampler(data, pools, groups, seed, views)
        if not isinstance(data, FrameSet):
            raise DoapError("source_weights needs a frame set; a patch set does not record sources")
        return SourceSampler(data, pools, groups, seed, views, recipe.source_weights)
    if recipe.sampling == "every-group-first":
        return EveryGroupFirstSampler(data, size, seed, views)
    if recipe.sampling == "sequence-pairs":
        return SequencePairSampler(data, size, seed, views)
    return GroupSampler(data, size, seed, views)


def _combine_seeds(*numbers: int) -> int:
    """Return one seed for several numbers; two batches share one with probability 2⁻⁶³."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
