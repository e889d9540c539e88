"""Cutting patches out of a picture at frames, from an image pyramid, without aliasing.

A patch pixel covers an area of the picture. Reading one value there (bilinear sampling) aliases as soon
as that area is larger than a pixel. Here each level of the pyramid is half the one before, low-passed by
the binomial filter [1 3 3 1] / 8, and a patch is read from the level where its pixels are 1 to 2 level
pixels apart, as the mean of 2x2 samples each. Plain torch: the same on every device.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from doap.types import Frames, Grey

SUPERSAMPLING = 2
FRAMES_AT_ONCE = 2048


class Pyramid:
    """A picture and its halvings, float32 tensors (1, 1, H, W) in 0..255.

    Args:
        image: (H, W) uint8.
        device: where to keep it and to cut.
    """

    def __init__(self, image: Grey, device: str | torch.device = "cpu") -> None:
        level = torch.tensor(image, dtype=torch.float32, device=device)[None, None]
        self.levels = [level]
        while min(level.shape[2:]) >= 16:
            level = _halve(level)
            self.levels.append(level)

    def sample(self, points: Tensor, spacing: Tensor) -> Tensor:
        """Read the picture at points, borders replicated.

        Args:
            points: (N, h, w, 2) float, (x, y) in pixels of the picture.
            spacing: (N,) distance in picture pixels between patch pixels: decides the level.

        Returns:
            (N, h, w) float32 in 0..255.
        """
        level_of = spacing.log2().floor().clamp(0, len(self.levels) - 1).long()
        values = points.new_empty(points.shape[:3])
        for number in sorted(set(level_of.tolist())):
            chosen = level_of == number
            # Pixel centres: x of the picture lies at (x + 0.5) / 2^l - 0.5 of level l.
            values[chosen] = _bilinear(self.levels[number], (points[chosen] + 0.5) / 2**number - 0.5)
        return values


def extract_patches(
    image: Grey | Pyramid, frames: Frames, size: int, extent: float, device: str | torch.device = "cpu"
) -> NDArray[np.uint8]:
    """Cut the patch of every frame.

    Args:
        image: the picture, or its pyramid when there are several calls for one picture.
        frames: (N, 2, 3).
        size: side of the patches in pixels.
        extent: half the side of the patch in units of the frame's scale.

    Returns:
        (N, size, size) uint8; what lies outside the picture repeats its border.
    """
    pyramid = image if isinstance(image, Pyramid) else Pyramid(image, device)
    target = pyramid.levels[0].device
    patches = np.empty((len(frames), size, size), np.uint8)
    for start in range(0, len(frames), FRAMES_AT_ONCE):
        chunk = torch.from_numpy(frames[start : start + FRAMES_AT_ONCE]).to(target)
        values = average_samples(pyramid.sample(*affine_points(chunk, size, extent)))
        patches[start : start + FRAMES_AT_ONCE] = to_bytes(values).cpu().numpy()
    return patches


def affine_points(frames: Tensor, size: int, extent: float) -> tuple[Tensor, Tensor]:
    """Where to read the picture for (N, 2, 3) frames: (N, s, s, 2) points and (N,) pixel spacings."""
    return place_points(patch_grid(size, frames.device), frames, extent), pixel_spacing(frames, size, extent)


def place_points(unit: Tensor, frames: Tensor, extent: float) -> Tensor:
    """Where points of a patch, (s, s, 2) or (N, s, s, 2) in its own coordinates, lie in the picture: (N, s, s, 2)."""
    # One matrix product a frame: thousands of points by 3x2, which is far faster than as many products by 2x2.
    points = F.pad(extent * unit, (0, 1), value=1.0).flatten(-3, -2)
    return (points @ frames.transpose(1, 2)).view(len(frames), *unit.shape[-3:])


def pixel_spacing(frames: Tensor, size: int, extent: float) -> Tensor:
    """Distance between patch pixels in the picture along the frame's longer axis, (N,)."""
    return 2 * extent * axis_lengths(frames[:, :, :2])[0] / size


def axis_lengths(shapes: Tensor) -> tuple[Tensor, Tensor]:
    """The singular values of (N, 2, 2), larger and smaller, each (N,); torch's decomposition makes a GPU wait."""
    (a, b), (c, d) = (row.unbind(1) for row in shapes.unbind(1))
    sum_, difference = torch.hypot(a + d, b - c), torch.hypot(a - d, b + c)
    return (sum_ + difference) / 2, (sum_ - difference).abs() / 2


def patch_grid(size: int, device: torch.device) -> Tensor:
    """Sample positions of a patch in its own coordinates, [-1, 1] across: (s, s, 2), s = 2 size."""
    fine = SUPERSAMPLING * size
    steps = (2 * torch.arange(fine, device=device, dtype=torch.float32) + 1) / fine - 1
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([x, y], -1)


def average_samples(samples: Tensor) -> Tensor:
    """(N, 2 size, 2 size) samples to (N, size, size) pixels."""
    return F.avg_pool2d(samples[:, None], SUPERSAMPLING)[:, 0]


def to_bytes(values: Tensor) -> Tensor:
    """Round grey values to uint8."""
    return values.round().clamp(0, 255).to(torch.uint8)


def _halve(level: Tensor) -> Tensor:
    """Low-pass by [1 3 3 1] / 8 both ways and keep every second pixel; an odd border is repeated."""
    height, width = level.shape[2:]
    padded = F.pad(level, (1, 1 + width % 2, 1, 1 + height % 2), mode="replicate")
    taps = level.new_tensor([1, 3, 3, 1]) / 8
    rows = F.conv2d(padded, taps.view(1, 1, 4, 1), stride=(2, 1))
    return F.conv2d(rows, taps.view(1, 1, 1, 4), stride=(1, 2))


def _bilinear(level: Tensor, points: Tensor) -> Tensor:
    """Read (1, 1, H, W) at (N, h, w, 2) pixel positions, clamped to the border, which works on every device."""
    height, width = level.shape[2:]
    limits = points.new_tensor([width - 1, height - 1])
    inside = torch.minimum(points.clamp(min=0), limits)
    normalised = inside / limits.clamp(min=1) * 2 - 1
    samples = F.grid_sample(level, normalised.flatten(0, 1)[None], mode="bilinear", align_corners=True)
    return samples.view(points.shape[:3])
