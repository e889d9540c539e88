"""Sets loaded on a device, and their validation splits, shared by several trainings."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from doap.datasets.batches.resident_frames import ResidentFrames
from doap.datasets.batches.resident_patches import PatchSource, ResidentPatches, to_device
from doap.datasets.build.splitting import TRAIN, VAL, split_scenes
from doap.datasets.label_mining.mining import HOG_SIZE
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.training.recipes.recipe import Recipe
from doap.types import Progress, no_progress

Data = PatchSet | FrameSet

MAX_LOADED = 4  # sets on the device: those of two trainings and their validations
MAX_SPLITS = 2


@dataclass(frozen=True)
class _LoadedSet:
    data: Data
    device: torch.device
    size: int
    patches: PatchSource

    def matches(self, data: Data, device: torch.device, size: int) -> bool:
        # The photos of a frame set serve patches of any size and extent; a patch set is stored resized.
        return self.data is data and self.device == device and (self.size == size or isinstance(data, FrameSet))


class DataCache:
    """Cache of the most recently loaded sets and splits, by the identity of the set."""

    def __init__(self) -> None:
        self._loaded: list[_LoadedSet] = []
        self._splits: list[tuple[Data, float, int, tuple[Data, Data]]] = []

    def load(
        self,
        data: Data,
        device: str | torch.device,
        size: int,
        progress: Progress = no_progress,
        extent: float | None = None,
    ) -> PatchSource:
        """Return the patches of a set on a device.

        Args:
            data: The set.
            device: Device of the patches.
            size: Side of the patches.
            progress: Callback while the set is loaded, called as progress(done, total).
            extent: Extent of the patches of a frame set; by default that of the set.
        """
        extent = data.extent if extent is None else extent
        target = torch.device(device)
        for loaded in self._loaded:
            if loaded.matches(data, target, size):
                self._loaded.remove(loaded)
                self._loaded.append(loaded)
                patches = loaded.patches
                return patches.with_patches(size, extent) if isinstance(patches, ResidentFrames) else patches
        del self._loaded[: max(0, len(self._loaded) - MAX_LOADED + 1)]  # frees memory before the next is loaded
        if isinstance(data, FrameSet):
            patches = ResidentFrames(data, target, size, progress, extent)
        else:
            patches = ResidentPatches(data, target, size, progress=progress)
        self._loaded.append(_LoadedSet(data, target, size, patches))
        return patches

    def load_plain(self, data: Data, device: torch.device) -> Callable[[Ids], Tensor]:
        """Return a function that gives patches by index as label mining needs them: on the device, without jitter."""
        if isinstance(data, PatchSet):
            return lambda indices: to_device(data.take(indices), device)
        patches = self.load(data, device, HOG_SIZE)
        assert isinstance(patches, ResidentFrames)
        return patches.take_undisturbed

    def split(self, data: Data, recipe: Recipe) -> tuple[Data, Data]:
        """Return the training and the validation part of a set, as `split_val`."""
        for cached, fraction, seed, parts in self._splits:
            if cached is data and (fraction, seed) == (recipe.val_fraction, recipe.seed):
                return parts
        parts = split_val(data, recipe)
        self._splits = [*self._splits[1 - MAX_SPLITS :], (data, recipe.val_fraction, recipe.seed, parts)]
        return parts


def split_val(data: Data, recipe: Recipe) -> tuple[Data, Data]:
    """Split a set by scene into a training and a validation part.

    Args:
        data: The set.
        recipe: Recipe with the fraction of validation scenes and the seed, as for `split_scenes`.

    Raises:
        DoapError: If no source has two scenes.
    """
    try:
        parts = split_scenes(data, recipe.val_fraction, recipe.seed)
    except DoapError as error:
        raise DoapError(
            f"val_fraction={recipe.val_fraction}: {error}, or train on all of it with --set val_fraction=0"
        ) from None
    return parts[TRAIN].data, parts[VAL].data
