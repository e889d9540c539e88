"""Extrema of differences of Gaussians, refined to subpixel and sublevel accuracy.

Every operation takes the extrema of all octaves and images: on a GPU, time is spent on the number of operations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import torch
from torch import Tensor

from doap.devices import uses_triton
from doap.images.dog.scale_space import BORDER, LAYERS, SIGMA, Stacks

EDGE_THRESHOLD = 10.0
REFINEMENTS = 5

# Steps (x, y, layer) from an extremum to itself, to its neighbours along each axis, and along each pair of axes.
_AXES = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
_PAIRS = [(1, 1, 0), (1, 0, 1), (0, 1, 1)]
_CROSSED = [(1, -1, 0), (1, 0, -1), (0, 1, -1)]
_STEPS = [(0, 0, 0)] + [
    (s * a, s * b, s * c) for group in (_AXES, _PAIRS, _CROSSED) for s in (1, -1) for a, b, c in group
]
_SYMMETRIC = [0, 3, 4, 3, 1, 5, 4, 5, 2]  # a 3x3 matrix from its values xx, yy, ss, xy, xs, ys


@dataclass(frozen=True)
class Extrema:
    """Refined extrema.

    Attributes:
        octave: (N,) number of the octave.
        image: (N,) number of the image.
        pixel: (N, 3) x, y and layer of the nearest pixel.
        offset: (N, 3) of the extremum from this pixel.
        response: (N,) absolute value of the extremum, for grey values 0..1.
    """

    octave: Tensor
    image: Tensor
    pixel: Tensor
    offset: Tensor
    response: Tensor

    def __len__(self) -> int:
        return len(self.response)

    def __getitem__(self, rows: Tensor) -> "Extrema":
        return Extrema(self.octave[rows], self.image[rows], self.pixel[rows], self.offset[rows], self.response[rows])

    @property
    def pixel_size(self) -> Tensor:
        """Size of the pixels of the octaves in image pixels, (N,)."""
        return 2.0 ** (self.octave - 1)

    @property
    def sigma(self) -> Tensor:
        """Sigmas in pixels of the octaves, (N,)."""
        return SIGMA * 2 ** ((self.pixel[:, 2] + self.offset[:, 2]) / LAYERS)


def find_extrema(space: Stacks, contrast: float) -> Extrema:
    """Find the extrema of the differences of Gaussian levels, one per pixel.

    Args:
        space: Gaussian levels.
        contrast: Smallest response times the number of layers.
    """
    candidate = float(math.floor(255 * 0.5 * contrast / LAYERS))  # grey levels, before refinement
    if uses_triton(space.flat):
        kernels = import_module("doap.images.dog.triton_dog")
        thresholds = candidate, contrast, EDGE_THRESHOLD
        positions, refined = kernels.find_extrema(space.octaves, space.flat, LAYERS, BORDER, REFINEMENTS, thresholds)
        return Extrema(positions[:, 0], positions[:, 1], positions[:, 2:], refined[:, :3], refined[:, 3])
    shapes = [(len(levels), LAYERS + 2, *levels.shape[2:]) for levels in space.octaves]
    differences = Stacks.empty([(b, p, h, w) for b, p, h, w in shapes], space.flat.device)
    for levels, target in zip(space.octaves, differences.octaves, strict=True):
        torch.sub(levels[:, 1:], levels[:, :-1], out=target)
    octave, image, pixel, offset = _refine(differences, *_find_candidates(differences, candidate))
    values = _Neighbourhood(differences, octave, image)
    values.move(pixel)
    response = (values.centre + (values.gradient * offset).sum(1) / 2) / 255
    (xx, yy, _), (xy, _, _) = values.curvature.unbind(1), values.mixed.unbind(1)
    trace, determinant = xx + yy, xx * yy - xy * xy
    keep = response.abs() * LAYERS >= contrast
    keep &= (determinant > 0) & (trace**2 * EDGE_THRESHOLD < (EDGE_THRESHOLD + 1) ** 2 * determinant)
    return Extrema(octave, image, pixel, offset, response.abs())[keep.nonzero()[:, 0]]


def _find_candidates(differences: Stacks, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return octave, image and pixel of the values not below (or not above) their 26 neighbours."""
    rows = [torch.zeros(0, 5, dtype=torch.int64, device=differences.flat.device)]
    for octave, stack in enumerate(differences.octaves):
        centre = stack[:, 1:-1, BORDER:-BORDER, BORDER:-BORDER]
        nearby = stack[:, :, BORDER - 1 : 1 - BORDER, BORDER - 1 : 1 - BORDER]
        candidates = (centre > threshold) & (centre >= _over_neighbours(torch.maximum, nearby))
        candidates |= (centre < -threshold) & (centre <= _over_neighbours(torch.minimum, nearby))
        image, layer, y, x = candidates.nonzero().unbind(1)
        rows.append(torch.stack([torch.full_like(x, octave), image, x + BORDER, y + BORDER, layer + 1], 1))
    table = torch.cat(rows)
    return table[:, 0], table[:, 1], table[:, 2:]


