"""Images to features: detect keypoints, or take given ones, and describe them with a model."""

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, overload

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.choices import DEFAULT_DETECTOR
from doap.errors import DoapError, check_number
from doap.extents import check_extent
from doap.features.features import Features
from doap.features.image_input import GreyImage, ImageLike, read_image, shrink_image, split_images
from doap.features.keypoint_input import KeypointsLike, to_frames
from doap.features.views import View, describe_views, on_device
from doap.images.detection import (
    CustomDetector,
    FrameShape,
    Mask,
    check_options,
    detect,
    detect_batch,
    detector_name,
    mask_array,
)
from doap.networks.descriptor import Descriptor, check_model

BATCH_PIXELS = 1 << 25  # of images whose frames are detected together on a GPU


@overload
def detect_and_describe(
    image: list[Any] | tuple[Any, ...],
    model: Descriptor,
    *,
    detector: str | CustomDetector = ...,
    frames: FrameShape = ...,
    max_keypoints: int | None = ...,
    mask: Sequence[Mask | None] | None = ...,
    min_response: float = ...,
    max_size: int | None = ...,
) -> list[Features]: ...


@overload
def detect_and_describe(
    image: ImageLike,
    model: Descriptor,
    *,
    detector: str | CustomDetector = ...,
    frames: FrameShape = ...,
    max_keypoints: int | None = ...,
    mask: Mask | None = ...,
    min_response: float = ...,
    max_size: int | None = ...,
) -> Features: ...


def detect_and_describe(
    image: ImageLike | list[Any] | tuple[Any, ...],
    model: Descriptor,
    *,
    detector: str | CustomDetector = DEFAULT_DETECTOR,
    frames: FrameShape = "detected",
    max_keypoints: int | None = 2000,
    mask: Mask | Sequence[Mask | None] | None = None,
    min_response: float = 0.0,
    max_size: int | None = None,
) -> Features | list[Features]:
    """Detect keypoints in an image, or in several, and describe them.

    Detection, extraction of patches and the network run on the device of the model; a detector that does not exist
    there runs on the CPU. Patches are extracted at the extent that the model's card gives for the detector. An image
    without keypoints gives features of length 0.

    Args:
        image: Path; PIL image; array (H, W), (H, W, 3) or (H, W, 4), uint8, uint16, bool, or float in 0..1; tensor
            (H, W), (1, H, W) or (3, H, W) on any device, uint8, or float in 0..1; see `docs/features.md`. A list or
            tuple of images, or a tensor (B, 1, H, W) or (B, 3, H, W), gives a list of features.
        model: Model from `doap.load`.
        detector: Name of a detector, see `doap.DETECTORS`; or a function of an (H, W) uint8 array that returns
            (N, 2, 3) frames, strongest first, or a sequence of `cv2.KeyPoint`.
        frames: "detected", as they are; "upright", one per keypoint; "baumberg": adapted to affine shape, then oriented
            along the gradients; or "learned": affine shape and scale corrected by a network, then oriented likewise,
            see `docs/frames.md`.
        max_keypoints: Number of strongest frames to keep per image; None keeps all.
        mask: (H, W) array or tensor, a list of them for several images; frames are kept where it is not 0.
        min_response: Smallest response of a frame, in the units of the detector; for "dog", values below its default
            of 0.0133 give weaker frames, too.
        max_size: Longest side at which keypoints are detected and described, in pixels; larger images are reduced.
            Frames are always in pixels of the given image.

    Raises:
        DoapError: If an image cannot be read, or an option is out of range.

    Example:
        >>> import doap, skimage
        >>> features = doap.detect_and_describe(skimage.data.camera(), doap.load("doap-demo-128"), max_keypoints=500)
        >>> features.descriptors.shape
        (500, 128)
    """
    check_model(model)
    options = DetectionOptions(detector, frames, max_keypoints, min_response, max_size)
    images, masks = split_images(image), cast(Any, mask)
    if images is None:
        return options.describe([image], [masks], model)[0]
    if masks is None:
        masks = [None] * len(images)
    count = _count(masks)
    if count != len(images):
        raise DoapError(f"{len(images)} images need as many masks, not {count}; use None where there is none")
    return options.describe(images, masks, model)


def _count(masks: Any) -> int | str:
    """Return the number of masks; the name of the type of what has no length."""
    try:
        return len(masks)
    except TypeError:
        return type(masks).__name__


def describe_keypoints(
    image: ImageLike, keypoints: KeypointsLike, model: Descriptor, *, extent: float | None = None
) -> Features:
    """Describe given keypoints of an image; row i of the result is keypoint i.

    Keypoints outside the image are described as well: its border is replicated.

    Args:
        image: The image; see `detect_and_describe`.
        keypoints: List or tuple of `cv2.KeyPoint` (scale = size / 2; the angle -1 means none and gives an upright
            frame); kornia's LAFs, (1, N, 2, 3); frames, (N, 2, 3); or (N, 4) x, y, scale and angle in degrees,
            clockwise in the image.
        model: Model from `doap.load`.
        extent: Half the side of a patch in units of the keypoint's scale; None takes that of the model for DoG
            keypoints. For those of another detector of OpenCV pass `model.extent_for("orb")`, or "akaze", "brisk",
            "gftt" or "fast". Kornia's detectors multiply scales by 6: for their LAFs, pass
            `model.extent_for("dog") / 6`.

    Raises:
        DoapError: If the image cannot be read, or a keypoint is not finite or its scale not positive.

    Example:
        >>> import cv2, doap, skimage
        >>> image = skimage.data.camera()
        >>> keypoints = cv2.ORB.create(100).detect(image, None)
        >>> model = doap.load("doap-demo-256b")
        >>> doap.describe_keypoints(image, keypoints, model, extent=model.extent_for("orb")).descriptors.shape
        (100, 32)
    """
    check_model(model)
    frames = to_frames(keypoints)
    grey = on_device(read_image(image), model)
    responses = _responses(keypoints)
    extent = model.extent_for(DEFAULT_DETECTOR) if extent is None else check_extent(extent)
    (features,) = describe_views([View(grey, frames, responses, (grey.shape[0], grey.shape[1]))], model, extent)
    return features


