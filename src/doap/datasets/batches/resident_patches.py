"""A patch set's pixels on the device, so that a batch costs a gather and nothing crosses the bus."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet

CHUNK = 8192
CPU_LIMIT = 2 << 30


class PatchSource(Protocol):
    """Patches by index on a device: of a patch set, or cut afresh from a frame set."""

    def draw(self, indices: Ids, random: torch.Generator, zooms: Tensor | None = None, jitter: float = 1.0) -> Tensor:
        """(M, S, S) uint8 on the device.

        `random` decides what is drawn afresh, `zooms` how much closer it is seen, `jitter` how much it is moved.
        """


class ResidentPatches:
    """Patches of a set by index, on a device.

    Sets that are too large stay memory-mapped, and each batch is copied, on a GPU through pinned memory.

    Args:
        patches: the set.
        device: where the patches are wanted.
        size: side to resize them to, by averaging over areas; their own by default.
        limit: keep the set on the device if its pixels, resized, take at most so many bytes. By default half
            of what is free on a GPU, and 2 GiB on a CPU.
        progress: called with how many more patches are loaded.
    """

    def __init__(
        self,
        patches: PatchSet,
        device: str | torch.device = "cpu",
        size: int | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self.device = torch.device(device)
        self.size = size or patches.size
        self._patches = patches
        weights = None if self.size == patches.size else area_weights(patches.size, self.size)
        self._weights = None if weights is None else weights.to(self.device)
        needed = len(patches) * self.size**2
        self._pixels: Tensor | None = None
        if needed <= (default_limit(self.device) if limit is None else limit):
            self._pixels = torch.empty(len(patches), self.size, self.size, dtype=torch.uint8, device=self.device)
            for start in range(0, len(patches), CHUNK):
                indices = np.arange(start, min(start + CHUNK, len(patches)))
                self._pixels[start : start + CHUNK] = self._load(indices)
                progress(len(indices))

    @property
    def resident(self) -> bool:
        """Whether all pixels are on the device."""
        return self._pixels is not None

    def draw(
        self,
        indices: Ids,
        random: torch.Generator | None = None,  # noqa: ARG002 (see `PatchSource`: nothing is drawn afresh)
        zooms: Tensor | None = None,  # noqa: ARG002
        jitter: float = 1.0,  # noqa: ARG002
    ) -> Tensor:
        """The patches at `indices`, in that order: (M, S, S) uint8 on the device."""
        if self._pixels is None:
            return self._load(indices)
        return self._pixels[send(indices, self.device)]

    def _load(self, indices: Ids) -> Tensor:
        taken = send(self._patches.take(indices), self.device)
        if self._weights is None:
            return taken
        return (self._weights @ taken.float() @ self._weights.T).round().to(torch.uint8)


def send(array: NDArray[Any], device: torch.device) -> Tensor:
    """An array on a device; to a GPU through pinned memory, so that neither waits for the other."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def area_weights(size: int, smaller: int) -> Tensor:
    """(smaller, size) weights that average over areas: row i is how much of each pixel lies in the i-th of the new.

    Each row sums to 1. Applied to rows and columns, every pixel of the larger patch counts as much as its area.
    """
    edges = torch.arange(smaller + 1, dtype=torch.float64) * size / smaller
    pixels = torch.arange(size, dtype=torch.float64)
    covered = torch.minimum(edges[1:, None], pixels + 1) - torch.maximum(edges[:-1, None], pixels)
    return (covered.clamp(min=0) * smaller / size).float()


def default_limit(device: torch.device) -> int:
    """How many bytes of pixels to keep on a device."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else CPU_LIMIT
