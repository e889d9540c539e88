"""Ellipses of local affine frames: their scale and their overlap.

A frame [A | c] maps the unit circle to the ellipse c + A u.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from doap.types import Frames

SCANLINES = 48

Real = TypeVar("Real", bound=np.floating)

Moments = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def scales(frames: NDArray[Real]) -> NDArray[Real]:
    """Return √|det A| of every frame, (N,), in the type of the frames: the radius of a circle of the same area."""
    determinant = frames[:, 0, 0] * frames[:, 1, 1] - frames[:, 0, 1] * frames[:, 1, 0]
    return np.asarray(np.sqrt(np.abs(determinant)))


def overlap(first: Frames, second: Frames) -> NDArray[np.float64]:
    """Compute the intersection over union of the ellipses of paired frames, accurate to 1e-3.

    The intersection is integrated over 48 horizontal lines. With A Aᵀ = [[a, b], [b, d]], the ellipse of [A | c]
    intersects the line y = c_y + t in a chord centred at x = c_x + t b/d with half length √(a - b²/d) √(1 - t²/d).
    The lines lie at the cosines of equally spaced angles within the vertical range common to both ellipses. They are
    dense at the ends of the range, where the chord length changes fastest.

    Args:
        first: (P, 2, 3).
        second: (P, 2, 3).

    Returns:
        (P,) values in [0, 1].
    """
    moments = _moments(first), _moments(second)
    centres = first[:, :, 2].astype(np.float64), second[:, :, 2].astype(np.float64)
    half_heights = np.sqrt(moments[0][2]), np.sqrt(moments[1][2])
    low = np.maximum(centres[0][:, 1] - half_heights[0], centres[1][:, 1] - half_heights[1])
    high = np.minimum(centres[0][:, 1] + half_heights[0], centres[1][:, 1] + half_heights[1])
    angles = (np.arange(SCANLINES) + 0.5) * np.pi / SCANLINES
    half = np.maximum(high - low, 0)[:, None] / 2
    lines = ((low + high) / 2)[:, None] + half * np.cos(angles)
    (left, right), (other_left, other_right) = (_chords(lines, c, m) for c, m in zip(centres, moments, strict=True))
    lengths = np.maximum(np.minimum(right, other_right) - np.maximum(left, other_left), 0)
    intersection = (lengths * half * np.sin(angles)).sum(1) * np.pi / SCANLINES
    areas = np.pi * (scales(first).astype(np.float64) ** 2 + scales(second).astype(np.float64) ** 2)
    return np.asarray(intersection / (areas - intersection))


def _moments(frames: Frames) -> Moments:
    """Return a, b, d of A Aᵀ = [[a, b], [b, d]], (P,) each."""
    shape = frames[:, :, :2].astype(np.float64)
    product = shape @ shape.transpose(0, 2, 1)
    return product[:, 0, 0], product[:, 0, 1], product[:, 1, 1]


def _chords(
    lines: NDArray[np.float64], centres: NDArray[np.float64], moments: Moments
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the x at which (P, L) horizontal lines enter and leave the ellipses; equal for lines that miss them."""
    a, b, d = (moment[:, None] for moment in moments)
    t = lines - centres[:, 1:]
    middle = centres[:, :1] + t * b / d
    half = np.sqrt(np.maximum(a - b**2 / d, 0) * np.maximum(1 - t**2 / d, 0))
    return middle - half, middle + half
