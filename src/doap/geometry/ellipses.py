"""How much the ellipses of frames overlap."""

import numpy as np
from numpy.typing import NDArray

from doap.types import Frames

SCANLINES = 48

Moments = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def overlap(first: Frames, second: Frames) -> NDArray[np.float64]:
    """Intersection over union of the ellipses of paired (P, 2, 3) frames, (P,), to 1e-3.

    The intersection is summed over 48 horizontal lines. With A Aᵀ = [[a, b], [b, d]], the ellipse of [A | c] cuts
    the line at c_y + t in a chord about c_x + t b/d of half length √(a - b²/d) √(1 - t²/d). The lines lie at the
    cosines of even angles within the height that both ellipses have, dense towards its ends, where chords are round.
    """
    shapes = _moments(first), _moments(second)
    centres = first[:, :, 2].astype(np.float64), second[:, :, 2].astype(np.float64)
    reach = np.sqrt(shapes[0][2]), np.sqrt(shapes[1][2])
    low = np.maximum(centres[0][:, 1] - reach[0], centres[1][:, 1] - reach[1])
    high = np.minimum(centres[0][:, 1] + reach[0], centres[1][:, 1] + reach[1])
    angles = (np.arange(SCANLINES) + 0.5) * np.pi / SCANLINES
    half = np.maximum(high - low, 0)[:, None] / 2
    lines = ((low + high) / 2)[:, None] + half * np.cos(angles)
    (left, right), (other_left, other_right) = (_chords(lines, c, s) for c, s in zip(centres, shapes, strict=True))
    lengths = np.maximum(np.minimum(right, other_right) - np.maximum(left, other_left), 0)
    intersection = (lengths * half * np.sin(angles)).sum(1) * np.pi / SCANLINES
    areas = np.pi * (scales(first).astype(np.float64) ** 2 + scales(second).astype(np.float64) ** 2)
    return np.asarray(intersection / (areas - intersection))


def _moments(frames: Frames) -> Moments:
    """a, b, d of A Aᵀ = [[a, b], [b, d]], each (P,)."""
    shape = frames[:, :, :2].astype(np.float64)
    product = shape @ shape.transpose(0, 2, 1)
    return product[:, 0, 0], product[:, 0, 1], product[:, 1, 1]


def _chords(
    lines: NDArray[np.float64], centres: NDArray[np.float64], shape: Moments
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where (P, L) horizontal lines enter and leave the ellipses; a chord of no length where they miss them."""
    a, b, d = (moment[:, None] for moment in shape)
    t = lines - centres[:, 1:]
    middle = centres[:, :1] + t * b / d
    half = np.sqrt(np.maximum(a - b**2 / d, 0) * np.maximum(1 - t**2 / d, 0))
    return middle - half, middle + half


def scales(frames: Frames) -> NDArray[np.float32]:
    """√|det A| of each frame, (N,): the radius of a circle of the same area."""
    determinant = frames[:, 0, 0] * frames[:, 1, 1] - frames[:, 0, 1] * frames[:, 1, 0]
    return np.sqrt(np.abs(determinant))