@dataclass(frozen=True)
class DetectionOptions:
    """Options of detection, see `detect_and_describe`."""

    detector: str | CustomDetector
    frames: FrameShape
    max_keypoints: int | None
    min_response: float
    max_size: float | None

    def __post_init__(self) -> None:
        check_number("min_response", self.min_response)
        for name in ("max_keypoints", "max_size"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        if self.max_size is not None and not self.max_size >= 1:
            raise DoapError(f"max_size must be at least 1 pixel, or None for no limit, not {self.max_size}")
        if math.isnan(self.min_response):
            raise DoapError("min_response must be a number, not NaN")
        self._to_python()
        if not isinstance(self.detector, str) and not callable(self.detector):
            raise DoapError(
                f"a detector must be a name or a function, as cv2.ORB.create().detect is, not {self.detector!r}"
            )
        check_options(self.detector, self.frames, self.max_keypoints)

    def _to_python(self) -> None:
        """Convert numbers of array libraries, which OpenCV and NumPy do not all take, to those of Python."""
        object.__setattr__(self, "min_response", float(self.min_response))
        if self.max_size is not None:
            object.__setattr__(self, "max_size", float(self.max_size))
        if self.max_keypoints is None:
            return
        try:
            if isinstance(self.max_keypoints, bool):
                raise TypeError
            object.__setattr__(self, "max_keypoints", operator.index(self.max_keypoints))
        except TypeError:
            raise DoapError(
                f"max_keypoints must be a whole number, or None for all, not {self.max_keypoints}"
            ) from None

    def describe(self, images: Sequence[Any], masks: Sequence[Mask | None], model: Descriptor) -> list[Features]:
        """Detect and describe keypoints of images, at the extent of the model for the detector."""
        extent = model.extent_for(detector_name(self.detector))
        return describe_views(self.detect(images, masks, model), model, extent)

    def detect(self, images: Sequence[Any], masks: Sequence[Mask | None], model: Descriptor) -> Iterator[View]:
        """Yield the images on the device of a model with their frames; tensors of equal size are detected together."""
        group: list[_Input] = []
        for number, (image, mask) in enumerate(zip(images, masks, strict=True)):
            try:
                item = self._read(image, mask, model)
            except DoapError as error:
                if len(images) == 1 or isinstance(image, str | Path):  # a path is named by its own message
                    raise
                raise DoapError(f"image {number} of the list: {error}") from error
            if group and not item.joins(group):
                yield from self._detect(group)
                group = []
            group.append(item)
        if group:
            yield from self._detect(group)

    def _read(self, image: ImageLike, mask: Mask | None, model: Descriptor) -> "_Input":
        full = on_device(read_image(image), model)
        size = full.shape[0], full.shape[1]
        small = shrink_image(full, self.max_size)
        return _Input(small, None if mask is None else _resize_mask(mask, size, small.shape), size)

    def _detect(self, group: list["_Input"]) -> Iterator[View]:
        images, masks = [item.image for item in group], [item.mask for item in group]
        settings = self.detector, self.frames, self.max_keypoints
        if len(group) == 1:
            detections = [detect(images[0], *settings, masks[0], self.min_response)]
        else:
            batch = torch.stack([image for image in images if isinstance(image, Tensor)])
            detections = detect_batch(batch, *settings, masks, self.min_response)
        for item, detected in zip(group, detections, strict=True):
            yield View(item.image, detected.frames, detected.responses, item.size)


@dataclass(frozen=True, eq=False)
class _Input:
    """An image at the size of detection with its mask, and the (height, width) of the given image."""

    image: GreyImage
    mask: NDArray[np.bool_] | None
    size: tuple[int, int]

    def joins(self, group: list["_Input"]) -> bool:
        """Return whether this image can be detected together with a group."""
        pixels = (len(group) + 1) * self.image.shape[0] * self.image.shape[1]
        return isinstance(self.image, Tensor) and self.image.shape == group[0].image.shape and pixels <= BATCH_PIXELS


def _resize_mask(mask: Mask, size: tuple[int, int], target: tuple[int, ...]) -> NDArray[np.bool_]:
    """Check the size of a mask, and take its value at the centre of every pixel of the reduced image."""
    array = mask_array(mask)
    if array.shape != size:
        raise DoapError(f"the mask has shape {array.shape}, but the image {size}; resize the mask")
    rows, columns = (((np.arange(n) + 0.5) * side / n).astype(np.int64) for n, side in zip(target, size, strict=True))
    return np.asarray(array[rows][:, columns])


def _responses(keypoints: KeypointsLike) -> NDArray[np.float32] | None:
    """Return the responses of OpenCV's keypoints; None for other forms."""
    if not isinstance(keypoints, list | tuple) or not all(isinstance(k, cv2.KeyPoint) for k in keypoints):
        return None
    return np.array([k.response for k in keypoints], np.float32)
