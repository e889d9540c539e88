"""Types shared by all packages."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["real", "binary"]
"""Kind of a descriptor: unit vectors compared by Euclidean distance, or bits compared by Hamming distance."""

Grey = NDArray[np.uint8]
"""A grey image, (H, W) uint8."""

Frames = NDArray[np.float32]
"""Local affine frames, (N, 2, 3) float32; see `doap.images.frames`."""

Descriptors = NDArray[Any]
"""Descriptors of one image or set: (N, D) float32 unit vectors, or (N, bits / 8) uint8."""

Record = dict[str, NDArray[Any] | str | int | float]
"""Entries of features or matches as they are stored; see `doap.features.storage`."""

Homography = NDArray[np.float64]
"""A homography, (3, 3) float64."""

Progress = Callable[[int, int], None]
"""Callback of long work: `progress(done, total)`."""


def no_progress(done: int, total: int) -> None:
    """Ignore progress."""


StepProgress = Callable[[str, int, int | None], None]
"""Callback of work in several steps: `progress(step, done, total)`; the total is None where it is unknown."""


def no_step_progress(step: str, done: int, total: int | None) -> None:
    """Ignore progress."""
