"""JPEG compression of views: patches as they would be had their photos been compressed.

JPEG quantises the discrete cosine transform of blocks of 8x8 photo pixels. Patch pixels are not photo pixels: frames
have a scale, a shape and an orientation. Therefore a patch is resampled to the pixels and axes of the photo, these are
compressed, and the patch samples their errors. Sampling is linear, so the sum is the patch of the compressed photo. The
tilt of a view is neglected.

Patch pixels that are far apart in the photo average most of the errors. Such views are left as they are.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from doap.images.extraction import average_samples, axis_lengths
from doap.images.opencv_extraction import SUPERSAMPLING

BLOCK = 8  # pixels
MAX_SPACING = 1.5  # photo pixels per patch pixel
MIN_QUALITY, MAX_QUALITY = 10.0, 90.0

# Luminance table of the JPEG standard (ITU-T T.81, table K.1): the steps of libjpeg at quality 50.
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)


def compress_some(values: Tensor, shapes: Tensor, share: float, random: torch.Generator) -> Tensor:
    """Compress some views, each at a random quality from 10 to 90 and a random position of the blocks.

    Args:
        values: (N, S, S) grey values.
        shapes: (N, 2, 2), see `compress_views`.
        share: Share of the views, from 0 to 1. It is exact, so the other views take no time.
        random: Generator on the device of the views.
    """
    uniform = torch.rand(len(values), 4, generator=random, device=values.device)
    chosen = uniform[:, 0].argsort()[: round(share * len(values))]
    qualities = MIN_QUALITY + (MAX_QUALITY - MIN_QUALITY) * uniform[chosen, 1]
    compressed = compress_views(values[chosen], shapes[chosen], qualities, BLOCK * uniform[chosen, 2:])
    return values.index_copy(0, chosen, compressed)


def compress_views(values: Tensor, shapes: Tensor, qualities: Tensor, positions: Tensor) -> Tensor:
    """Return views as they would be had their photos been compressed.

    Args:
        values: (N, S, S) grey values.
        shapes: (N, 2, 2) maps from patch coordinates, [-1, 1]², to photo pixels relative to the frame's centre.
        qualities: (N,) of libjpeg, from 1 to 100.
        positions: (N, 2) position (x, y) of the frame's centre in its block, from 0 to 8 pixels.

    Returns:
        (N, S, S) grey values.
    """
    count, size = values.shape[:2]
    values = values.clamp(0, 255)
    side = 2 * BLOCK * -(-size // BLOCK)  # photo pixels: rotated patches fit up to a spacing of √2
    centre = side / 2 + (positions + BLOCK / 2) % BLOCK - BLOCK / 2
    inverse = _invert(shapes)
    to_patch = torch.cat([side / 2 * inverse, inverse @ (side / 2 - 0.5 - centre)[:, :, None]], 2)
    to_photo = torch.cat([2 / side * shapes, ((2 * centre + 1) / side - 1)[:, :, None]], 2)
    photo = _sample(values, to_patch, side).round()
    errors = compress(photo, qualities) - photo
    spacing = 2 / size * axis_lengths(shapes)[0]
    sampled = average_samples(_sample(errors, to_photo, SUPERSAMPLING * size))
    return values + (spacing <= MAX_SPACING).view(count, 1, 1) * sampled


def compress(images: Tensor, qualities: Tensor) -> Tensor:
    """Compress and decode grey images as libjpeg does.

    Args:
        images: (N, H, W) integer grey values in 0..255; H and W are multiples of 8.
        qualities: (N,) of libjpeg, from 1 to 100.

    Returns:
        (N, H, W) integer grey values in 0..255, of the type of the images.
    """
    height, width = images.shape[1:]
    cosines, luminance = _tables(images.device)
    scale = torch.where(qualities < 50, 5000 / qualities, 200 - 2 * qualities)
    steps = ((luminance * scale[:, None, None] + 50) / 100).floor().clamp(1, 255)
    blocks = _transform(_transform(images - 128, cosines.T).mT, cosines.T)  # transposed, and so are the steps
    steps = steps.mT.repeat(1, width // BLOCK, height // BLOCK)
    blocks = (blocks / steps).round() * steps
    return (_transform(_transform(blocks, cosines).mT, cosines) + 128).round().clamp(0, 255)


def _transform(images: Tensor, basis: Tensor) -> Tensor:
    """Multiply each eight pixels of a row by an (8, 8) matrix."""
    return (images.reshape(-1, BLOCK) @ basis).view(images.shape)


def _sample(images: Tensor, maps: Tensor, side: int) -> Tensor:
    """Sample (N, H, W) images at grids of a side by (N, 2, 3) maps between [-1, 1]²; the border is replicated."""
    steps = (2 * torch.arange(side, device=images.device) + 1) / side - 1
    # Not F.affine_grid: on a CPU, its many small matrix products are slow.
    x, y = (row[:, 0] * steps + row[:, 2] + row[:, 1] * steps[:, None] for row in maps[..., None, None].unbind(1))
    border = 1 - 1 / images.shape[2]  # clamped here: not every device supports border padding
    grid = torch.stack([x, y], -1).clamp_(-border, border)
    return F.grid_sample(images[:, None], grid, align_corners=False)[:, 0]


def _invert(matrices: Tensor) -> Tensor:
    """Invert (N, 2, 2) matrices in closed form: torch's inverse synchronises with the GPU."""
    (a, b), (c, d) = (row.unbind(1) for row in matrices.unbind(1))
    adjugate = torch.stack([torch.stack([d, -b], 1), torch.stack([-c, a], 1)], 1)
    return adjugate / (a * d - b * c)[:, None, None]


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the cosine transform and the luminance table, (8, 8) each, cached: a transfer would wait for the GPU."""
    frequency, pixel = torch.arange(BLOCK)[:, None], torch.arange(BLOCK)
    cosines = torch.cos(torch.pi / BLOCK * frequency * (pixel + 0.5)) * (2 / BLOCK) ** 0.5
    cosines[0] /= 2**0.5
    return cosines.to(device), torch.tensor(LUMINANCE, dtype=torch.float32, device=device)
