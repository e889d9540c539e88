"""Keypoints as users have them: OpenCV's, kornia's LAFs, frames, or arrays of x, y, scale and angle."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from doap.errors import DoapError
from doap.geometry.ellipses import scales
from doap.images.frames import columns_from_keypoints, frames_from_columns
from doap.types import Frames

KeypointsLike = Sequence[cv2.KeyPoint] | Tensor | ArrayLike


def to_frames(keypoints: KeypointsLike) -> Frames:
    """Convert keypoints of any supported form to (N, 2, 3) float32 frames, in the same order.

    Args:
        keypoints: OpenCV's keypoints (scale = size / 2; the angle -1 means none and gives an upright frame); LAFs,
            (1, N, 2, 3); frames, (N, 2, 3); or (N, 4) x, y, scale and angle in degrees, clockwise in the image.

    Raises:
        DoapError: For another form, and for a keypoint that is not finite or whose scale is not positive, with its
            index.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # of keypoints that are reported below
        if isinstance(keypoints, list | tuple) and all(isinstance(keypoint, cv2.KeyPoint) for keypoint in keypoints):
            frames = _from_columns(columns_from_keypoints(keypoints))
        else:
            frames = _from_array(keypoints)
        bad = ~np.isfinite(frames).all((1, 2)) | ~(frame_scales(frames) > 0)
    if bad.any():
        index = int(np.argmax(bad))
        raise DoapError(
            f"keypoint {index} has no valid position and scale: {frames[index].tolist()}; "
            "positions must be finite and scales positive"
        )
    return frames


def frame_scales(frames: Frames) -> NDArray[np.float32]:
    """Return the scales √|det A| of (N, 2, 3) frames, (N,)."""
    return scales(frames.astype(np.float64)).astype(np.float32)


def frame_angles(frames: Frames) -> NDArray[np.float32]:
    """Return the orientations of (N, 2, 3) frames in degrees, 0 to 360, clockwise in the image, (N,).

    The orientation is the rotation R in A = L R, with L lower triangular: 0 for upright frames of any shape.
    """
    degrees = np.degrees(np.arctan2(-frames[:, 0, 1].astype(np.float64), frames[:, 0, 0]))
    angles = (degrees % 360).astype(np.float32)
    return np.where(angles >= 360, np.float32(0), angles)  # -1e-9 % 360 rounds to 360


def _from_columns(columns: NDArray[np.float64]) -> Frames:
    """Convert (N, 4) x, y, scale and angle; the shape of a frame without a positive scale is 0."""
    frames = frames_from_columns(columns)
    # A negative scale is the same matrix as a rotation by 180 degrees: it must not pass as one.
    frames[columns[:, 2] <= 0, :, :2] = 0
    return frames


def _from_array(keypoints: Any) -> Frames:
    if isinstance(keypoints, Tensor):
        keypoints = keypoints.detach().cpu()
        if keypoints.dtype == torch.bfloat16:  # which NumPy does not have
            keypoints = keypoints.float()
    try:
        array = np.asarray(keypoints)
    except (TypeError, ValueError, RuntimeError) as error:  # the others: by lists of tensors
        raise DoapError(
            "keypoints must be rows of equally many numbers, without gradients, or OpenCV keypoints"
        ) from error
    if array.dtype.kind not in "fiu":
        raise DoapError(f"keypoints must be numbers or OpenCV keypoints, not {array.dtype}")
    if array.ndim == 4 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 3 and array.shape[1:] == (2, 3):
        return np.array(array, np.float32, order="C")  # a copy: the caller may change its array
    if array.ndim == 2 and array.shape[1] == 4:
        return _from_columns(array.astype(np.float64))
    raise DoapError(
        f"keypoints must be OpenCV's, (1, N, 2, 3) LAFs, (N, 2, 3) frames or (N, 4) x, y, scale, angle, "
        f"not of shape {array.shape}"
    )
