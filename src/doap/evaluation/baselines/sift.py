"""SIFT and RootSIFT as peers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.objectives import Kind
from doap.photos.frames import Frames
from doap.photos.images import Grey
from doap.photos.sift import describe_sift


@dataclass(frozen=True)
class Sift:
    """SIFT, or with `root` RootSIFT."""

    root: bool = False

    @property
    def name(self) -> str:
        """For tables."""
        return "RootSIFT" if self.root else "SIFT"

    @property
    def kind(self) -> Kind:
        """Vectors."""
        return "real"

    def describe_frames(self, image: Grey, frames: Frames) -> NDArray[np.float32]:
        """(N, 2, 3) frames to (N, 128) unit vectors."""
        return describe_sift(image, frames, self.root)
