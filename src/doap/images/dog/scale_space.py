"""Gaussian scale space of a batch of images, as OpenCV's SIFT builds it."""

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from doap.devices import uses_triton

LAYERS = 3  # per octave, in which extrema are found
LEVELS = LAYERS + 3
SIGMA = 1.6  # of the first level of an octave, in its pixels
CAMERA_SIGMA = 0.5  # assumed blur of an image
BORDER = 5  # pixels at the border of an octave without extrema
TABLES = 256  # of image sizes that are kept


@dataclass(frozen=True)
class Stacks:
    """Planes of all octaves in one tensor, so that values of different octaves are gathered in one operation.

    Attributes:
        octaves: (B, P, h, w) per octave, views of `flat`.
        flat: All values.
        table: (octaves, 3) integers: start of an octave in `flat`, its height and its width.
    """

    octaves: list[Tensor]
    flat: Tensor
    table: Tensor

    @classmethod
    def empty(cls, shapes: list[tuple[int, int, int, int]], device: torch.device) -> "Stacks":
        """Return planes of these shapes, with undefined values."""
        sizes = [math.prod(shape) for shape in shapes]
        flat = torch.empty(sum(sizes), dtype=torch.float32, device=device)
        octaves = [part.view(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True)]
        return cls(octaves, flat, _table(tuple(shapes), device))

    def planes(self, octave: Tensor, image: Tensor, plane: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the address in `flat`, the height and the width of planes, (N,) each."""
        start, height, width = self.table[octave].unbind(1)
        count = self.octaves[0].shape[1] if self.octaves else 0
        return start + (image * count + plane) * height * width, height, width


def build_scale_space(images: Tensor) -> Stacks:
    """Blur images to the Gaussian levels of all octaves, the first one at twice the resolution.

    Pixel (x, y) of octave o lies at 2^(o - 1) (x, y) of the image.

    Args:
        images: (B, H, W) grey values 0..255.
    """
    count, height, width = images.shape
    space = Stacks.empty([(count, LEVELS, *side) for side in _sides(2 * height, 2 * width)], images.device)
    sigmas = [SIGMA * 2 ** (level / LAYERS) for level in range(LEVELS)]
    for octave, levels in enumerate(space.octaves):
        if octave == 0:
            _blur(_double(images.float()), math.sqrt(SIGMA**2 - 4 * CAMERA_SIGMA**2), levels[:, 0])
        else:
            levels[:, 0] = _subsample(space.octaves[octave - 1][:, LAYERS])
        for level, (before, after) in enumerate(pairwise(sigmas)):
            _blur(levels[:, level], math.sqrt(after**2 - before**2), levels[:, level + 1])
    return space


def _sides(height: int, width: int) -> list[tuple[int, int]]:
    """Return the sides of the octaves; those without pixels inside the border are left out."""
    sides = []
    for octave in range(round(math.log2(min(height, width)) - 2) + 1):
        if min(height, width) >> octave > 2 * BORDER:
            sides.append((height >> octave, width >> octave))
    return sides


def _double(images: Tensor) -> Tensor:
    """Double the resolution of (B, H, W) linearly, so that pixel x of the result lies at x / 2 of the image."""
    for axis in (1, 2):
        following = torch.cat([images.narrow(axis, 1, images.shape[axis] - 1), images.narrow(axis, -1, 1)], axis)
        images = torch.stack([images, (images + following) / 2], axis + 1).flatten(axis, axis + 1)
    return images


def _subsample(level: Tensor) -> Tensor:
    """Halve (B, h, w) by selecting pixels; the sides are rounded down, as OpenCV does."""
    for axis in (1, 2):
        side = level.shape[axis]
        half = side // 2
        if side % 2 == 0:
            level = level[:, ::2] if axis == 1 else level[:, :, ::2]
        else:
            level = level.index_select(axis, torch.arange(half, device=level.device) * side // half)
    return level


def _blur(level: Tensor, sigma: float, target: Tensor) -> None:
    """Blur (B, h, w) by a Gaussian of 8 sigmas width; the border is reflected without repeating the last pixel."""
    radius = (round(8 * sigma + 1) | 1) // 2
    taps = _gaussian(radius, sigma, level.device)
    if uses_triton(level):
        import_module("doap.images.dog.triton_dog").blur(level, taps, target)
        return
    if min(level.shape[1:]) > radius:
        padded = F.pad(level[:, None], (radius,) * 4, mode="reflect")
    else:
        rows, columns = (_reflected(side, radius, level.device) for side in level.shape[1:])
        padded = level[:, None, rows[:, None], columns]
    # TensorFloat-32 would round grey values to three digits.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        target[:] = F.conv2d(F.conv2d(padded, taps.view(1, 1, -1, 1)), taps.view(1, 1, 1, -1))[:, 0]


@lru_cache(TABLES)
def _table(shapes: tuple[tuple[int, int, int, int], ...], device: torch.device) -> Tensor:
    """Return the table of `Stacks`, cached: a transfer would synchronise with the GPU."""
    sizes = [math.prod(shape) for shape in shapes]
    rows = [[sum(sizes[:octave]), *shape[2:]] for octave, shape in enumerate(shapes)]
    return torch.tensor(rows, dtype=torch.int64).view(-1, 3).to(device)


@cache
def _gaussian(radius: int, sigma: float, device: torch.device) -> Tensor:
    """Return the taps of a Gaussian, cached per device: a transfer would synchronise with the GPU."""
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    taps = torch.exp(-(offsets**2) / (2 * sigma**2))
    return (taps / taps.sum()).float().to(device)


def _reflected(side: int, radius: int, device: torch.device) -> Tensor:
    """Return the pixel at each position -radius..side + radius - 1 of a line that is reflected at both ends."""
    position = torch.arange(-radius, side + radius, device=device)
    period = max(1, 2 * (side - 1))
    folded = position.remainder(period)
    return torch.minimum(folded, period - folded)
