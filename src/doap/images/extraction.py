"""Extraction of patches at frames from an image pyramid, without aliasing.

A patch pixel covers an area of the image. One bilinear sample aliases if this area is larger than an image pixel.
Therefore each level of the pyramid is low-passed by the binomial filter [1 3 3 1] / 8 and halved. A patch is sampled at
the level where its pixels are 1 to 2 level pixels apart, and each of its pixels is the mean of 2x2 samples. Only torch
operations are used: the result is the same on every device.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from doap.types import Frames, Grey

SUPERSAMPLING = 2
CHUNK_SIZE = 2048  # frames


class Pyramid:
    """An image at successively halved resolutions, (1, 1, H, W) float32 tensors in 0..255.

    Args:
        image: (H, W) uint8.
        device: Device of the levels and of sampling.
    """

    def __init__(self, image: Grey, device: str | torch.device = "cpu") -> None:
        level = torch.tensor(image, dtype=torch.float32, device=device)[None, None]
        self.levels = [level]
        while min(level.shape[2:]) >= 16:
            level = _halve(level)
            self.levels.append(level)

    def sample(self, points: Tensor, spacing: Tensor) -> Tensor:
        """Sample the image at points; the border is replicated.

        Args:
            points: (N, h, w, 2) float, (x, y) in image pixels.
            spacing: (N,) distance between patch pixels in image pixels, which selects the level.

        Returns:
            (N, h, w) float32 in 0..255.
        """
        levels = spacing.log2().floor().clamp(0, len(self.levels) - 1).long()
        values = points.new_empty(points.shape[:3])
        for level in sorted(set(levels.tolist())):
            mask = levels == level
            # Pixel centres: x of the image lies at (x + 0.5) / 2^l - 0.5 of level l.
            values[mask] = _bilinear(self.levels[level], (points[mask] + 0.5) / 2**level - 0.5)
        return values


def extract_patches(
    image: Grey | Pyramid, frames: Frames, size: int, extent: float, device: str | torch.device = "cpu"
) -> NDArray[np.uint8]:
    """Extract the patch of every frame.

    Args:
        image: The image, or its pyramid to share it between calls.
        frames: (N, 2, 3).
        size: Side of the patches in pixels.
        extent: Half the side of the patch in units of the frame's scale.
        device: Device of the extraction; ignored for a pyramid, which has its own.

    Returns:
        (N, size, size) uint8; the border of the image is replicated.
    """
    pyramid = image if isinstance(image, Pyramid) else Pyramid(image, device)
    target = pyramid.levels[0].device
    patches = np.empty((len(frames), size, size), np.uint8)
    for start in range(0, len(frames), CHUNK_SIZE):
        chunk = torch.from_numpy(frames[start : start + CHUNK_SIZE]).to(target)
        values = average_samples(pyramid.sample(*patch_points(chunk, size, extent)))
        patches[start : start + CHUNK_SIZE] = to_bytes(values).cpu().numpy()
    return patches


def are_patches_inside(frames: Frames, shape: tuple[int, ...], extent: float) -> NDArray[np.bool_]:
    """Return whether the whole patch of each frame is inside an image, (N,) bool.

    Args:
        frames: (N, 2, 3).
        shape: (height, width) of the image.
        extent: Half the side of the patch in units of the frame's scale.
    """
    half = extent * np.abs(frames[:, :, :2]).sum(2)
    low, high = frames[:, :, 2] - half, frames[:, :, 2] + half
    return np.asarray((low >= 0).all(1) & (high <= np.array(shape[::-1]) - 1).all(1))


def patch_points(frames: Tensor, size: int, extent: float) -> tuple[Tensor, Tensor]:
    """Return the sample points, (N, s, s, 2), and pixel spacings, (N,), of the patches of (N, 2, 3) frames."""
    return to_image_points(patch_grid(size, frames.device), frames, extent), pixel_spacing(frames, size, extent)


def to_image_points(unit: Tensor, frames: Tensor, extent: float) -> Tensor:
    """Map patch points, (s, s, 2) or (N, s, s, 2) in patch coordinates, to image points, (N, s, s, 2)."""
    # One product per frame, thousands of points by 3x2, is much faster than as many 2x2 products.
    points = F.pad(extent * unit, (0, 1), value=1.0).flatten(-3, -2)
    return (points @ frames.transpose(1, 2)).view(len(frames), *unit.shape[-3:])


def pixel_spacing(frames: Tensor, size: int, extent: float) -> Tensor:
    """Return the distance between patch pixels in image pixels along the frame's longer axis, (N,)."""
    return 2 * extent * axis_lengths(frames[:, :, :2])[0] / size


def axis_lengths(shapes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the larger and the smaller singular value of (N, 2, 2) matrices, (N,) each.

    In closed form, because torch's decomposition synchronises with the GPU.
    """
    (a, b), (c, d) = (row.unbind(1) for row in shapes.unbind(1))
    sum_, difference = torch.hypot(a + d, b - c), torch.hypot(a - d, b + c)
    return (sum_ + difference) / 2, (sum_ - difference).abs() / 2


def patch_grid(size: int, device: torch.device) -> Tensor:
    """Return the sample positions of a patch in its own coordinates, [-1, 1]², as (s, s, 2) with s = 2 size."""
    fine = SUPERSAMPLING * size
    steps = (2 * torch.arange(fine, device=device, dtype=torch.float32) + 1) / fine - 1
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([x, y], -1)


def average_samples(samples: Tensor) -> Tensor:
    """Average (N, 2 size, 2 size) samples to (N, size, size) pixels."""
    return F.avg_pool2d(samples[:, None], SUPERSAMPLING)[:, 0]


def to_bytes(values: Tensor) -> Tensor:
    """Round grey values to uint8."""
    return values.round().clamp(0, 255).to(torch.uint8)


def _halve(level: Tensor) -> Tensor:
    """Low-pass by [1 3 3 1] / 8 along both axes and keep every second pixel; an odd border is replicated."""
    height, width = level.shape[2:]
    padded = F.pad(level, (1, 1 + width % 2, 1, 1 + height % 2), mode="replicate")
    taps = level.new_tensor([1, 3, 3, 1]) / 8
    rows = F.conv2d(padded, taps.view(1, 1, 4, 1), stride=(2, 1))
    return F.conv2d(rows, taps.view(1, 1, 1, 4), stride=(1, 2))


def _bilinear(level: Tensor, points: Tensor) -> Tensor:
    """Sample (1, 1, H, W) at (N, h, w, 2) pixel positions, clamped here: not every device supports border padding."""
    height, width = level.shape[2:]
    limits = points.new_tensor([width - 1, height - 1])
    inside = torch.minimum(points.clamp(min=0), limits)
    normalised = inside / limits.clamp(min=1) * 2 - 1
    samples = F.grid_sample(level, normalised.flatten(0, 1)[None], mode="bilinear", align_corners=True)
    return samples.view(points.shape[:3])
