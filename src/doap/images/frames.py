"""Local affine frames: DoG detection, conversion from keypoints, and mapping by homographies.

A frame is a 2x3 matrix [A | c], kornia's LAF. It maps the unit circle to the ellipse c + A u. Coordinates are (x, y) in
pixels; the centre of the top left pixel is (0, 0). The scale of a frame is √|det A|. The frames of an image are one
(N, 2, 3) float32 array.
"""

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.geometry.homographies import transform_points
from doap.types import Frames, Grey

# SIFT's pyramid takes about 60 times the memory of the image; larger images are halved before detection.
MAX_DETECTION_PIXELS = 12_000_000


def detect_dog(image: Grey, limit: int | None = None) -> Frames:
    """Detect difference-of-Gaussian frames with OpenCV's SIFT, strongest first.

    The scale of a frame is half of OpenCV's keypoint size; its x axis points along the orientation. A keypoint with
    several orientations gives several frames.

    Args:
        image: (H, W) uint8.
        limit: Maximum number of frames; None for all.

    Returns:
        (N, 2, 3) float32.
    """
    if image.size > MAX_DETECTION_PIXELS:
        return detect_halved(image, lambda half: detect_dog(half, limit))
    if min(image.shape) < 3:
        return np.zeros((0, 2, 3), np.float32)
    keypoints = cv2.SIFT.create(enable_precise_upscale=True).detect(image, None)
    keypoints = sorted(keypoints, key=lambda k: (-k.response, k.pt, k.size, k.angle))[:limit]
    return frames_from_keypoints(list(keypoints))


def detect_halved(image: Grey, detect: Callable[[Grey], Frames]) -> Frames:
    """Detect frames at half resolution, and return them in coordinates of the full image."""
    half = cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA).astype(np.uint8)
    frames = detect(half) * np.float32(2)
    frames[:, :, 2] += 0.5  # the centre of the first pixel lies at 0.5 of the full image
    return frames


def frames_from_keypoints(keypoints: list[cv2.KeyPoint]) -> Frames:
    """Convert OpenCV keypoints to (N, 2, 3) frames: scale = size / 2, rotation = angle."""
    values = np.array([(*k.pt, k.size, k.angle) for k in keypoints], np.float64).reshape(-1, 4)
    x, y, size, angle = values.T
    cosine, sine = size / 2 * np.cos(np.radians(angle)), size / 2 * np.sin(np.radians(angle))
    return np.stack([np.stack([cosine, -sine, x], 1), np.stack([sine, cosine, y], 1)], 1).astype(np.float32)


def make_upright(frames: Frames) -> Frames:
    """Rotate frames so that their y axis is vertical in the image: A becomes lower triangular.

    The ellipses stay the same. This is the orientation of VLFeat's frames if none is estimated.
    """
    a, b, c, d = frames[:, :, :2].reshape(-1, 4).astype(np.float64).T
    upright = frames.copy()
    width = np.hypot(a, b)
    upright[:, 0, 0], upright[:, 0, 1] = width, 0
    upright[:, 1, 0], upright[:, 1, 1] = (a * c + b * d) / width, (a * d - b * c) / width
    return upright


def transform_frames(frames: Frames, homography: NDArray[np.float64]) -> Frames:
    """Map frames by a homography, which is replaced by its affine approximation at each centre."""
    centres = frames[:, :, 2].astype(np.float64)
    depth = centres @ homography[2, :2] + homography[2, 2]
    mapped = transform_points(centres, homography)
    # d/dp [(H p)_i / (H p)_3] = (H_i - mapped_i H_3) / depth
    jacobian = (homography[None, :2, :2] - mapped[:, :, None] * homography[None, 2:, :2]) / depth[:, None, None]
    return np.concatenate([jacobian @ frames[:, :, :2], mapped[:, :, None]], axis=2).astype(np.float32)