def _over_neighbours(extremum: Callable[[Tensor, Tensor], Tensor], stack: Tensor) -> Tensor:
    """Reduce 3x3x3 values around each inner value of (B, L, h, w), to (B, L - 2, h - 2, w - 2)."""
    for axis in (1, 2, 3):
        inner = stack.shape[axis] - 2
        before, here, after = (stack.narrow(axis, start, inner) for start in range(3))
        stack = extremum(extremum(before, here), after)
    return stack


def _refine(differences: Stacks, octave: Tensor, image: Tensor, pixel: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Move candidates to the nearest pixel of their extremum.

    Returns:
        Octave, image and pixel of the candidates that converged, without duplicates, and the offsets of their extrema
        from the pixels, at most half a pixel and layer.
    """
    values = _Neighbourhood(differences, octave, image)
    low = values.constants([BORDER, BORDER, 1])
    high = torch.stack([values.width - BORDER - 1, values.height - BORDER - 1, torch.full_like(octave, LAYERS)], 1)
    # All candidates take part in every step: selecting the active ones would synchronise with the GPU.
    inside = torch.ones_like(octave, dtype=torch.bool)
    converged, offset = inside, torch.zeros_like(pixel, dtype=torch.float32)
    for _ in range(REFINEMENTS):
        values.move(pixel)
        offset = values.offset()
        converged = inside & (offset.abs() < 0.5).all(1)
        step = torch.where((inside & ~converged)[:, None], offset, 0).clamp(-1e6, 1e6).round().long()
        moved = pixel + step
        inside = inside & ((moved >= low) & (moved <= high)).all(1)
        pixel = torch.where(inside[:, None], moved, pixel)
    rows = converged.nonzero()[:, 0]
    address, order = values.address[rows].sort(stable=True)
    is_first = torch.ones_like(address, dtype=torch.bool)
    is_first[1:] = address[1:] != address[:-1]
    rows = rows[order[is_first]]
    return octave[rows], image[rows], pixel[rows], offset[rows]


class _Neighbourhood:
    """Values around pixels in a stack, and their derivatives in the order x, y, layer.

    Attributes:
        centre: (N,) values at the pixels.
        gradient: (N, 3).
        curvature: (N, 3) second derivatives along the axes.
        mixed: (N, 3) second derivatives xy, x layer and y layer.
    """

    def __init__(self, stacks: Stacks, octave: Tensor, image: Tensor) -> None:
        self._flat = stacks.flat
        self._first, self.height, self.width = stacks.planes(octave, image, torch.zeros_like(image))
        self._strides = torch.stack([torch.ones_like(self.width), self.width, self.height * self.width], 1)
        self._steps = (self._strides[:, None] * self.constants(_STEPS)).sum(2)

    def constants(self, values: list[int] | list[tuple[int, int, int]]) -> Tensor:
        """Return constant integers on the device."""
        return _constants(tuple(values), self._flat.device)

    def move(self, pixel: Tensor) -> None:
        """Read the values around (N, 3) pixels, (x, y, layer)."""
        self.address = self._first + (pixel * self._strides).sum(1)
        values = self._flat[self.address[:, None] + self._steps]
        self.centre = values[:, 0]
        after, before, same, opposite, crossed, across = torch.split(values[:, 1:], 3, 1)
        self.gradient = (after - before) / 2
        self.curvature = after + before - 2 * values[:, :1]
        self.mixed = (same + opposite - crossed - across) / 4

    def offset(self) -> Tensor:
        """Return the offset of the extremum of the fitted quadratic, (N, 3), by Cramer's rule."""
        hessian = torch.cat([self.curvature, self.mixed], 1)[:, self.constants(_SYMMETRIC)].view(-1, 3, 3)
        # The rows of the adjugate of a symmetric matrix are the cross products of its other rows.
        adjugate = torch.linalg.cross(hessian.roll(-1, 1), hessian.roll(-2, 1), dim=2)
        determinant = (hessian[:, 0] * adjugate[:, 0]).sum(1, keepdim=True)
        solution = (adjugate * self.gradient[:, :, None]).sum(1)
        return torch.where(determinant == 0, 0, -solution / determinant)


@cache
def _constants(values: tuple[int, ...] | tuple[tuple[int, int, int], ...], device: torch.device) -> Tensor:
    """Return a constant tensor, cached per device: a transfer would synchronise with the GPU."""
    return torch.tensor(values, device=device)
