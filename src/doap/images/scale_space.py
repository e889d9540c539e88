"""Gaussian scale space in octaves, and the maxima of a response in it, with OpenCV's filters.

Each octave has half the resolution of the previous one, and levels of blur a third of an octave apart.
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
Response = Callable[[Plane, float], Plane]  # response(level, its sigma in pixels)

LEVELS_PER_OCTAVE = 3  # levels with maxima; one more on either side to compare with
CAMERA_SIGMA = 0.5  # assumed blur of an image
MIN_SIDE = 12
MARGIN = 2  # pixels at the border of an octave, where derivatives use the reflected image
MAX_OFFSET = 0.6  # of the refinement, in pixels and levels: the quadratic does not fit beyond

_SQUARE = np.ones((3, 3), np.uint8)


@dataclass(frozen=True)
class Maxima:
    """Maxima of a response in image pixels: (N, 2) centres (x, y), (N,) sigmas and (N,) strengths."""

    centres: NDArray[np.float64]
    sigmas: NDArray[np.float64]
    strengths: NDArray[np.float64]


def find_maxima(image: Grey, response: Response, threshold: float, base_sigma: float) -> Maxima:
    """Find the maxima of a response over position and scale, to subpixel and sublevel accuracy, strongest first.

    Args:
        image: (H, W) uint8.
        response: scale-normalised response: equal for a structure and its enlarged copy.
        threshold: Minimum response.
        base_sigma: Sigma of the first level, at least 1: below, pixel differences do not approximate derivatives.
            Maxima are found from a third of an octave above it.
    """
    octaves = [(np.zeros((0, 3)), np.zeros(0))]
    sigmas = [base_sigma * 2 ** (level / LEVELS_PER_OCTAVE) for level in range(LEVELS_PER_OCTAVE + 2)]
    for step, levels in _octaves(image, sigmas):
        stack = np.stack([response(level, sigma) for level, sigma in zip(levels, sigmas, strict=True)])
        peaks, cubes = _find_peaks(stack, threshold)
        offsets, strengths = _refine(cubes)
        positions = peaks + offsets
        positions[:, 0] = step * base_sigma * 2 ** (positions[:, 0] / LEVELS_PER_OCTAVE)
        positions[:, 1:] *= step
        octaves.append((positions, strengths))
    positions, strengths = (np.concatenate(parts) for parts in zip(*octaves, strict=True))
    order = np.lexsort((positions[:, 2], positions[:, 1], -strengths))
    return Maxima(positions[order, :0:-1], positions[order, 0], strengths[order])


def _octaves(image: Grey, sigmas: list[float]) -> Iterator[tuple[int, list[Plane]]]:
    """Yield (pixel size in image pixels, levels) of each octave while the shorter side has at least 12 pixels.

    Sigmas are in pixels of the octave.
    """
    if min(image.shape) < MIN_SIDE:
        return
    base = _blur(image.astype(np.float32), CAMERA_SIGMA, sigmas[0])
    step = 1
    while min(base.shape) >= MIN_SIDE:
        levels = [base]
        for before, after in pairwise(sigmas):
            levels.append(_blur(levels[-1], before, after))
        yield step, levels
        base = np.ascontiguousarray(levels[LEVELS_PER_OCTAVE][::2, ::2])
        step *= 2


def _blur(plane: Plane, before: float, after: float) -> Plane:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), math.sqrt(after**2 - before**2)), np.float32)


def _find_peaks(stack: Plane, threshold: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find the values of (L, H, W) above their 26 neighbours; of equal neighbours, the first.

    Returns:
        (N, 3) positions (level, y, x), and the (N, 3, 3, 3) values around them.
    """
    count, height, width = stack.shape
    inner = slice(MARGIN, -MARGIN)
    indices = []
    for level in range(1, count - 1):
        plane = stack[level]
        high = (plane == cv2.dilate(plane, _SQUARE)) & (plane > threshold)
        y, x = np.divmod(np.flatnonzero(high[inner, inner]), width - 2 * MARGIN)
        indices.append((level * height + y + MARGIN) * width + x + MARGIN)
    flat = np.concatenate(indices)
    steps = np.arange(-1, 2)
    offsets = (steps[:, None, None] * height + steps[:, None]) * width + steps
    cubes = stack.ravel()[flat[:, None] + offsets.ravel()]
    centre = cubes[:, 13:14]
    peak = (centre > cubes[:, :13]).all(1) & (centre >= cubes[:, 14:]).all(1)
    rows, x = np.divmod(flat[peak], width)
    return np.stack([*np.divmod(rows, height), x], 1).astype(np.float64), cubes[peak].reshape(-1, 3, 3, 3).astype(float)


def _refine(cubes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit a quadratic to (N, 3, 3, 3) values; return the offsets, (N, 3), and values, (N,), of its maxima."""

    def at(*steps: int) -> NDArray[np.float64]:
        return cubes[:, 1 + steps[0], 1 + steps[1], 1 + steps[2]]

    unit = np.eye(3, dtype=int)
    gradient = np.stack([at(*unit[a]) - at(*-unit[a]) for a in range(3)], 1) / 2
    hessian = np.empty((len(cubes), 3, 3))
    for a in range(3):
        hessian[:, a, a] = at(*unit[a]) + at(*-unit[a]) - 2 * at(0, 0, 0)
        for b in range(a):
            sides, cross = unit[a] + unit[b], unit[a] - unit[b]
            hessian[:, a, b] = hessian[:, b, a] = (at(*sides) + at(*-sides) - at(*cross) - at(*-cross)) / 4
    # A ridge has no unique maximum along its direction: a small curvature keeps the offset near the centre.
    hessian -= 1e-6 * np.abs(at(0, 0, 0))[:, None, None] * np.eye(3) + 1e-12 * np.eye(3)
    offsets = np.linalg.solve(hessian, -gradient[:, :, None])[:, :, 0].clip(-MAX_OFFSET, MAX_OFFSET)
    return offsets, at(0, 0, 0) + (gradient * offsets).sum(1) / 2
