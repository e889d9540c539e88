"""Overlap of ellipses by counting grid points: the slow oracle of `doap.geometry.ellipses.overlap`."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from doap.types import Frames


def counted_overlap(first: Frames, second: Frames, resolution: int = 64) -> NDArray[np.float64]:
    """Compute the intersection over union of the ellipses of paired frames, (N,), by counting grid points.

    Args:
        first: (N, 2, 3).
        second: (N, 2, 3).
        resolution: grid points across both ellipses; the error is proportional to its inverse.
    """
    inside = _inside(first), _inside(second)
    low = np.minimum(*(f[:, :, 2] - _half_box(f) for f in (first, second)))
    high = np.maximum(*(f[:, :, 2] + _half_box(f) for f in (first, second)))
    steps = (np.arange(resolution) + 0.5) / resolution
    grid = np.stack(np.meshgrid(steps, steps), -1).reshape(1, -1, 2)
    points = low[:, None] + grid * (high - low)[:, None]
    a, b = inside[0](points), inside[1](points)
    return np.asarray((a & b).sum(1) / np.maximum((a | b).sum(1), 1), np.float64)


def _inside(frames: Frames) -> Callable[[NDArray[np.float64]], NDArray[np.bool_]]:
    inverse = np.linalg.inv(frames[:, :, :2].astype(np.float64))
    centres = frames[:, :, 2].astype(np.float64)

    def test(points: NDArray[np.float64]) -> NDArray[np.bool_]:
        unit = (points - centres[:, None]) @ inverse.transpose(0, 2, 1)
        return np.asarray((unit**2).sum(-1) <= 1)

    return test


def _half_box(frames: Frames) -> NDArray[np.float64]:
    """Return half the sides of the bounding box of each ellipse: the lengths of A's rows."""
    return np.asarray(np.sqrt((frames[:, :, :2].astype(np.float64) ** 2).sum(2)))
