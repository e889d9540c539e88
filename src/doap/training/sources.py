"""Sets on a device: what several trainings draw from, one after the other, is loaded and split once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from doap.datasets.batches.resident_frames import ResidentFrames
from doap.datasets.batches.resident_patches import PatchSource, ResidentPatches
from doap.datasets.build.splitting import TRAIN, VAL, split_scenes
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.training.recipe import Recipe

Data = PatchSet | FrameSet

KEPT = 4  # sets on the device: what two trainings with their validation draw from


@dataclass(frozen=True)
class _Loaded:
    data: Data
    device: torch.device
    size: int
    source: PatchSource

    def holds(self, data: Data, device: torch.device, size: int) -> bool:
        # The photos of a frame set serve patches of any size; those of a patch set are kept resized.
        return self.data is data and self.device == device and (self.size == size or isinstance(data, FrameSet))


class Sources:
    """Loads sets and splits them, and remembers the last of both: the same object in gives the same object out."""

    def __init__(self) -> None:
        self._loaded: list[_Loaded] = []
        self._splits: list[tuple[Data, float, int, tuple[Data, Data]]] = []

    def load(
        self,
        data: Data,
        device: str | torch.device,
        size: int,
        progress: Callable[[float], None] = lambda _done: None,
    ) -> PatchSource:
        """The patches of a set on a device, `size` pixels wide; `progress` is told the share that is loaded."""
        place = torch.device(device)
        for known in self._loaded:
            if known.holds(data, place, size):
                self._loaded.remove(known)
                self._loaded.append(known)
                return known.source.sized(size) if isinstance(known.source, ResidentFrames) else known.source
        del self._loaded[: max(0, len(self._loaded) - KEPT + 1)]  # before the next needs the room
        source = _load(data, place, size, progress)
        self._loaded.append(_Loaded(data, place, size, source))
        return source

    def split(self, data: Data, recipe: Recipe) -> tuple[Data, Data]:
        """As `hold_out`."""
        for known, share, seed, parts in self._splits:
            if known is data and (share, seed) == (recipe.val_fraction, recipe.seed):
                return parts
        parts = hold_out(data, recipe)
        self._splits = [*self._splits[-1:], (data, recipe.val_fraction, recipe.seed, parts)]
        return parts


def hold_out(data: Data, recipe: Recipe) -> tuple[Data, Data]:
    """What to train on, and what to hold out: whole scenes, those that `split_scenes` sets aside by the recipe's seed.

    Raises:
        DoapError: if there are no two scenes of one source.
    """
    try:
        halves = split_scenes(data, recipe.val_fraction, recipe.seed)
    except DoapError as error:
        raise DoapError(f"val_fraction={recipe.val_fraction}: {error}, or set val_fraction=0") from None
    return halves[TRAIN].data, halves[VAL].data


def _load(data: Data, device: torch.device, size: int, progress: Callable[[float], None]) -> PatchSource:
    total = len(np.unique(data.photos)) if isinstance(data, FrameSet) else len(data)
    loaded = 0

    def more(count: int = 1) -> None:
        nonlocal loaded
        loaded += count
        progress(loaded / total)

    if isinstance(data, FrameSet):
        return ResidentFrames(data, device, size, more)
    return ResidentPatches(data, device, size, progress=more)
