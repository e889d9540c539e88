"""SIFT (Lowe, IJCV 2004) and RootSIFT (Arandjelović and Zisserman, CVPR 2012) by OpenCV.

`Sift` describes frames in an image, where all pixels are available. `build_sift` describes patches.
"""

from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import scales
from doap.geometry.rotations import rotation_angles
from doap.networks.baselines.opencv import OpenCv, create_extractor
from doap.networks.descriptor import Descriptor
from doap.types import Frames, Grey, Kind

DIMENSIONS = 128

# 4x4 cells, each 3 scales wide, extend by half a cell on either side through interpolation.
WINDOW_SCALES = 15

PATCH_SIZE = 65  # odd, so that the keypoint lies on a pixel


@dataclass(frozen=True)
class Sift:
    """SIFT, or RootSIFT if `root`, of frames in an image."""

    root: bool = False

    @property
    def name(self) -> str:
        """Name in tables."""
        return "RootSIFT" if self.root else "SIFT"

    @property
    def kind(self) -> Kind:
        """Kind of the descriptor."""
        return "real"

    def describe_frames(self, image: Grey, frames: Frames) -> NDArray[np.float32]:
        """Compute the descriptors of (N, 2, 3) frames, (N, 128) unit vectors."""
        return describe_sift(image, frames, self.root)


IN_IMAGE = {"sift": Sift(), "rootsift": Sift(root=True)}
"""Baselines, by name, that are computed in the image, where OpenCV has all pixels, unless an extent is given."""


def describe_sift(image: Grey, frames: Frames, root: bool) -> NDArray[np.float32]:
    """Compute SIFT or RootSIFT of frames in an image.

    Args:
        image: (H, W) uint8.
        frames: (N, 2, 3); scale and rotation are used, the affine shape is not.
        root: Compute RootSIFT.

    Returns:
        (N, 128) unit vectors.
    """
    if not len(frames):
        return np.zeros((0, DIMENSIONS), np.float32)
    keypoints = keypoints_from_frames(frames)
    # The class id shows whether OpenCV dropped or reordered keypoints.
    for index, keypoint in enumerate(keypoints):
        keypoint.class_id = index
    described, raw = cv2.SIFT.create(enable_precise_upscale=True).compute(image, keypoints)
    if [keypoint.class_id for keypoint in described] != list(range(len(frames))):
        raise RuntimeError("OpenCV's SIFT did not describe every keypoint in order")
    vectors = np.asarray(raw, np.float32)
    if root:
        vectors = rootsift(vectors)
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def rootsift(sift: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute RootSIFT from SIFT: the square root of the L1-normalised vector.

    Euclidean distances between roots are Hellinger distances between histograms.

    Args:
        sift: (N, 128) SIFT vectors of any length.

    Returns:
        (N, 128) unit vectors; a zero vector stays zero.
    """
    return np.asarray(np.sqrt(sift / np.maximum(sift.sum(1, keepdims=True), 1e-12)), np.float32)


def keypoints_from_frames(frames: Frames) -> list[cv2.KeyPoint]:
    """Convert frames to OpenCV keypoints, which have position, scale and rotation but no affine shape.

    The angle is that of the rotation nearest to the shape of the frame.

    OpenCV's SIFT reads the pyramid level from the octave of the keypoint, not from its size. With the default octave 0
    it would describe large keypoints on the unblurred image, with far worse results. The level is therefore set as
    the detector sets it: size = 1.6 · 2^(octave + 1 + layer / 3), with layers 1 to 3 and octaves from -1.
    """
    sizes = 2 * scales(frames)
    angles = np.degrees(rotation_angles(frames[:, :, :2].astype(np.float64))) % 360
    steps = np.round(3 * np.log2(np.maximum(sizes, 1e-6) / 1.6)).astype(int).clip(min=1)
    octaves, layers = (steps - 1) // 3 - 1, (steps - 1) % 3 + 1
    return [
        cv2.KeyPoint(float(x), float(y), float(size), float(angle), 0.0, int(octave & 255 | layer << 8))
        for (x, y), size, angle, octave, layer in zip(frames[:, :, 2], sizes, angles, octaves, layers, strict=True)
    ]


def build_sift(name: str, root: bool = False) -> Descriptor:
    """Build SIFT, or RootSIFT if `root`, of patches.

    The sampling window of SIFT, 15 scales wide, is the patch, so nothing outside contributes. The pyramid level is the
    one that belongs to the scale.
    """
    scale = np.float32(PATCH_SIZE / WINDOW_SCALES)
    (keypoint,) = keypoints_from_frames(np.array([[[scale, 0, 0], [0, scale, 0]]], np.float32))
    postprocess = rootsift if root else None
    create = partial(create_extractor, "SIFT", name)
    network = OpenCv(create, DIMENSIONS, PATCH_SIZE, keypoint.size, 32, keypoint.octave, postprocess)
    return Descriptor(network, "real", WINDOW_SCALES / 2, name)
