"""Tilted views of an image: how a plane would appear from the side, as ASIFT synthesises them (Morel and Yu, 2009)."""

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.geometry.homographies import invert_homography, transform_points
from doap.images.frames import MAX_DETECTION_PIXELS, make_upright, transform_frames
from doap.types import Frames, Grey, Homography

BLUR = 0.8  # sigma of the blur that an image is assumed to have, in pixels
TURN = 72.0  # degrees between the turns of a tilt, over the tilt
MIN_SIDE = 12  # views with fewer pixels have no keypoints
BORDER = 3.0  # scales of a frame that must lie within the image
MAX_SUM = 2 * math.sqrt(MAX_DETECTION_PIXELS)  # of the sides: turned by any angle, it has at most twice the pixels


@dataclass(frozen=True, eq=False)
class TiltedView:
    """A synthesised view.

    Attributes:
        image: (H, W) uint8.
        mask: (H, W) bool: pixels that show the original; the border of the original is replicated in the others.
        homography: Affine, from pixels of the original to pixels of the view.
        size: (height, width) of the original.
        turn: Angle by which the view is turned, in radians.
    """

    image: Grey
    mask: NDArray[np.bool_]
    homography: Homography
    size: tuple[int, int]
    turn: float

    def orient(self, frames: Frames) -> Frames:
        """Turn the frames of a detector that does not orient them, so that they are upright but for the turn."""
        if not len(frames) or (frames[:, 0, 1] != 0).any():
            return frames
        back = rotation(-self.turn)
        return transform_frames(make_upright(transform_frames(frames, back)), invert_homography(back))

    def to_original(self, frames: Frames) -> Frames:
        """Map frames of the view to the original."""
        return transform_frames(frames, invert_homography(self.homography))

    def contains(self, frames: Frames) -> NDArray[np.bool_]:
        """Return which frames of the view lie within the original, with `BORDER` times their scale, (N,)."""
        mapped = self.to_original(frames).astype(np.float64)
        centres, margins = mapped[:, :, 2], BORDER * np.linalg.norm(mapped[:, :, :2], axis=2)
        last = np.array(self.size[::-1]) - 0.5
        return np.asarray(((centres - margins >= -0.5) & (centres + margins <= last)).all(1))


def turns(tilt: float) -> list[float]:
    """Return the angles of the views of a tilt, in degrees from 0 to 180: 72 / tilt apart.

    >>> turns(2)
    [0.0, 36.0, 72.0, 108.0, 144.0]
    """
    return [float(turn) for turn in np.arange(0, 180 - 1e-6, TURN / tilt)]


def largest_side(size: tuple[int, ...]) -> int:
    """Return the longer side, in pixels, to which an image is reduced so that its turned views fit into memory."""
    return max(1, math.floor(max(size) * min(1.0, MAX_SUM / sum(size))))


def tilt_image(image: Grey, tilt: float, turn: float) -> TiltedView | None:
    """Turn an image and compress it horizontally.

    Before, it is blurred in this direction with sigma 0.8 √(tilt² - 1), against aliasing.

    Args:
        image: (H, W) uint8.
        tilt: Factor of the compression, at least 1.
        turn: Angle in degrees, clockwise in the image.

    Returns:
        The view; None if it is too small for keypoints.
    """
    height, width = image.shape
    angle = math.radians(turn)
    corners = np.array([[-0.5, -0.5], [width - 0.5, -0.5], [width - 0.5, height - 0.5], [-0.5, height - 0.5]])
    turned = transform_points(corners, rotation(angle))
    start, end = turned.min(0), turned.max(0)
    columns, rows = (max(1, math.ceil(side - 1e-6)) for side in end - start)
    narrow = math.ceil(columns / tilt)
    if min(narrow, rows) < MIN_SIDE:
        return None
    move = np.array([[1, 0, -start[0] - 0.5], [0, 1, -start[1] - 0.5], [0, 0, 1]]) @ rotation(angle)
    compress = np.array([[1 / tilt, 0, 0.5 / tilt - 0.5], [0, 1, 0], [0, 0, 1]])
    view = image if turn == 0 else _warp(image, move, columns, rows)
    if tilt > 1:
        sigma = BLUR * math.sqrt(tilt**2 - 1)
        blurred = cv2.GaussianBlur(view, (2 * math.ceil(3 * sigma) + 1, 1), sigma, borderType=cv2.BORDER_REPLICATE)
        view = _warp(np.asarray(blurred, np.uint8), compress, narrow, rows)
    homography = compress @ move
    mask = np.zeros(view.shape, np.uint8)
    cv2.fillConvexPoly(mask, np.rint(transform_points(corners, homography)).astype(np.int32), 1)
    return TiltedView(view, mask.astype(bool), homography, (height, width), angle)


def rotation(angle: float) -> Homography:
    """Return the rotation by an angle in radians, clockwise in the image."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])


def _warp(image: Grey, affine: Homography, width: int, height: int) -> Grey:
    result = cv2.warpAffine(image, affine[:2], (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(result, np.uint8)
