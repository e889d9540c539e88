"""Batches of tilted views on a device."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from doap.datasets.batches.overlap_tables import OverlapTables
from doap.datasets.batches.pool_sampling import PoolSampler
from doap.datasets.batches.resident_frames import decode_photos
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.groups import Ids
from doap.datasets.tilted.tilted_set import TiltedSet
from doap.errors import DoapError
from doap.images.atlas import Atlas
from doap.images.correction.correcting import start_frames
from doap.images.extraction import Pyramid
from doap.networks.frames.frame_network import rotations
from doap.objectives.lists import IgnoreTable
from doap.training.frames.losses import inverse
from doap.training.frames.recipe import FrameRecipe
from doap.types import Grey, Progress, no_progress

VIEWS = 2  # of each point in a batch


@dataclass(frozen=True, eq=False)
class FrameBatch:
    """Detected frames of a batch; rows 2 i and 2 i + 1 show one point.

    Attributes:
        frames: (M, 2, 3).
        photos: (M,) photo of each frame.
        jacobians: (M, 2, 2) affine approximation of the map from the view to the photo.
        groups: (M,) on the CPU.
        ignore: Points that overlap.
    """

    frames: Tensor
    photos: Tensor
    jacobians: Tensor
    groups: Tensor
    ignore: IgnoreTable


class TiltedBatches:
    """Batches of a tilted set, whose views are kept on a device.

    Args:
        data: The set.
        recipe: Size and jitter of the batches.
        device: Device of the views.
        progress: Callback while the views are loaded, called as progress(done, total).

    Raises:
        DoapError: If the set has too few photos with enough points for a batch.
    """

    def __init__(
        self, data: TiltedSet, recipe: FrameRecipe, device: str | torch.device, progress: Progress = no_progress
    ) -> None:
        self._recipe, self._device = recipe, torch.device(device)
        frames = data.frames
        self._sampler = _make_sampler(frames, recipe)  # fails before the views are decoded
        used, photos = np.unique(frames.photos, return_inverse=True)
        self._starts = frames.frames.copy()
        self.atlas = Atlas(self._start_views(frames, used, progress), device)
        self._frames = torch.from_numpy(self._starts).to(device)
        self._photos = torch.from_numpy(photos.ravel()).to(device)
        self._jacobians = torch.from_numpy(data.jacobians()).to(device)
        self._groups = frames.groups
        self._tables = OverlapTables(frames, device)

    def _start_views(self, frames: FrameSet, used: Ids, progress: Progress) -> Iterator[Grey]:
        """Yield the decoded views; their frames become those that the network takes."""
        order = np.argsort(frames.photos, kind="stable")
        members = np.split(order, np.searchsorted(frames.photos[order], used[1:]))
        start = self._recipe.network.start
        for own, image in zip(members, decode_photos(frames, used, progress), strict=True):
            if start != "detected":
                self._starts[own] = start_frames(Pyramid(image, self._device), self._starts[own], start)
            yield image

    def batches(self) -> Iterator[FrameBatch]:
        """Iterate over batches without end, epoch after epoch."""
        random = torch.Generator(self._device).manual_seed(self._recipe.seed)
        epoch = 0
        while True:
            for indices in self._sampler.batches(epoch):
                items = torch.from_numpy(indices).to(self._device)
                groups = torch.from_numpy(self._groups[indices])
                jacobians = self._jacobians[items]
                frames = self._jitter(self._frames[items], random)
                if self._recipe.network.corrections == "shape":
                    frames = align_vertical(frames, jacobians, random)
                yield FrameBatch(frames, self._photos[items], jacobians, groups, self._tables.ignore_table(indices))
            epoch += 1

    def _jitter(self, frames: Tensor, random: torch.Generator) -> Tensor:
        noise = torch.randn(len(frames), 2, generator=random, device=frames.device)
        angle = torch.deg2rad(self._recipe.rotation_jitter * noise[:, 0])
        scale = torch.exp2(self._recipe.scale_jitter * noise[:, 1])
        jitter = scale[:, None, None] * rotations(torch.stack([angle.cos(), angle.sin()], 1))
        return torch.cat([frames[:, :, :2] @ jitter, frames[:, :, 2:]], 2)


def _make_sampler(frames: FrameSet, recipe: FrameRecipe) -> PoolSampler:
    """Return the sampler of the points of a batch, which takes the points of a photo together."""
    points = min(recipe.points_per_photo, recipe.batch_size // VIEWS)
    photos = max(1, recipe.batch_size // (VIEWS * points))
    usable = int((np.bincount(frames.group_sequences) >= points).sum())
    if usable < photos:
        raise DoapError(
            f"{usable} photos of the set have {points} points, but a batch takes {photos}; lower points_per_photo or "
            "batch_size"
        )
    return PoolSampler(frames, photos, points, recipe.seed, VIEWS)


def align_orientations(frames: Tensor, jacobians: Tensor) -> Tensor:
    """Rotate the frame of the second view of each point to the orientation of the first.

    Frames are oriented by a peak of the gradients after the correction, so that AP is that of frames of equal
    orientation; the rotation is a constant of the gradient.
    """
    shapes = (jacobians @ frames[:, :, :2]).detach()
    (a, b), (c, d) = (row.unbind(1) for row in (inverse(shapes[::VIEWS]) @ shapes[1::VIEWS]).unbind(1))
    back = rotations(torch.stack([a + d, b - c], 1))
    turned = torch.unflatten(frames[:, :, :2], 0, (-1, VIEWS))
    turned = torch.stack([turned[:, 0], turned[:, 1] @ back], 1).flatten(0, 1)
    return torch.cat([turned, frames[:, :, 2:]], 2)


def align_vertical(frames: Tensor, jacobians: Tensor, random: torch.Generator) -> Tensor:
    """Rotate frames so that the y axes of both views of a point show the same random direction of the photo.

    AffNet is trained with patches whose orientation is known; it keeps the y axis.
    """
    angle = 2 * torch.pi * torch.rand(len(frames) // VIEWS, generator=random, device=frames.device)
    direction = torch.stack([angle.cos(), angle.sin()], 1).repeat_interleave(VIEWS, 0)
    own = (inverse(jacobians @ frames[:, :, :2]) @ direction[:, :, None])[:, :, 0]
    # The rotation that maps (0, 1) to (x, y) has cosine y and sine -x.
    rotation = rotations(torch.stack([own[:, 1], -own[:, 0]], 1) / own.norm(dim=1, keepdim=True))
    return torch.cat([frames[:, :, :2] @ rotation, frames[:, :, 2:]], 2)
