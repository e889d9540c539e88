"""What a recipe draws from a set: which patches, their pixels on the device, and which pairs to ignore."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from doap.errors import DoapError
from doap.objectives.lists import IgnoreTable
from doap.patches.augment import flip_and_turn
from doap.patches.frameset import FrameSet
from doap.patches.grouping import Grouping
from doap.patches.ignoring import OverlapTables
from doap.patches.patchset import PatchSet
from doap.patches.pool_sampling import PoolBatches, SequencePairs
from doap.patches.resident import PatchSource, ResidentPatches
from doap.patches.resident_frames import ResidentFrames
from doap.patches.sampling import EveryGroupFirst, GroupBatches, Sampler
from doap.training.recipe import Recipe


@dataclass(frozen=True)
class Batch:
    """A list and all its queries.

    Attributes:
        pixels: (M, S, S) uint8 on the device.
        groups: (M,) int64 on the CPU.
        ignore: groups that overlap in a photo, or None where the set knows of none.
    """

    pixels: Tensor
    groups: Tensor
    ignore: IgnoreTable | None


class Batches:
    """The batches of a training, each a pure function of the recipe's seed, the epoch and its number.

    Args:
        data: what to draw from.
        recipe: how.
        device: where the patches are wanted.
    """

    def __init__(self, data: PatchSet | FrameSet, recipe: Recipe, device: str) -> None:
        self._data = data
        self._recipe = recipe
        self._device = device
        self._sampler = make_sampler(data, recipe)
        self._source: PatchSource = (
            ResidentFrames(data, device) if isinstance(data, FrameSet) else ResidentPatches(data, device)
        )
        self._tables = OverlapTables(data, device) if len(data.overlaps) else None

    def count(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return self._sampler.count(epoch)

    def draw(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on."""
        for number, indices in enumerate(self._sampler.batches(epoch, start), start):
            random = torch.Generator(self._device).manual_seed(_seed(self._recipe.seed, epoch, number))
            groups = torch.from_numpy(self._data.groups[indices])
            pixels = self._source.draw(indices, random)
            if self._recipe.augment:
                pixels = flip_and_turn(pixels, groups, random)
            yield Batch(pixels, groups, self._tables.ignore(indices) if self._tables else None)


def make_sampler(data: Grouping, recipe: Recipe) -> Sampler:
    """The sampler that a recipe names."""
    size, seed, views = recipe.list_size, recipe.seed, recipe.views
    if data.fresh and views is None:
        raise DoapError("a frame set has no number of patches of its own: set views, for example views=4")
    if recipe.sampling == "pools":
        if views is None:
            raise DoapError("sampling=pools needs views, how many patches a group gives, for example views=4")
        return PoolBatches(data, max(1, size // (views * recipe.per_pool)), recipe.per_pool, seed, views)
    if recipe.sampling == "every-group-first":
        return EveryGroupFirst(data, size, seed, views)
    if recipe.sampling == "sequence-pairs":
        return SequencePairs(data, size, seed, views)
    return GroupBatches(data, size, seed, views)


def _seed(seed: int, epoch: int, number: int) -> int:
    """One number for three, different for any two batches but for a chance of 2⁻⁶³."""
    return int(np.random.SeedSequence((seed, epoch, number)).generate_state(1, np.uint64)[0] >> np.uint64(1))
