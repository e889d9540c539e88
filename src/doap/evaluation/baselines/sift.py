"""SIFT and RootSIFT by OpenCV, at given frames."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.objectives import Kind
from doap.photos.frames import Frames, keypoints_from_frames
from doap.photos.images import Grey


@dataclass(frozen=True)
class Sift:
    """SIFT (Lowe, 2004), or with `root` RootSIFT (Arandjelović and Zisserman, 2012).

    RootSIFT is the square root of the L1-normalised descriptor: Euclidean distances between roots are
    Hellinger distances between histograms.
    """

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
        """(N, 2, 3) frames to (N, 128) unit vectors; an affine shape is not used, only scale and rotation."""
        if not len(frames):
            return np.zeros((0, 128), np.float32)
        wanted = keypoints_from_frames(frames)
        # The class id survives, and shows that OpenCV dropped or moved none.
        for number, keypoint in enumerate(wanted):
            keypoint.class_id = number
        described, vectors = cv2.SIFT.create(enable_precise_upscale=True).compute(image, wanted)
        if [k.class_id for k in described] != list(range(len(frames))):
            raise RuntimeError("OpenCV's SIFT did not describe every keypoint in order")
        values = np.asarray(vectors, np.float32)
        if self.root:
            values = np.sqrt(values / np.maximum(values.sum(1, keepdims=True), 1e-12))
        return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12), np.float32)
