"""Orientations and ellipses of frames."""

import numpy as np
from numpy.typing import NDArray

from doap.types import Frames


def angles(frames: Frames) -> NDArray[np.floating]:
    """Return the orientations of frames in degrees."""
    return np.asarray(np.degrees(np.arctan2(frames[:, 1, 0], frames[:, 0, 0])))


def angle_errors(computed: NDArray[np.floating], expected: NDArray[np.floating] | float) -> NDArray[np.floating]:
    """Return absolute differences of angles in degrees, in [0, 180]."""
    return np.asarray(np.abs((computed - expected + 180) % 360 - 180))


def ellipses(frames: Frames) -> NDArray[np.float64]:
    """Return A Aᵀ of frames, which is equal for frames that differ by a rotation of their axes only."""
    shapes = frames[:, :, :2].astype(np.float64)
    return np.asarray(shapes @ shapes.transpose(0, 2, 1))


def smallest_turn(frames: Frames) -> float:
    """Return the smallest angle in degrees between two of (N, 2, 3) frames of one ellipse, N > 1."""
    shapes = frames[:, :, :2].astype(np.float64)
    turns = np.linalg.inv(shapes)[:, None] @ shapes
    between = np.abs(np.degrees(np.arctan2(turns[..., 1, 0], turns[..., 0, 0])))
    return float(between[~np.eye(len(frames), dtype=bool)].min())
