"""Gaussian scale space of VLFeat's covariant detectors, and patches sampled from it.

Octave o has pixels of 2^o image pixels; the first octave is -1. Pixel (i, j) of an octave lies at image position
2^o (i, j). Level s of the three levels of an octave has sigma 2.016 · 2^(o + s/3) in image pixels.
"""

import math

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from doap.types import Grey

Plane = NDArray[np.float32]

FIRST_OCTAVE = -1
LEVELS = 3  # levels per octave
BASE_SIGMA = 1.6 * 2 ** (1 / LEVELS)  # sigma of level 0 of octave 0
CAMERA_SIGMA = 0.5  # assumed blur of an image
MIN_OCTAVE_SIDE = 16


class ScaleSpace:
    """Scale space of an image.

    Args:
        image: (H, W) uint8; at least 16 pixels wide and high.
    """

    def __init__(self, image: Grey) -> None:
        self.shape = image.shape
        self.last_octave = math.floor(math.log2((min(image.shape) - 1) / (MIN_OCTAVE_SIDE - 1)))
        self._levels: dict[tuple[int, int], Plane] = {}
        level = _double(np.asarray(image / 255, np.float32))
        before = CAMERA_SIGMA
        for octave in range(FIRST_OCTAVE, self.last_octave + 1):
            for index in range(LEVELS):
                after = level_sigma(octave, index)
                level = smooth(level, math.sqrt(after**2 - before**2) / 2.0**octave)
                self._levels[octave, index] = level
                before = after
            height, width = level.shape
            level = np.ascontiguousarray(level[: height // 2 * 2 : 2, : width // 2 * 2 : 2])

    def __getitem__(self, position: tuple[int, int]) -> Plane:
        """Return the level at (octave, index within the octave), grey values in 0..1."""
        return self._levels[position]

    def sample(
        self, shapes: Tensor, centres: Tensor, radius: int, extent: float, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Sample square patches in the coordinates of frames.

        The octave is the last one whose first level has a sigma of at most `smoothing`, in units of the frame's smaller
        axis. As in VLFeat, the second and third levels are used in the last octave only.

        Args:
            shapes: (N, 2, 2) shapes A of the frames.
            centres: (N, 2) float, (x, y) in image pixels.
            radius: Number of samples on either side of the centre.
            extent: Distance from the centre to the outermost samples, in units of the frame.
            smoothing: Requested sigma of the patch, in units of the frame.

        Returns:
            (N, 2 radius + 1, 2 radius + 1) grey values in 0..1 and (N,) sigmas of the sampled levels in image pixels.
        """
        steps = torch.linspace(-extent, extent, 2 * radius + 1, dtype=torch.float32)
        y, x = torch.meshgrid(steps, steps, indexing="ij")
        grid = torch.stack([x, y], -1).flatten(0, 1)
        octaves, indices = self._select_levels(smoothing * torch.linalg.matrix_norm(shapes, ord=-2))
        patches = shapes.new_empty(len(shapes), len(steps), len(steps))
        for octave, index in sorted(set(zip(octaves.tolist(), indices.tolist(), strict=True))):
            chosen = (octaves == octave) & (indices == index)
            level = torch.from_numpy(self[octave, index])[None, None]
            # Map the corners of the level to -1 and 1, as grid_sample expects.
            last = torch.tensor([level.shape[3] - 1, level.shape[2] - 1], dtype=torch.float32)
            unit = 2 / (2.0**octave * last)
            points = grid @ (shapes[chosen] * unit[:, None]).transpose(1, 2) + (centres[chosen] * unit - 1)[:, None]
            samples = F.grid_sample(level, points[None], mode="bilinear", padding_mode="border", align_corners=True)
            patches[chosen] = samples.view(-1, len(steps), len(steps))
        return patches, BASE_SIGMA * 2 ** (octaves + indices / LEVELS)

    def _select_levels(self, sigmas: Tensor) -> tuple[Tensor, Tensor]:
        """Return the octave and index, (N,) each, of the levels for (N,) largest sigmas."""
        octave = (sigmas.double() / BASE_SIGMA).log2().floor().clamp(FIRST_OCTAVE, self.last_octave).long()
        index = ((sigmas.double() / BASE_SIGMA).log2() - octave).floor().clamp(0, LEVELS - 1).long()
        return octave, index


def level_sigma(octave: int, index: int) -> float:
    """Return the sigma of a level in image pixels."""
    return float(BASE_SIGMA * 2 ** (octave + index / LEVELS))


def smooth(plane: Plane, sigma: float) -> Plane:
    """Convolve with a Gaussian of `sigma` pixels, truncated at three sigmas; the border is replicated."""
    radius = math.ceil(3 * sigma)
    if not radius:
        return plane
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    taps = (taps / taps.sum()).astype(np.float32)
    return np.asarray(cv2.sepFilter2D(plane, cv2.CV_32F, taps, taps, borderType=cv2.BORDER_REPLICATE), np.float32)


def _double(plane: Plane) -> Plane:
    """Double the resolution by linear interpolation: pixel 2i is pixel i, pixel 2i + 1 the mean of i and i + 1."""
    for axis in (0, 1):
        following = np.concatenate([plane.take(range(1, plane.shape[axis]), axis), plane.take([-1], axis)], axis)
        pairs = np.stack([plane, (plane + following) / 2], axis + 1)
        plane = pairs.reshape([size * (2 if axis == index else 1) for index, size in enumerate(plane.shape)])
    return plane
