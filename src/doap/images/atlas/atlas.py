"""Pyramids of many images in device memory, to sample the patches of a batch in one call.

`extraction.Pyramid` holds one image, but the patches of a batch come from hundreds. Here the levels of all images are
stored one after another in one uint8 tensor, and the address of every sample is computed from its image and level.
Patches are cut by torch operations, or by a Triton kernel on NVIDIA GPUs where no gradient is needed. They equal those
of `extract_patches` up to one grey level, because levels are rounded to bytes.
"""

from collections.abc import Iterable
from importlib import import_module

import torch
import torch.nn.functional as F
from torch import Tensor

from doap.devices import uses_triton
from doap.images.extraction import Pyramid, average_samples, pixel_spacing, to_bytes
from doap.images.jitter.views import MAX_TILT, tilted_grid
from doap.types import Grey

CHUNK_PIXELS = 2**18  # of patches that are cut at once by torch operations, in the caches of a CPU
LAST_POSITION = 1e-3  # before the last pixel: an error of a thousandth of the difference of two pixels


class Atlas:
    """Pyramids of images as bytes: about 4/3 bytes per pixel.

    Args:
        images: (H, W) uint8 each.
        device: Device of the pyramids and of sampling.
    """

    def __init__(self, images: Iterable[Grey], device: str | torch.device = "cpu") -> None:
        pixels: list[Tensor] = []
        shapes: list[list[tuple[int, int]]] = []
        for image in images:
            levels = [_at_least_two(level) for level in Pyramid(image, device).levels]
            pixels += [to_bytes(level).flatten() for level in levels]
            shapes.append([(level.shape[2], level.shape[3]) for level in levels])
        depth = max(map(len, shapes))
        # Tables are padded to the deepest pyramid by repeating the last level, which is never sampled there.
        table = torch.tensor([[*levels, *[levels[-1]] * (depth - len(levels))] for levels in shapes])
        sizes = torch.tensor([h * w for levels in shapes for h, w in levels])
        starts = torch.split(sizes.cumsum(0) - sizes, [len(levels) for levels in shapes])
        self._pixels = torch.cat(pixels)
        self._start = torch.stack([torch.cat([s, s[-1:].expand(depth - len(s))]) for s in starts]).to(device)
        self._height, self._width = (table[:, :, axis].contiguous().to(device) for axis in (0, 1))
        self._last = torch.tensor([len(levels) - 1 for levels in shapes], device=device)

    def __len__(self) -> int:
        return len(self._last)

    def sample(
        self, frames: Tensor, grid: tuple[Tensor, Tensor], extent: float, spacing: Tensor, images: Tensor
    ) -> Tensor:
        """Sample images at the patch grids of frames; the border is replicated.

        Args:
            frames: (N, 2, 3).
            grid: Horizontal and vertical positions in the patch, in [-1, 1]: two (N, h, w) or (h, w) tensors.
            extent: Half the side of the patch in units of the frame's scale.
            spacing: (N,) distance between patch pixels in image pixels, which selects the level.
            images: (N,) index of the image of each patch.

        Returns:
            (N, h, w) in 0..255, of the type of the frames, which gradients reach.
        """
        level = self._levels(spacing, images)
        width, height = (_per_patch(side[images, level]) for side in (self._width, self._height))
        affine = _to_level(frames, level, extent)
        x, y = (_position(affine[:, axis], grid, side) for axis, side in ((0, width), (1, height)))
        corner = y.long().mul_(width).add_(x.long()).add_(_per_patch(self._start[images, level]))
        x, y = x.frac_(), y.frac_()
        upper = self._interpolate(corner, x)
        lower = self._interpolate(corner.add_(width), x)
        return upper.lerp_(lower, y)

    def cut(self, frames: Tensor, tilts: Tensor, visible: Tensor, size: int, extent: float, images: Tensor) -> Tensor:
        """Cut patches of tilted planes; the border is replicated.

        Args:
            frames: (N, 2, 3) float32.
            tilts: (N, 2) tilts of the planes, see `tilted_grid`.
            visible: (N,) share of the patch's side that is sampled around its centre.
            size: Side of the patches.
            extent: Half the side of the patch in units of the frame's scale.
            images: (N,) index of the image of each patch.

        Returns:
            (N, size, size) in 0..255, without gradients.
        """
        spacing = pixel_spacing(frames, size, extent) * visible
        if not uses_triton(frames):
            count = max(1, CHUNK_PIXELS // size**2)
            chunks = zip(
                *(torch.split(values, count) for values in (frames, tilts, visible, spacing, images)), strict=True
            )
            grids = ((f, tilted_grid(t, size, v), extent, s, i) for f, t, v, s, i in chunks)
            return torch.cat([average_samples(self.sample(*arguments)) for arguments in grids])
        level = self._levels(spacing, images)
        sides = self._width[images, level], self._height[images, level]
        patches: Tensor = import_module("doap.images.atlas.triton_cutting").cut(
            self._pixels, self._start[images, level], sides, _to_level(frames, level, extent), tilts, visible,
            size, MAX_TILT, LAST_POSITION,
        )  # fmt: skip
        return patches

    def _levels(self, spacing: Tensor, images: Tensor) -> Tensor:
        """Return the level, (N,), for (N,) distances between patch pixels in image pixels."""
        return torch.minimum(spacing.log2().floor().clamp(min=0).long(), self._last[images])

    def _interpolate(self, corner: Tensor, weight: Tensor) -> Tensor:
        """Interpolate between the pixel at `corner` and the one to its right."""
        left, right = (pixels[corner].to(weight.dtype) for pixels in (self._pixels, self._pixels[1:]))
        return left.lerp_(right, weight)


def _to_level(frames: Tensor, level: Tensor, extent: float) -> Tensor:
    """Return the maps, (N, 2, 3), from patch coordinates, [-1, 1]², to pixels of the level of each frame."""
    # Pixel centres: x of the image lies at (x + 0.5) / 2^l - 0.5 of level l.
    shrink = torch.exp2(-level.to(frames.dtype))[:, None, None]
    return torch.cat([extent * shrink * frames[:, :, :2], (frames[:, :, 2:] + 0.5) * shrink - 0.5], 2)


def _position(row: Tensor, grid: tuple[Tensor, Tensor], size: Tensor) -> Tensor:
    """Return the positions of the grid along one axis of the level, (N, h, w), clamped to have a next pixel.

    Args:
        row: (N, 3) of the maps from patch coordinates to the level.
        grid: Horizontal and vertical positions in the patch.
        size: (N, 1, 1) side of the level.
    """
    across, down = grid
    position = torch.addcmul(_per_patch(row[:, 2]), _per_patch(row[:, 0]), across)
    position = torch.addcmul(position, _per_patch(row[:, 1]), down)
    return torch.clamp(position, torch.zeros_like(size, dtype=position.dtype), size - 1 - LAST_POSITION)


def _per_patch(values: Tensor) -> Tensor:
    """Reshape (N,) values to (N, 1, 1)."""
    return values[:, None, None]


def _at_least_two(level: Tensor) -> Tensor:
    """Pad a level to at least two rows and columns, so that every pixel has a next one."""
    height, width = level.shape[2:]
    return F.pad(level, (0, max(0, 2 - width), 0, max(0, 2 - height)), mode="replicate")
