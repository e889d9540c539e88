"""Jittered views: many patches of one point, as other photographs of it would have shown it.

The geometry is disturbed as a detector's is: the frame turns, shifts, changes scale and stretches, and the
plane it lies on tilts. The light is disturbed as a camera's is: gamma, contrast, a gradient across the
patch, blur and noise. Three levels, named as in HPatches, disturb so much that a frame overlaps its
disturbed self by about 0.85 (easy), 0.72 (hard) and 0.60 (tough) on average.
"""

from dataclasses import astuple, dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from doap.geometry.ellipses import overlap
from doap.images.extraction import Pyramid, average_samples, patch_grid, pixel_spacing, place_points, to_bytes
from doap.types import Frames


@dataclass(frozen=True)
class Level:
    """How strongly a view differs; each value is a standard deviation, or a largest value where said.

    A value is one number for all patches, or an (N,) tensor with one for each.
    """

    rotation: float | Tensor  # degrees
    shift: float | Tensor  # in units of the frame's scale
    scale: float | Tensor  # log2
    stretch: float | Tensor  # log2 of the ratio of the axes
    perspective: float | Tensor  # change of scale across the patch's half side
    gamma: float | Tensor  # log2 of the exponent
    contrast: float | Tensor  # log2 of the gain
    gradient: float | Tensor  # grey levels from the centre to the border
    blur: float | Tensor  # sigma in patch pixels, at most
    noise: float | Tensor  # grey levels, at most


REACH = 3  # of the blur, in pixels

LEVELS = {
    "easy": Level(5, 0.08, 0.08, 0.08, 0.02, 0.25, 0.25, 10, 0.5, 3),
    "hard": Level(10, 0.17, 0.17, 0.17, 0.04, 0.4, 0.4, 20, 0.8, 5),
    "tough": Level(15, 0.265, 0.265, 0.265, 0.06, 0.55, 0.55, 30, 1.1, 8),
}


GEOMETRY = 5  # so many of the values of a level are of the geometry, then come those of the light


def mixed_levels(numbers: Tensor, geometry: float = 1.0) -> Level:
    """A level of its own for each patch.

    Args:
        numbers: (N,) integers, 0 undisturbed, then 1, 2, 3 for easy, hard and tough.
        geometry: factor of what disturbs the geometry.
    """
    values = _level_table(numbers.device)[numbers]
    return Level(*(geometry * values[:, :GEOMETRY]).unbind(1), *values[:, GEOMETRY:].unbind(1))


@cache
def _level_table(device: torch.device) -> Tensor:
    """The values of all levels, (4, 10), kept on each device: sending them there would make a GPU wait."""
    return torch.tensor([[0.0] * 10, *map(astuple, LEVELS.values())], device=device)


def jittered_views(
    pyramid: Pyramid, frames: Frames, level: str, size: int, extent: float, random: torch.Generator
) -> Tensor:
    """Cut one disturbed patch of each frame.

    Args:
        pyramid: of the picture.
        frames: (N, 2, 3).
        level: "easy", "hard" or "tough".
        size: side of the patches.
        extent: half the side of the patch in units of the frame's scale.
        random: on the pyramid's device; fixes the views.

    Returns:
        (N, size, size) uint8.
    """
    strength = LEVELS[level]
    device = pyramid.levels[0].device
    jittered = jitter_frames(torch.from_numpy(frames).to(device), strength, random)
    points = place_points(torch.stack(tilted_grid(jittered, strength, size, random), -1), jittered, extent)
    values = average_samples(pyramid.sample(points, pixel_spacing(jittered, size, extent)))
    return to_bytes(disturb_light(values, strength, random))


def jitter_frames(frames: Tensor, strength: Level, random: torch.Generator) -> Tensor:
    """Disturb (N, 2, 3) frames: each is composed with a small affine map in its own coordinates."""
    noise = torch.randn(len(frames), 6, generator=random, device=frames.device)
    turn = torch.deg2rad(noise[:, 0] * strength.rotation)
    axis = noise[:, 1] * torch.pi  # in any direction: the spread covers the circle
    size = torch.exp2(noise[:, 2] * strength.scale)
    ratio = torch.exp2(noise[:, 3] * strength.stretch / 2)
    stretch = torch.diag_embed(torch.stack([ratio, 1 / ratio], 1))
    forth, back = _rotations(torch.cat([turn + axis, -axis])).chunk(2)
    map_ = size[:, None, None] * (forth @ stretch @ back)
    shift = noise[:, 4:] * _each(strength.shift, 1)
    shape = frames[:, :, :2]
    return torch.cat([shape @ map_, frames[:, :, 2:] + shape @ shift[:, :, None]], 2)


