"""A frame set on the device: batches are cut there from the photos, with fresh jitter and light every time."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Self

import numpy as np
import torch
from torch import Tensor

from doap.datasets.batches.resident_patches import send
from doap.datasets.build.cutting import SIZE
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.groups import Ids
from doap.images.atlas import Atlas
from doap.images.extraction import average_samples, pixel_spacing, to_bytes
from doap.images.jitter import disturb_light, jitter_frames, mixed_levels, tilted_grid
from doap.types import Grey

# How strongly patches are disturbed at most, by source: up to tough views where the photo shows one look of a point;
# less where photos differ by themselves, least where they are aligned to the pixel and light alone is to be learned.
STRONGEST = {"views": 3, "static": 1, "tracks": 2}

# Photos that are decoded at once and wait to be put into the atlas: memory stays bounded.
AHEAD = 64


class ResidentFrames:
    """Patches of a frame set by index, cut on a device; the photos take about 4/3 byte a pixel there.

    Args:
        frames: the set.
        device: where to keep the photos and to cut.
        size: side of the patches.
        progress: called after each photo that is decoded.
    """

    def __init__(
        self,
        frames: FrameSet,
        device: str | torch.device = "cpu",
        size: int = SIZE,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.device = torch.device(device)
        self.size = size
        self._extent = frames.extent
        used, photos = np.unique(frames.photos, return_inverse=True)
        self._atlas = Atlas(_decoded(frames, used, progress), device)
        self._frames = torch.from_numpy(frames.frames).to(device)
        self._photos = torch.from_numpy(photos.ravel()).to(device)
        strongest = np.array([STRONGEST[source] for source in SOURCES])[frames.sources]
        self._levels = torch.from_numpy(strongest + 1).to(device)

    def sized(self, size: int) -> Self:
        """The same frames and photos, to be cut with another side."""
        other = copy(self)
        other.size = size
        return other

    def draw(self, indices: Ids, random: torch.Generator, zooms: Tensor | None = None, jitter: float = 1.0) -> Tensor:
        """Cut the frames at `indices`, each disturbed at a level drawn from none to its strongest.

        Args:
            indices: (M,) places in the frame set; one that comes twice gives two different views.
            random: on the device; fixes the views.
            zooms: (M,) octaves by which each is seen closer: by z, a patch is the centre of the plain one, 2^-z of its
                side, in full resolution. None by default.
            jitter: factor of what disturbs the geometry.

        Returns:
            (M, size, size) uint8 on the device.
        """
        chosen = send(indices, self.device)
        chance = torch.rand(len(chosen), generator=random, device=self.device)
        return self._views(chosen, (chance * self._levels[chosen]).long(), random, zooms, jitter)

    def plain(self, indices: Ids) -> Tensor:
        """Cut the frames at `indices` undisturbed: (M, size, size) uint8 on the device."""
        chosen = send(indices, self.device)
        return self._views(chosen, torch.zeros_like(chosen), torch.Generator(self.device))

    def _views(
        self, chosen: Tensor, levels: Tensor, random: torch.Generator, zooms: Tensor | None = None, jitter: float = 1.0
    ) -> Tensor:
        strength = mixed_levels(levels, jitter)
        jittered = jitter_frames(self._frames[chosen], strength, random)
        shown = 1.0 if zooms is None else torch.exp2(-zooms)
        grid = tilted_grid(jittered, strength, self.size, random, shown)
        spacing = pixel_spacing(jittered, self.size, self._extent) * shown
        values = average_samples(self._atlas.cut(jittered, grid, self._extent, spacing, self._photos[chosen]))
        return to_bytes(disturb_light(values, strength, random))


def _decoded(frames: FrameSet, numbers: Ids, progress: Callable[[], None]) -> Iterator[Grey]:
    """The photos, decoded by all cores, a few dozen ahead."""
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(numbers), AHEAD):
            for photo in pool.map(frames.picture, numbers[start : start + AHEAD].tolist()):
                yield photo
                progress()
