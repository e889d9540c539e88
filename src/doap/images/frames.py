"""Local affine frames: detections with responses, DoG detection, conversion from keypoints, mapping by homographies.

A frame is a 2x3 matrix [A | c], kornia's LAF. It maps the unit circle to the ellipse c + A u. Coordinates are (x, y) in
pixels; the centre of the top left pixel is (0, 0). The scale of a frame is √|det A|. The frames of an image are one
(N, 2, 3) float32 array.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import scales
from doap.geometry.homographies import transform_points
from doap.types import Frames, Grey

# SIFT's pyramid takes about 60 times the memory of the image; larger images are halved before detection.
MAX_DETECTION_PIXELS = 12_000_000
DOG_LAYERS = 3  # per octave
DOG_CONTRAST = 0.04  # OpenCV's contrast threshold: DOG_LAYERS times the smallest response
SAME_SCALE = 1e-4  # relative difference below which two frames at the same centre differ by a rotation only


@dataclass(frozen=True, eq=False)
class Detections:
    """Frames of an image with the responses of their detector, strongest first.

    Attributes:
        frames: (N, 2, 3) float32.
        responses: (N,) float32, in the units of the detector; 0 where it has none.
    """

    frames: Frames
    responses: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: slice | NDArray[np.int64] | NDArray[np.bool_]) -> "Detections":
        return Detections(self.frames[index], self.responses[index])

    @staticmethod
    def none() -> "Detections":
        """Return no detections."""
        return Detections(np.zeros((0, 2, 3), np.float32), np.zeros(0, np.float32))

    def from_half_resolution(self) -> "Detections":
        """Return the detections in coordinates of an image of twice the resolution."""
        frames = self.frames * np.float32(2)
        frames[:, :, 2] += 0.5  # the centre of the first pixel lies at 0.5 of the full image
        return Detections(frames, self.responses)


@dataclass(frozen=True, eq=False)
class Filter:
    """Condition on detections that is applied before the strongest are selected.

    Attributes:
        mask: (H, W) bool of the full image: where the nearest pixel to a centre is False, the detection is dropped.
        min_response: Smallest response; 0 keeps all that the detector finds by default.
        factor: Pixels of the full image per pixel of the image in which frames are detected.
    """

    mask: NDArray[np.bool_] | None = None
    min_response: float = 0.0
    factor: int = 1

    @property
    def keeps_all(self) -> bool:
        """Whether no detection is dropped."""
        return self.mask is None and self.min_response <= 0

    def keeps(self, centres: NDArray[np.floating], responses: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Return which of (N, 2) centres, (x, y), with (N,) responses are kept, (N,)."""
        # The subpixel refinement of a weak maximum can give a response slightly below 0.
        kept = np.asarray((responses >= self.min_response) | (self.min_response <= 0))
        if self.mask is not None:
            full = np.rint(centres * self.factor + (self.factor - 1) / 2).astype(np.int64)
            x, y = full.clip(0, np.array(self.mask.shape[::-1]) - 1).T
            kept &= self.mask[y, x]
        return kept

    def halved(self) -> "Filter":
        """Return the same condition for detections at half the resolution."""
        return replace(self, factor=2 * self.factor)


Finder = Callable[[Grey, int | None, Filter], Detections]
"""Detector with responses: finder(image, maximum number of frames, condition that they meet)."""


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
    return find_bounded(find_dog, image, limit, Filter()).frames


def find_dog(image: Grey, limit: int | None, condition: Filter) -> Detections:
    """Detect difference-of-Gaussian frames with their responses; see `detect_dog` and `dog_contrast`."""
    if min(image.shape) < 3 or limit == 0:
        return Detections.none()
    # OpenCV retains the strongest itself, ties included, before thousands of Python objects are made.
    retained = limit if limit is not None and condition.keeps_all else 0
    contrast = dog_contrast(condition.min_response)
    sift = cv2.SIFT.create(retained, DOG_LAYERS, contrast, enable_precise_upscale=True)
    keypoints = sift.detect(image, None)
    detections = detections_from_keypoints(keypoints)
    return detections[condition.keeps(detections.frames[:, :, 2], detections.responses)][:limit]