def tilted_grid(
    frames: Tensor, strength: Level, size: int, random: torch.Generator, shown: float | Tensor = 1.0
) -> tuple[Tensor, Tensor]:
    """Sample positions of patches whose planes are tilted, u / (1 + t·u): two tensors (N, s, s), across and down.

    `shown` is how much of the patch's side is seen around its centre, for all patches or (N,) for each.
    """
    tilt = torch.randn(len(frames), 1, 1, 2, generator=random, device=frames.device) * _each(strength.perspective, 3)
    across, down = (_each(shown, 2) * axis for axis in patch_grid(size, frames.device).unbind(-1))
    depth = 1 + (tilt[..., 0] * across + tilt[..., 1] * down).clamp(min=-0.5)
    return across / depth, down / depth


def disturb_light(values: Tensor, strength: Level, random: torch.Generator) -> Tensor:
    """Blur, then gamma, contrast, a gradient of light and noise on (N, H, W) grey values in 0..255."""
    count, height, width = values.shape
    device = values.device

    def normal(*shape: int) -> Tensor:
        return torch.randn(count, *shape, generator=random, device=device)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=random, device=device)

    values = _blur(values, uniform() * strength.blur)
    gamma = torch.exp2(normal(1, 1) * _each(strength.gamma, 2))
    values = 255 * (values / 255).clamp(0, 1) ** gamma
    gain = torch.exp2(normal(1, 1) * _each(strength.contrast, 2))
    mean = values.mean((1, 2), keepdim=True)
    values = mean + gain * (values - mean)
    slope = normal(2, 1, 1) * _each(strength.gradient, 3)
    values = values + slope[:, 0] * torch.linspace(-1, 1, height, device=device)[:, None]
    values = values + slope[:, 1] * torch.linspace(-1, 1, width, device=device)
    return values + normal(height, width) * uniform(1, 1) * _each(strength.noise, 2)


@cache
def measured_overlap(level: str, samples: int = 4000, seed: int = 0) -> float:
    """Mean overlap of a frame with its disturbed self at a level, measured over random views."""
    plain = torch.eye(2, 3).expand(samples, 2, 3)
    jittered = jitter_frames(plain, LEVELS[level], torch.Generator().manual_seed(seed))
    return float(np.mean(overlap(plain.contiguous().numpy(), jittered.numpy())))


def _each(value: float | Tensor, axes: int) -> float | Tensor:
    """One number for all patches as it is; one for each with as many axes behind, to multiply (N, …) by."""
    return value.view(-1, *[1] * axes) if isinstance(value, Tensor) else value


def _rotations(angles: Tensor) -> Tensor:
    cosine, sine = angles.cos(), angles.sin()
    return torch.stack([torch.stack([cosine, -sine], 1), torch.stack([sine, cosine], 1)], 1)


def _blur(values: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur of (N, H, W) with a sigma of its own for each patch, borders replicated."""
    offsets = torch.arange(-REACH, REACH + 1, device=values.device)
    taps = torch.exp(-0.5 * (offsets / sigma.clamp(min=1e-3)[:, None]) ** 2)
    taps = (taps / taps.sum(1, keepdim=True)).T[:, :, None, None]
    for axis, border in ((1, (0, 0, REACH, REACH)), (2, (REACH, REACH, 0, 0))):
        # A sum of shifted copies: every patch has a filter of its own, thousands of groups to a convolution.
        size = values.shape[axis]
        padded = F.pad(values[None], border, mode="replicate")[0]
        values = taps[0] * padded.narrow(axis, 0, size)
        for place in range(1, len(taps)):
            values = torch.addcmul(values, taps[place], padded.narrow(axis, place, size))
    return values
