"""Image to features: detect DoG keypoints and describe them with a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from doap.errors import DoapError
from doap.features.features import Features
from doap.images.detectors import DETECTORS
from doap.images.extraction import extract_patches
from doap.images.reading import read_grey, to_grey
from doap.networks.descriptor import Descriptor, describe_patches
from doap.types import Descriptors, Frames, Grey, Kind

DETECTOR = "dog"  # detector of `detect_and_describe`, one of `DETECTORS`

ImageLike = str | Path | NDArray[np.uint8] | Image.Image


class FrameDescriber(Protocol):
    """Learned or handcrafted method that describes frames of an image."""

    @property
    def name(self) -> str:
        """Name in tables and messages."""

    @property
    def kind(self) -> Kind:
        """Kind of the descriptors: real vectors or bits."""

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        """Describe (N, 2, 3) frames of a grey image.

        Returns:
            (N, D) float32 unit vectors, or (N, bits / 8) uint8.
        """


@dataclass(frozen=True)
class ModelDescriber:
    """`FrameDescriber` of a patch model.

    Patches are extracted at the extent that the model's card gives for DoG frames.
    """

    model: Descriptor

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    @property
    def kind(self) -> Kind:
        """Kind of the model."""
        return self.model.kind

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        """Extract the patches of the frames and describe them."""
        patches = extract_patches(image, frames, self.model.input_size, self.model.extent_for(DETECTOR))
        return describe_patches(patches, self.model)


def detect_and_describe(
    image: ImageLike, model: Descriptor, max_keypoints: int | None = 2000, name: str = "image"
) -> Features:
    """Detect DoG keypoints in an image and describe them.

    Patches are extracted at the extent that the model's card gives for DoG frames.

    Args:
        image: Path, or (H, W) grey or (H, W, 3) RGB uint8 array, or PIL image.
        model: Model from `doap.load`.
        max_keypoints: Number of strongest keypoints to keep; None keeps all.
        name: Name of the image in error messages, if it is not a path.

    Raises:
        DoapError: If the image cannot be read or has no keypoint.

    Example:
        >>> import doap, skimage
        >>> features = doap.detect_and_describe(skimage.data.camera(), doap.load("doap-demo-128"), 500)
        >>> features.descriptors.shape
        (500, 128)
    """
    if isinstance(image, str | Path):
        name = str(image)
    grey = _read(image)
    frames = DETECTORS[DETECTOR](grey, max_keypoints)
    if not len(frames):
        raise DoapError(f"{name}: no keypoint found in {grey.shape[1]}x{grey.shape[0]} pixels; is it flat or tiny?")
    height, width = grey.shape
    return Features(frames, ModelDescriber(model).describe_frames(grey, frames), (height, width), model.name)


def _read(image: ImageLike) -> Grey:
    if isinstance(image, str | Path):
        return read_grey(image)
    if isinstance(image, Image.Image):
        return to_grey(image)
    array = np.asarray(image)
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise DoapError(f"an image must be (H, W), (H, W, 3) or (H, W, 4) uint8, not {array.shape} {array.dtype}")
    return to_grey(Image.fromarray(array))
