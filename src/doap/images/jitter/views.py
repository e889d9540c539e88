"""Views of frames in other photographs, simulated.

Geometry varies as the frames of a detector do: the frame is rotated, shifted, scaled and stretched, and its plane is
tilted. Light varies as that of a camera does: gamma, contrast, a gradient across the patch, blur and noise. There are
three levels, named as in HPatches. A frame overlaps its jittered copy by about 0.85 (easy), 0.72 (hard) and 0.60
(tough) on average, as its paper states; official patches are rotated twice as far, see
`doap.datasets.build.hpatches_format`.
"""

import math
from dataclasses import astuple, dataclass
from functools import cache
from importlib import import_module

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from doap.devices import uses_triton
from doap.geometry.ellipses import overlap
from doap.geometry.rotations import rotation_matrices
from doap.images.extraction import Pyramid, average_samples, patch_grid, pixel_spacing, to_bytes, to_image_points
from doap.types import Frames


@dataclass(frozen=True)
class JitterLevel:
    """Strength of the jitter. Values are standard deviations, or maxima where noted.

    A value is one number for all patches, or an (N,) tensor with one number per patch.
    """

    rotation: float | Tensor  # degrees
    shift: float | Tensor  # in units of the frame's scale
    scale: float | Tensor  # log2
    stretch: float | Tensor  # log2 of the ratio of the axes
    perspective: float | Tensor  # change of scale across the patch's half side
    gamma: float | Tensor  # log2 of the exponent
    contrast: float | Tensor  # log2 of the gain
    gradient: float | Tensor  # grey levels from the centre to the border
    blur: float | Tensor  # maximum sigma in patch pixels
    noise: float | Tensor  # maximum, grey levels


@dataclass(frozen=True)
class JitterFactors:
    """How the jitter of a training differs from the levels.

    Attributes:
        geometry: Factor of the geometric jitter.
        blur: Factor of the maximum blur.
        compression: Share of the views that are compressed.
    """

    geometry: float = 1.0
    blur: float = 1.0
    compression: float = 0.0

    @property
    def blur_radius(self) -> int:
        """The radius of the filter that blurs, in pixels."""
        return math.ceil(BLUR_RADIUS * max(1.0, self.blur))


UNCHANGED = JitterFactors()
MAX_TILT = 0.5  # decrease of the depth of a tilted plane
BLUR_RADIUS = 3  # pixels, for the blur of the levels
GEOMETRY_VALUES = 5  # the first fields of a level; the others are photometric
BLUR_VALUE = 8  # the field of the blur

LEVELS = {
    "easy": JitterLevel(5, 0.08, 0.08, 0.08, 0.02, 0.25, 0.25, 10, 0.5, 3),
    "hard": JitterLevel(10, 0.17, 0.17, 0.17, 0.04, 0.4, 0.4, 20, 0.8, 5),
    "tough": JitterLevel(15, 0.265, 0.265, 0.265, 0.06, 0.55, 0.55, 30, 1.1, 8),
}


def mixed_levels(numbers: Tensor, factors: JitterFactors = UNCHANGED) -> JitterLevel:
    """Return a level with separate values per patch.

    Args:
        numbers: (N,) integers: 0 for no jitter, then 1, 2, 3 for easy, hard and tough.
        factors: Factors of the levels.
    """
    values = _level_table(numbers.device)[numbers]
    values[:, :GEOMETRY_VALUES] *= factors.geometry
    values[:, BLUR_VALUE] *= factors.blur
    return JitterLevel(*values.unbind(1))


@cache
def _level_table(device: torch.device) -> Tensor:
    """Return the values of all levels, (4, 10), cached per device: a transfer would synchronise with the GPU."""
    return torch.tensor([[0.0] * 10, *map(astuple, LEVELS.values())], device=device)


def jittered_views(
    pyramid: Pyramid, frames: Frames, level: str, size: int, extent: float, random: torch.Generator
) -> Tensor:
    """Extract one jittered patch per frame.

    Args:
        pyramid: Pyramid of the image.
        frames: (N, 2, 3).
        level: "easy", "hard" or "tough".
        size: Side of the patches.
        extent: Half the side of the patch in units of the frame's scale.
        random: Generator on the pyramid's device.

    Returns:
        (N, size, size) uint8.
    """
    strength = LEVELS[level]
    device = pyramid.device
    jittered = jitter_frames(torch.from_numpy(frames).to(device), strength, random)
    tilts = sample_tilts(len(frames), strength, random)
    points = to_image_points(torch.stack(tilted_grid(tilts, size), -1), jittered, extent)
    values = average_samples(pyramid.sample(points, pixel_spacing(jittered, size, extent)))
    return to_bytes(jitter_light(values, strength, random))


