"""DoG keypoints of a batch of images, as `cv2.SIFT` detects them, in torch operations for any device."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.images import frames as frames_module
from doap.images.dog.extrema import Extrema, find_extrema
from doap.images.dog.orientation import find_orientations
from doap.images.dog.scale_space import Stacks, build_scale_space
from doap.images.frames import Detections, dog_contrast, frames_from_table

MIN_SIDE = 3  # pixels
MAX_BITS = 0x7FFFFFFF  # of a float32 of at least 0


def find_dog_batch(images: Tensor, limit: int | None = None, min_response: float = 0.0) -> list[Detections]:
    """Detect DoG frames with their orientations, strongest first.

    The keypoints are those of `cv2.SIFT` with its default settings and `enable_precise_upscale`, up to rounding. As
    many images are processed together as have `MAX_DETECTION_PIXELS` in all, which bounds the memory.

    Args:
        images: (B, H, W) grey values 0..255 on any device.
        limit: Number of strongest keypoints per image whose frames are needed; None for all. A keypoint with several
            orientations gives several frames.
        min_response: If positive and below the default threshold, the threshold to use; see `dog_contrast`.

    Returns:
        Detections per image.
    """
    count, height, width = images.shape
    if min(height, width) < MIN_SIDE:
        return [Detections.none() for _ in range(count)]
    together = max(1, frames_module.MAX_DETECTION_PIXELS // (height * width))
    detections = []
    with torch.no_grad():
        for start in range(0, count, together):
            detections += _find(images[start : start + together], limit, dog_contrast(min_response))
    return detections


def _find(images: Tensor, limit: int | None, contrast: float) -> list[Detections]:
    space = build_scale_space(images)
    extrema = _sort(find_extrema(space, contrast))
    strongest = extrema if limit is None else extrema[_rank(extrema.image) < limit]
    table = _orient(space, strongest)
    # A keypoint without a peak in its histogram gives no frame, which is rare.
    if len(strongest) < len(extrema) and len(np.unique(table[:, 5])) < len(strongest):
        table = _orient(space, extrema)
    frames, responses = frames_from_table(table[:, :4]), table[:, 4].astype(np.float32)
    starts = np.searchsorted(table[:, 6], np.arange(1, len(images)))
    parts = zip(np.split(frames, starts), np.split(responses, starts), strict=True)
    return [Detections(*part) for part in parts]


def _sort(extrema: Extrema) -> Extrema:
    """Sort by image, descending response, x, y and sigma."""
    # Floats of at least 0 are ordered as their bits: two keys of 32 bits are sorted in one operation.
    response, sigma, x, y = (_bits(values) for values in (extrema.response, extrema.sigma, *_centres(extrema)))
    order = sigma.argsort(stable=True)
    for first, second in ((x, y), (extrema.image, MAX_BITS - response)):
        order = order[((first << 32) | second)[order].argsort(stable=True)]
    return extrema[order]


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32).long()


def _rank(groups: Tensor) -> Tensor:
    """Return the position of each item within its group, for ascending groups."""
    return torch.arange(len(groups), device=groups.device) - torch.searchsorted(groups, groups)


def _centres(extrema: Extrema) -> tuple[Tensor, Tensor]:
    """Return x and y in image pixels."""
    x, y = ((extrema.pixel[:, :2] + extrema.offset[:, :2]) * extrema.pixel_size[:, None]).unbind(1)
    return x, y


def _orient(space: Stacks, extrema: Extrema) -> NDArray[np.float64]:
    """Return x, y, size, angle and response of OpenCV's keypoints, the row of the extremum, and the image, (M, 7)."""
    rows, degrees = find_orientations(space, extrema)
    size = 2 * extrema.sigma * extrema.pixel_size
    columns = torch.stack([*_centres(extrema), size, extrema.response], 1)
    # Integers as float32 would lose the digits of rows above 2^24.
    numbers = torch.stack([rows, extrema.image[rows]], 1).cpu().numpy()
    x, y, sizes, responses, angles = torch.cat([columns[rows], degrees[:, None]], 1).cpu().numpy().T
    return np.stack([x, y, sizes, angles, responses, *numbers.T], 1, dtype=np.float64)
