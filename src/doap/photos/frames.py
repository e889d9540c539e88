"""Frames: where a patch is cut. Detection, and the geometry of frames under homographies.

A frame is a 2x3 matrix [A | c], kornia's LAF: the unit circle goes to the ellipse c + A u. Coordinates
are (x, y) in pixels, the centre of the top left pixel at (0, 0). Its scale is √|det A|. Frames of an image
are one array (N, 2, 3) float32.
"""

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.photos.images import Grey

Frames = NDArray[np.float32]

# SIFT's pyramid takes about 60 times the image's bytes; larger images are halved for detection first.
MAX_DETECTION_PIXELS = 12_000_000


def detect_dog(image: Grey, limit: int | None = None) -> Frames:
    """Difference-of-Gaussian frames by OpenCV's SIFT, strongest first.

    The scale of a frame is half of OpenCV's keypoint size; its x axis points along the orientation.
    A point with several orientations gives several frames.

    Args:
        image: (H, W) uint8.
        limit: how many frames at most; all by default.

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
    """Detect in the image at half its resolution; the frames are those of the full one."""
    half = cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA).astype(np.uint8)
    frames = detect(half) * np.float32(2)
    frames[:, :, 2] += 0.5  # the centre of the first pixel lies at 0.5 of the larger image
    return frames


def frames_from_keypoints(keypoints: list[cv2.KeyPoint]) -> Frames:
    """OpenCV keypoints as frames: scale = size / 2, rotation = angle; (N, 2, 3)."""
    values = np.array([(*k.pt, k.size, k.angle) for k in keypoints], np.float64).reshape(-1, 4)
    x, y, size, angle = values.T
    cosine, sine = size / 2 * np.cos(np.radians(angle)), size / 2 * np.sin(np.radians(angle))
    return np.stack([np.stack([cosine, -sine, x], 1), np.stack([sine, cosine, y], 1)], 1).astype(np.float32)


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


def scales(frames: Frames) -> NDArray[np.float32]:
    """√|det A| of each frame, (N,): the radius of a circle of the same area."""
    determinant = frames[:, 0, 0] * frames[:, 1, 1] - frames[:, 0, 1] * frames[:, 1, 0]
    return np.sqrt(np.abs(determinant))


def transform_points(points: NDArray[np.floating], homography: NDArray[np.float64]) -> NDArray[np.float64]:
    """Send (…, 2) points through a 3x3 homography."""
    sent = points @ homography[:, :2].T + homography[:, 2]
    return np.asarray(sent[..., :2] / sent[..., 2:], np.float64)


def transform_frames(frames: Frames, homography: NDArray[np.float64]) -> Frames:
    """Send frames through a homography, which acts on each as its affine approximation at the centre."""
    centres = frames[:, :, 2].astype(np.float64)
    depth = centres @ homography[2, :2] + homography[2, 2]
    sent = transform_points(centres, homography)
    # d/dp [(H p)_i / (H p)_3] = (H_i - sent_i H_3) / depth
    jacobian = (homography[None, :2, :2] - sent[:, :, None] * homography[None, 2:, :2]) / depth[:, None, None]
    return np.concatenate([jacobian @ frames[:, :, :2], sent[:, :, None]], axis=2).astype(np.float32)