def dog_contrast(min_response: float) -> float:
    """Return OpenCV's contrast threshold: its default, or a lower one if weaker keypoints are asked for."""
    return min(DOG_CONTRAST, DOG_LAYERS * min_response) if min_response > 0 else DOG_CONTRAST


def find_bounded(find: Finder, image: Grey, limit: int | None, condition: Filter) -> Detections:
    """Detect frames at full resolution, or, in images above `MAX_DETECTION_PIXELS`, at half resolution or less."""
    if image.size <= MAX_DETECTION_PIXELS:
        return find(image, limit, condition)
    return find_bounded(find, halve_resolution(image), limit, condition.halved()).from_half_resolution()


def halve_resolution(image: Grey) -> Grey:
    """Halve the resolution of an image by area averaging; a single row or column stays one."""
    if 1 in image.shape:
        image = np.repeat(image, 2, image.shape.index(1))
    return np.asarray(cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), np.uint8)


def detections_from_keypoints(keypoints: Sequence[cv2.KeyPoint]) -> Detections:
    """Convert OpenCV keypoints to detections, strongest first; see `frames_from_keypoints`.

    Equal responses are ordered by position, size and angle.
    """
    return detections_from_table(np.array([(*k.pt, k.size, k.angle, k.response) for k in keypoints]).reshape(-1, 5))


def detections_from_table(table: NDArray[np.float64]) -> Detections:
    """Convert (N, 5) x, y, size, angle and response of OpenCV keypoints; see `detections_from_keypoints`."""
    x, y, size, angle, response = table.T
    table = table[np.lexsort((angle, size, y, x, -response))]
    return Detections(frames_from_table(table[:, :4]), table[:, 4].astype(np.float32))


def frames_from_keypoints(keypoints: Sequence[cv2.KeyPoint]) -> Frames:
    """Convert OpenCV keypoints to (N, 2, 3) frames: scale = size / 2, rotation = angle.

    OpenCV's angle -1 means that there is none: the frame is upright.
    """
    return frames_from_columns(columns_from_keypoints(keypoints))


def columns_from_keypoints(keypoints: Sequence[cv2.KeyPoint]) -> NDArray[np.float64]:
    """Return (N, 4) x, y, scale and angle of OpenCV keypoints; see `frames_from_keypoints`."""
    return _columns(np.array([(*k.pt, k.size, k.angle) for k in keypoints], np.float64).reshape(-1, 4))


def frames_from_table(table: NDArray[np.float64]) -> Frames:
    """Convert (N, 4) x, y, size and angle of OpenCV keypoints to frames."""
    return frames_from_columns(_columns(table))


def frames_from_columns(columns: NDArray[np.float64]) -> Frames:
    """Convert (N, 4) x, y, scale and angle in degrees, clockwise in the image, to frames."""
    x, y, scale, degrees = columns.T
    angle = np.radians(degrees)
    cosine, sine = scale * np.cos(angle), scale * np.sin(angle)
    return np.stack([np.stack([cosine, -sine, x], 1), np.stack([sine, cosine, y], 1)], 1).astype(np.float32)


def _columns(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert (N, 4) x, y, size and angle of OpenCV keypoints to x, y, scale and angle."""
    x, y, size, angle = table.T
    return np.stack([x, y, size / 2, np.where(angle == -1, 0, angle)], 1)


def first_of_each_ellipse(frames: Frames) -> NDArray[np.int64]:
    """Return the ascending indices of the first of the circular frames that differ by a rotation only, (K,)."""
    x, y = frames[:, :, 2].T
    scale = scales(frames.astype(np.float64))
    order = np.lexsort((scale, y, x))
    x, y, scale = x[order], y[order], scale[order]
    same = (x[1:] == x[:-1]) & (y[1:] == y[:-1]) & (scale[1:] - scale[:-1] <= SAME_SCALE * scale[1:])
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(frames)), bool), ~same]))
    return np.sort(np.minimum.reduceat(order, starts)) if len(starts) else starts


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
