"""Features with random values."""

import numpy as np

from doap.features import Features
from doap.images.frames import frames_from_columns
from doap.types import Kind


def random_features(count: int, kind: Kind = "real", seed: int = 0, model: str = "test") -> Features:
    """Return features of a 640x480 image with random frames, responses and descriptors of 128 floats or 256 bits."""
    random = np.random.default_rng(seed)
    frames = frames_from_columns(random.uniform((0, 0, 1, 0), (640, 480, 30, 360), (count, 4)))
    if kind == "binary":
        descriptors = random.integers(0, 256, (count, 32), dtype=np.uint8)
    else:
        values = random.normal(size=(count, 128))
        descriptors = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return Features(frames, descriptors, (480, 640), model, random.random(count, np.float32))