def jitter_frames(frames: Tensor, strength: JitterLevel, random: torch.Generator) -> Tensor:
    """Jitter (N, 2, 3) frames: compose each with a random affine map close to the identity, in its own coordinates."""
    noise = torch.randn(len(frames), 6, generator=random, device=frames.device)
    angle = torch.deg2rad(noise[:, 0] * strength.rotation)
    axis = noise[:, 1] * torch.pi  # a normal angle of this deviation covers all directions
    size = torch.exp2(noise[:, 2] * strength.scale)
    ratio = torch.exp2(noise[:, 3] * strength.stretch / 2)
    stretch = torch.diag_embed(torch.stack([ratio, 1 / ratio], 1))
    angles = torch.cat([angle + axis, -axis])
    forward, backward = rotation_matrices(angles.cos(), angles.sin()).chunk(2)
    affine = size[:, None, None] * (forward @ stretch @ backward)
    shift = noise[:, 4:] * _per_patch(strength.shift, 1)
    shape = frames[:, :, :2]
    return torch.cat([shape @ affine, frames[:, :, 2:] + shape @ shift[:, :, None]], 2)


def sample_tilts(count: int, strength: JitterLevel, random: torch.Generator) -> Tensor:
    """Return random tilts of the planes of patches, (count, 2)."""
    tilts = torch.randn(count, 1, 1, 2, generator=random, device=random.device)
    return (tilts * _per_patch(strength.perspective, 3))[:, 0, 0]


def tilted_grid(tilts: Tensor, size: int, visible: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
    """Return the sample positions u / (1 + t·u) of patches whose planes have tilts t.

    Args:
        tilts: (N, 2).
        size: Side of the patches.
        visible: Share of the patch's side that is sampled around its centre; one number, or (N,).

    Returns:
        Two (N, s, s) tensors, horizontal and vertical, s = 2 size.
    """
    tilt = tilts[:, None, None]
    across, down = (_per_patch(visible, 2) * axis for axis in patch_grid(size, tilts.device).unbind(-1))
    depth = 1 + (tilt[..., 0] * across + tilt[..., 1] * down).clamp(min=-MAX_TILT)
    return across / depth, down / depth


def jitter_light(
    values: Tensor, strength: JitterLevel, random: torch.Generator, blur_radius: int = BLUR_RADIUS
) -> Tensor:
    """Apply blur, then gamma, contrast, a gradient of light and noise to (N, H, W) grey values in 0..255."""
    count, height, width = values.shape
    device = values.device

    def normal(*shape: int) -> Tensor:
        return torch.randn(count, *shape, generator=random, device=device)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=random, device=device)

    sigmas = uniform() * strength.blur
    gamma = torch.exp2(normal(1, 1) * _per_patch(strength.gamma, 2))
    gain = torch.exp2(normal(1, 1) * _per_patch(strength.contrast, 2))
    slope = normal(2, 1, 1) * _per_patch(strength.gradient, 3)
    noise, amplitude = normal(height, width), uniform(1, 1) * _per_patch(strength.noise, 2)
    taps = _blur_filters(sigmas, blur_radius)
    kernels = import_module("doap.images.jitter.triton_light") if uses_triton(values) else None
    if kernels and height > 1 and width > 1 and height * width <= kernels.MAX_PIXELS:
        changes = (gamma.flatten(), gain.flatten(), slope.flatten(1), noise, amplitude.flatten())
        patches: Tensor = kernels.blur_and_light(values, taps, kernels.Light(*changes))
        return patches
    values = 255 * (_blur(values, taps) / 255).clamp(0, 1) ** gamma
    mean = values.mean((1, 2), keepdim=True)
    values = mean + gain * (values - mean)
    values = values + slope[:, 0] * torch.linspace(-1, 1, height, device=device)[:, None]
    values = values + slope[:, 1] * torch.linspace(-1, 1, width, device=device)
    return values + noise * amplitude


@cache
def measure_overlap(level: str, samples: int = 4000, seed: int = 0) -> float:
    """Measure the mean overlap of a frame with its jittered copy at a level, over random views."""
    plain = torch.eye(2, 3).expand(samples, 2, 3)
    jittered = jitter_frames(plain, LEVELS[level], torch.Generator().manual_seed(seed))
    return float(np.mean(overlap(plain.contiguous().numpy(), jittered.numpy())))


def _per_patch(value: float | Tensor, axes: int) -> float | Tensor:
    """Append `axes` axes to an (N,) tensor, to multiply (N, …) by; return a number unchanged."""
    return value.view(-1, *[1] * axes) if isinstance(value, Tensor) else value


def _blur_filters(sigmas: Tensor, radius: int) -> Tensor:
    """Return sampled Gaussians of (N,) sigmas, (N, 2 radius + 1), of sum 1."""
    offsets = torch.arange(-radius, radius + 1, device=sigmas.device)
    taps = torch.exp(-0.5 * (offsets / sigmas.clamp(min=1e-3)[:, None]) ** 2)
    return taps / taps.sum(1, keepdim=True)


def _blur(values: Tensor, filters: Tensor) -> Tensor:
    """Blur (N, H, W) patches by (N, 2 radius + 1) filters along both axes; the border is replicated."""
    radius, taps = filters.shape[1] // 2, filters.T[:, :, None, None]
    for axis, border in ((1, (0, 0, radius, radius)), (2, (radius, radius, 0, 0))):
        # A sum of shifted copies: a convolution would need one group per patch.
        size = values.shape[axis]
        padded = F.pad(values[None], border, mode="replicate")[0]
        values = taps[0] * padded.narrow(axis, 0, size)
        for offset in range(1, len(taps)):
            values = torch.addcmul(values, taps[offset], padded.narrow(axis, offset, size))
    return values
