"""Features of one image: frames and descriptors."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.files import atomic_file
from doap.types import Descriptors, Frames


@dataclass(frozen=True)
class Features:
    """Local features of one image.

    Attributes:
        frames: (N, 2, 3) float32 affine frames; `frames[:, :, 2]` are the keypoints (x, y).
        descriptors: (N, D) float32 unit vectors, or (N, bits / 8) uint8.
        size: (height, width) of the image.
        model: Name of the model; only features of the same model can be matched.
    """

    frames: Frames
    descriptors: Descriptors
    size: tuple[int, int]
    model: str

    @property
    def keypoints(self) -> NDArray[np.float32]:
        """Centres (x, y) of the frames, (N, 2)."""
        return self.frames[:, :, 2]

    def save(self, path: Path) -> None:
        """Write a NumPy archive (.npz) atomically, with frames, keypoints, descriptors, size and model."""
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                frames=self.frames,
                keypoints=self.keypoints,
                descriptors=self.descriptors,
                size=self.size,
                model=self.model,
            )
