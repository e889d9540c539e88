"""Pixels of a patch set kept on the device, so that a batch is a gather without a copy over the bus."""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.images.jitter.views import UNCHANGED, JitterFactors
from doap.types import Progress, no_progress

CHUNK_SIZE = 8192  # patches loaded per step
CPU_LIMIT = 2 << 30  # bytes


class PatchSource(Protocol):
    """Patches on a device by index: those of a patch set, or views of a frame set."""

    def take(
        self, indices: Ids, random: torch.Generator, zooms: Tensor | None = None, jitter: JitterFactors = UNCHANGED
    ) -> Tensor:
        """Return the patches at `indices`, (M, S, S) uint8 on the device.

        Args:
            indices: (M,) item indices.
            random: Generator on the device; determines the views of a frame set.
            zooms: (M,) octaves by which each patch is magnified; frame sets only.
            jitter: Factors of the jitter; frame sets only.
        """


class ResidentPatches:
    """Patches of a patch set on a device, by index.

    Sets larger than the limit stay memory-mapped; their batches are copied, to a GPU through pinned memory.

    Args:
        patches: The set.
        device: Device of the patches.
        size: Side to resize them to by area averaging; their own by default.
        limit: Keep the set on the device if its resized pixels take at most this many bytes. By default half of
            the free memory of a GPU, and 2 GiB on the CPU.
        progress: Callback, called as progress(done, total) while patches are loaded.
    """

    def __init__(
        self,
        patches: PatchSet,
        device: str | torch.device = "cpu",
        size: int | None = None,
        limit: int | None = None,
        progress: Progress = no_progress,
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
            for start in range(0, len(patches), CHUNK_SIZE):
                end = min(start + CHUNK_SIZE, len(patches))
                self._pixels[start:end] = self._load(np.arange(start, end))
                progress(end, len(patches))

    def take(
        self,
        indices: Ids,
        random: torch.Generator | None = None,  # noqa: ARG002 (see `PatchSource`: nothing is random here)
        zooms: Tensor | None = None,  # noqa: ARG002
        jitter: JitterFactors = UNCHANGED,  # noqa: ARG002
    ) -> Tensor:
        """Return the patches at `indices`, in that order: (M, S, S) uint8 on the device."""
        if self._pixels is None:
            return self._load(indices)
        return self._pixels[to_device(indices, self.device)]

    def _load(self, indices: Ids) -> Tensor:
        pixels = to_device(self._patches.take(indices), self.device)
        if self._weights is None:
            return pixels
        return (self._weights @ pixels.float() @ self._weights.T).round().to(torch.uint8)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to a device; to a GPU asynchronously, through pinned memory."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def area_weights(size: int, smaller: int) -> Tensor:
    """Return (smaller, size) weights of area averaging: entry (i, j) is the fraction of new pixel i covered by j.

    Each row sums to 1. Apply them to rows and columns to resize a patch.
    """
    edges = torch.arange(smaller + 1, dtype=torch.float64) * size / smaller
    pixels = torch.arange(size, dtype=torch.float64)
    covered = torch.minimum(edges[1:, None], pixels + 1) - torch.maximum(edges[:-1, None], pixels)
    return (covered.clamp(min=0) * smaller / size).float()


def default_limit(device: torch.device) -> int:
    """Return the maximum number of bytes of pixels to keep on a device."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else CPU_LIMIT
