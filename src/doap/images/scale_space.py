"""A Gaussian scale space in octaves, and where a response is largest in it, by OpenCV's filters.

Each octave holds the picture at half the resolution of the one before, blurred at levels a third of an octave
apart.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.types import Grey

Plane = NDArray[np.float32]
Response = Callable[[Plane, float], Plane]  # of a level and its sigma in pixels

STEPS = 3  # levels an octave at which maxima are found; one more either side to compare with
CAMERA_SIGMA = 0.5  # blur a picture is taken to have
SMALLEST_SIDE = 12
MARGIN = 2  # pixels at the border of an octave, where derivatives see the reflected picture
LONGEST_STEP = 0.6  # of the refinement, in pixels and levels: beyond, the parabola does not fit

_SQUARE = np.ones((3, 3), np.uint8)


@dataclass(frozen=True)
class Maxima:
    """Where responses are largest, in picture pixels: (N, 2) centres (x, y), (N,) sigmas and (N,) strengths."""

    centres: NDArray[np.float64]
    sigmas: NDArray[np.float64]
    strengths: NDArray[np.float64]


def find_maxima(image: Grey, response: Response, threshold: float, first: float) -> Maxima:
    """Maxima of a response over place and scale, refined between pixels and levels, strongest first.

    Args:
        image: (H, W) uint8.
        response: scale-normalised: as large for a structure as for the same structure enlarged.
        threshold: what a maximum must exceed.
        first: sigma of the first level, at least 1: below, differences of pixels are no derivatives. Maxima are
            found from a third of an octave above it.
    """
    found = [(np.zeros((0, 3)), np.zeros(0))]
    sigmas = [first * 2 ** (number / STEPS) for number in range(STEPS + 2)]
    for step, levels in _octaves(image, sigmas):
        stack = np.stack([response(level, sigma) for level, sigma in zip(levels, sigmas, strict=True)])
        places, cubes = _peaks(stack, threshold)
        offsets, strengths = _refine(cubes)
        places = places + offsets
        places[:, 0] = step * first * 2 ** (places[:, 0] / STEPS)
        places[:, 1:] *= step
        found.append((places, strengths))
    places, strengths = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((places[:, 2], places[:, 1], -strengths))
    return Maxima(places[order, :0:-1], places[order, 0], strengths[order])


def _octaves(image: Grey, sigmas: list[float]) -> Iterator[tuple[int, list[Plane]]]:
    """Picture pixels a pixel, and the levels, of each octave until the shorter side has fewer than 12 pixels.

    Sigmas are in pixels of the octave.
    """
    if min(image.shape) < SMALLEST_SIDE:
        return
    base = _blur(image.astype(np.float32), CAMERA_SIGMA, sigmas[0])
    step = 1
    while min(base.shape) >= SMALLEST_SIDE:
        levels = [base]
        for before, after in pairwise(sigmas):
            levels.append(_blur(levels[-1], before, after))
        yield step, levels
        base = np.ascontiguousarray(levels[STEPS][::2, ::2])
        step *= 2


def _blur(plane: Plane, before: float, after: float) -> Plane:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), math.sqrt(after**2 - before**2)), np.float32)


def _peaks(stack: Plane, threshold: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values of (L, H, W) above their 26 neighbours: (N, 3) places (level, y, x), (N, 3, 3, 3) values around.

    Of equal neighbours the first counts.
    """
    count, height, width = stack.shape
    inner = slice(MARGIN, -MARGIN)
    places = []
    for number in range(1, count - 1):
        plane = stack[number]
        high = (plane == cv2.dilate(plane, _SQUARE)) & (plane > threshold)
        y, x = np.divmod(np.flatnonzero(high[inner, inner]), width - 2 * MARGIN)
        places.append((number * height + y + MARGIN) * width + x + MARGIN)
    flat = np.concatenate(places)
    near = np.arange(-1, 2)
    offsets = (near[:, None, None] * height + near[:, None]) * width + near
    cubes = stack.ravel()[flat[:, None] + offsets.ravel()]
    centre = cubes[:, 13:14]
    peak = (centre > cubes[:, :13]).all(1) & (centre >= cubes[:, 14:]).all(1)
    rows, x = np.divmod(flat[peak], width)
    return np.stack([*np.divmod(rows, height), x], 1).astype(np.float64), cubes[peak].reshape(-1, 3, 3, 3).astype(float)


def _refine(cubes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Offset (N, 3) of the maximum from the middle of (N, 3, 3, 3) values, by a quadratic, and its (N,) value."""

    def at(*steps: int) -> NDArray[np.float64]:
        return cubes[:, 1 + steps[0], 1 + steps[1], 1 + steps[2]]

    unit = np.eye(3, dtype=int)
    slope = np.stack([at(*unit[a]) - at(*-unit[a]) for a in range(3)], 1) / 2
    bend = np.empty((len(cubes), 3, 3))
    for a in range(3):
        bend[:, a, a] = at(*unit[a]) + at(*-unit[a]) - 2 * at(0, 0, 0)
        for b in range(a):
            sides, cross = unit[a] + unit[b], unit[a] - unit[b]
            bend[:, a, b] = bend[:, b, a] = (at(*sides) + at(*-sides) - at(*cross) - at(*-cross)) / 4
    # A ridge that is level along one direction has no single maximum: a slight bend keeps it in the middle.
    bend -= 1e-6 * np.abs(at(0, 0, 0))[:, None, None] * np.eye(3) + 1e-12 * np.eye(3)
    offsets = np.linalg.solve(bend, -slope[:, :, None])[:, :, 0].clip(-LONGEST_STEP, LONGEST_STEP)
    return offsets, at(0, 0, 0) + (slope * offsets).sum(1) / 2
