"""SIFT and RootSIFT descriptors by OpenCV, at given frames."""

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.photos.frames import Frames, keypoints_from_frames
from doap.photos.images import Grey


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
