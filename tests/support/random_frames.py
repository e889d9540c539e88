"""Random frames for tests of overlap."""

import numpy as np

from doap.geometry.ellipses import scales
from doap.types import Frames


def random_frames(count: int, seed: int, width: float = 120) -> Frames:
    """Return crowded frames: many overlap, and every third is another orientation of the one before."""
    random = np.random.default_rng(seed)
    shapes = random.normal(size=(count, 2, 2)) * random.uniform(2, 12, (count, 1, 1)) + 6 * np.eye(2)
    frames = np.concatenate([shapes, random.uniform(0, width, (count, 2, 1))], 2).astype(np.float32)
    quarter = np.array([[0, -1], [1, 0]], np.float32)
    frames[2::3, :, :2] = frames[1::3, :, :2][: len(frames[2::3])] @ quarter
    frames[2::3, :, 2] = frames[1::3, :, 2][: len(frames[2::3])]
    return frames[scales(frames) > 1]
