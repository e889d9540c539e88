"""Features of a photo by which photos are linked and tracked, computed once and kept in a file."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from doap.files import atomic_file
from doap.images.frames import MAX_DETECTION_PIXELS, detect_dog, frames_from_keypoints
from doap.images.reconstruction.cached_arrays import read_cached
from doap.images.reconstruction.static import edge_map, thumbnail
from doap.networks.baselines.sift import describe_sift, rootsift
from doap.types import Frames, Grey

FEATURES = 2000
DESCRIPTOR_SCALE = 512  # OpenCV's SIFT vectors have about this length, and integer elements up to 255


@dataclass(frozen=True)
class PhotoFeatures:
    """DoG frames of a photo, (N, 2, 3), their RootSIFT descriptors, (N, 128), and the photo's (height, width)."""

    frames: Frames
    descriptors: NDArray[np.float32]
    size: tuple[int, int]


@dataclass(frozen=True)
class PhotoRecord:
    """What a build needs to know of a photo.

    Attributes:
        frames: (N, 2, 3) strongest DoG frames, strongest first.
        sift: (N, 128) uint8 SIFT descriptors.
        size: (height, width).
        thumbnail: (1024,); see `static.thumbnail`.
        contrast: Standard deviation of the grey values.
    """

    frames: Frames
    sift: NDArray[np.uint8]
    size: tuple[int, int]
    thumbnail: NDArray[np.float32]
    contrast: float

    @classmethod
    def of_image(cls, image: Grey, limit: int = FEATURES) -> Self:
        """Extract up to `limit` features of an image."""
        frames, sift = _detect_and_describe(image, limit)
        height, width = image.shape
        return cls(frames, sift, (height, width), thumbnail(edge_map(image)), float(image.std()))

    def features(self, limit: int | None = None) -> PhotoFeatures:
        """Return the strongest features with RootSIFT descriptors."""
        vectors = rootsift(self.sift[:limit].astype(np.float32))
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        # Memory of torch is aligned to cache lines. The rounding of matrix products depends on the alignment.
        return PhotoFeatures(self.frames[:limit], torch.from_numpy(vectors).clone().numpy(), self.size)

    def save(self, file: Path) -> None:
        """Write the record atomically."""
        with atomic_file(file) as temporary, temporary.open("wb") as output:
            np.savez(
                output,
                frames=self.frames,
                sift=self.sift,
                size=self.size,
                thumbnail=self.thumbnail,
                contrast=self.contrast,
            )

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read a record."""
        content = read_cached(file, [field.name for field in fields(cls)])
        height, width = content["size"].tolist()
        return cls(
            content["frames"], content["sift"], (height, width), content["thumbnail"], float(content["contrast"])
        )


def _detect_and_describe(image: Grey, limit: int) -> tuple[Frames, NDArray[np.uint8]]:
    """Return the frames of `detect_dog` and their SIFT descriptors, from one scale space where it fits into memory."""
    if min(image.shape) < 3 or image.size > MAX_DETECTION_PIXELS:
        frames = detect_dog(image, limit)
        return frames, (DESCRIPTOR_SCALE * describe_sift(image, frames, root=False)).round().clip(0, 255).astype(
            np.uint8
        )
    keypoints, vectors = cv2.SIFT.create(limit, enable_precise_upscale=True).detectAndCompute(image, None)
    if not keypoints:
        return np.zeros((0, 2, 3), np.float32), np.zeros((0, 128), np.uint8)
    order = sorted(range(len(keypoints)), key=lambda i: _strength(keypoints[i]))[:limit]
    return frames_from_keypoints([keypoints[i] for i in order]), np.asarray(vectors)[order].astype(np.uint8)


def _strength(keypoint: cv2.KeyPoint) -> tuple[float, tuple[float, ...], float, float]:
    """Return the key of the order of `detect_dog`."""
    return -keypoint.response, tuple(keypoint.pt), keypoint.size, keypoint.angle
