"""Photos of a frame set kept on the device: batches are extracted there, with new geometric and photometric jitter."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Self

import numpy as np
import torch
from torch import Tensor

from doap.datasets.batches.resident_patches import to_device
from doap.datasets.build.cutting import PATCH_SIZE
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.groups import Ids
from doap.images.atlas import Atlas
from doap.images.extraction import to_bytes
from doap.images.jitter.compression import compress_some
from doap.images.jitter.views import (
    UNCHANGED,
    JitterFactors,
    jitter_frames,
    jitter_light,
    mixed_levels,
    sample_tilts,
)
from doap.types import Grey, Progress, no_progress

# Highest jitter level by source. Single photos show one appearance of a point and are jittered up to "tough". Tracks
# vary naturally. Static views are aligned to the pixel and mainly teach changes of light.
MAX_LEVEL = {"views": 3, "static": 1, "tracks": 2}

DECODE_BLOCK = 64  # photos decoded in parallel before they enter the atlas; bounds the memory


class ResidentFrames:
    """Patches of a frame set by index, extracted on a device. The photos take about 4/3 byte per pixel there.

    Args:
        frames: The set.
        device: Device of the photos and of the extraction.
        size: Side of the patches.
        progress: Callback, called as progress(done, total) after each decoded photo.
        extent: Half the side of a patch in units of its frame's scale; by default that of the set.
    """

    def __init__(
        self,
        frames: FrameSet,
        device: str | torch.device = "cpu",
        size: int = PATCH_SIZE,
        progress: Progress = no_progress,
        extent: float | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.size = size
        self._extent = frames.extent if extent is None else extent
        used, photos = np.unique(frames.photos, return_inverse=True)
        self._atlas = Atlas(decode_photos(frames, used, progress), device)
        self._frames = torch.from_numpy(frames.frames).to(device)
        self._photos = torch.from_numpy(photos.ravel()).to(device)
        max_levels = np.array([MAX_LEVEL[source] for source in SOURCES])[frames.sources]
        self._level_counts = torch.from_numpy(max_levels + 1).to(device)

    def with_patches(self, size: int, extent: float) -> Self:
        """Return a view of the same frames and photos with patches of another size and extent."""
        view = copy(self)
        view.size, view._extent = size, extent
        return view

    def take(
        self, indices: Ids, random: torch.Generator, zooms: Tensor | None = None, jitter: JitterFactors = UNCHANGED
    ) -> Tensor:
        """Extract the frames at `indices`, each at a jitter level sampled from 0 to the highest of its source.

        Args:
            indices: (M,) frame indices; a repeated index gives different views.
            random: Generator on the device; determines the views.
            zooms: (M,) octaves by which each patch is magnified: with z, the patch shows the central 2^-z of the
                side, in full resolution. No zoom by default.
            jitter: Factors of the jitter.

        Returns:
            (M, size, size) uint8 on the device.
        """
        items = to_device(indices, self.device)
        uniform = torch.rand(len(items), generator=random, device=self.device)
        return self._extract(items, (uniform * self._level_counts[items]).long(), random, zooms, jitter)

    def take_undisturbed(self, indices: Ids) -> Tensor:
        """Extract the frames at `indices` without jitter: (M, size, size) uint8 on the device."""
        items = to_device(indices, self.device)
        return self._extract(items, torch.zeros_like(items), torch.Generator(self.device))

    def _extract(
        self,
        items: Tensor,
        levels: Tensor,
        random: torch.Generator,
        zooms: Tensor | None = None,
        jitter: JitterFactors = UNCHANGED,
    ) -> Tensor:
        strength = mixed_levels(levels, jitter)
        jittered = jitter_frames(self._frames[items], strength, random)
        visible = torch.ones(len(items), device=self.device) if zooms is None else torch.exp2(-zooms)
        tilts = sample_tilts(len(items), strength, random)
        values = self._atlas.cut(jittered, tilts, visible, self.size, self._extent, self._photos[items])
        values = jitter_light(values, strength, random, jitter.blur_radius)
        if jitter.compression:
            shapes = self._extent * visible[:, None, None] * jittered[:, :, :2]
            values = compress_some(values, shapes, jitter.compression, random)
        return to_bytes(values)


def decode_photos(frames: FrameSet, photos: Ids, progress: Progress) -> Iterator[Grey]:
    """Decode photos with a thread pool, block by block."""
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(photos), DECODE_BLOCK):
            block = pool.map(frames.read_photo, photos[start : start + DECODE_BLOCK].tolist())
            for done, photo in enumerate(block, start + 1):
                yield photo
                progress(done, len(photos))
