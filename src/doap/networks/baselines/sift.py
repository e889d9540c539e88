"""SIFT (Lowe, IJCV 2004) and RootSIFT (Arandjelović and Zisserman, CVPR 2012) by OpenCV."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import scales
from doap.networks.baselines.opencv import OpenCv
from doap.networks.descriptor import Descriptor
from doap.types import Frames, Grey, Kind


def describe_sift(image: Grey, frames: Frames, root: bool) -> NDArray[np.float32]:
    """SIFT (Lowe, 2004), or with `root` RootSIFT (Arandjelović and Zisserman, 2012).

    RootSIFT is the square root of the L1-normalised descriptor: Euclidean distances between roots are
    Hellinger distances between histograms.

    Args:
        image: (H, W) uint8.
        frames: (N, 2, 3); an affine shape is not used, only scale and rotation.
        root: take the root.

    Returns:
        (N, 128) unit vectors.
    """
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
    if root:
        values = np.sqrt(values / np.maximum(values.sum(1, keepdims=True), 1e-12))
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12), np.float32)


def keypoints_from_frames(frames: Frames) -> list[cv2.KeyPoint]:
    """Frames as OpenCV keypoints, which keep position, scale and rotation but no affine shape.

    OpenCV's SIFT reads the level of its pyramid from the keypoint's octave, not from its size. At octave 0,
    the default, large keypoints would be described on the unblurred image, far worse than SIFT can do, so the
    level is set as the detector would: size = 1.6 · 2^(octave + 1 + layer / 3), layer 1 to 3, octave from -1.
    """
    sizes = 2 * scales(frames)
    angles = np.degrees(np.arctan2(frames[:, 1, 0], frames[:, 0, 0])) % 360
    steps = np.round(3 * np.log2(np.maximum(sizes, 1e-6) / 1.6)).astype(int).clip(min=1)
    octaves, layers = (steps - 1) // 3 - 1, (steps - 1) % 3 + 1
    return [
        cv2.KeyPoint(float(x), float(y), float(size), float(angle), 0.0, int(octave & 255 | layer << 8))
        for (x, y), size, angle, octave, layer in zip(frames[:, :, 2], sizes, angles, octaves, layers, strict=True)
    ]


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


def sift(name: str, root: bool = False) -> Descriptor:
    """SIFT (Lowe, 2004), or with `root` RootSIFT (Arandjelović and Zisserman, 2012).

    SIFT's 4x4 cells, each 3 scales wide, reach half a cell further by interpolation: 15 scales, which are the patch,
    so that nothing outside counts. 65 pixels, since the keypoint must stand on a pixel; the pyramid's level is the
    one that suits the scale. OpenCV cuts the vector to bytes; `Descriptor` makes its length 1, which for RootSIFT is
    the L1 normalisation before the root.
    """
    size = 65
    scale = np.float32(size / 15)
    (keypoint,) = keypoints_from_frames(np.array([[[scale, 0, 0], [0, scale, 0]]], np.float32))
    finish = np.sqrt if root else None
    network = OpenCv(cv2.SIFT.create(), 128, size, keypoint.size, 32, keypoint.octave, finish)
    return Descriptor(network, "real", 7.5, name)
