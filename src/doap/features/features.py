"""Images to features to matches: the road of the users, one function a step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from doap.errors import DoapError
from doap.files import atomic_file
from doap.geometry.robust import Geometry, verify
from doap.images.detectors import DETECTORS
from doap.images.extraction import extract_patches
from doap.images.reading import read_grey, to_grey
from doap.matching.nearest import mutual_nearest
from doap.networks.descriptor import Descriptor, describe
from doap.types import Descriptors, Frames, Grey, Kind

DETECTOR = "dog"  # of `DETECTORS`: what `detect_and_describe` finds frames by

ImageLike = str | Path | NDArray[np.uint8] | Image.Image


@dataclass(frozen=True)
class Features:
    """What is known of one image.

    Attributes:
        frames: (N, 2, 3) float32; `frames[:, :, 2]` are the keypoints (x, y).
        descriptors: (N, d) float32 unit vectors, or (N, bits / 8) uint8.
        size: (height, width) of the image.
        model: what described it; only features of the same model can be matched.
    """

    frames: Frames
    descriptors: Descriptors
    size: tuple[int, int]
    model: str

    @property
    def keypoints(self) -> NDArray[np.float32]:
        """(N, 2) centres of the frames."""
        return self.frames[:, :, 2]

    def save(self, path: Path) -> None:
        """Write as a NumPy archive (.npz), atomically: frames, keypoints, descriptors, size, model."""
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                frames=self.frames,
                keypoints=self.keypoints,
                descriptors=self.descriptors,
                size=self.size,
                model=self.model,
            )


@dataclass(frozen=True)
class Matches:
    """Mutual nearest neighbours of two images, and which of them fit one geometry.

    Attributes:
        indices: (P, 2) into the features of the first and of the second image.
        distances: (P,) between their descriptors.
        inliers: (P,) bool.
        matrix: 3x3 fundamental matrix or homography from the first to the second image, or None where
            the matches agree on none.
    """

    indices: NDArray[np.int64]
    distances: NDArray[np.float64]
    inliers: NDArray[np.bool_]
    matrix: NDArray[np.float64] | None

    def __len__(self) -> int:
        return len(self.indices)

    def verified_points(self, first: Features, second: Features) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The inliers' places (x, y) in the first and in the second image, each (K, 2)."""
        kept = self.indices[self.inliers]
        return first.keypoints[kept[:, 0]], second.keypoints[kept[:, 1]]


class FrameDescriber(Protocol):
    """Anything that describes the frames of an image: learned, or handcrafted."""

    @property
    def name(self) -> str:
        """For tables and messages."""

    @property
    def kind(self) -> Kind:
        """Whether it gives vectors or bits."""

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        """(N, 2, 3) frames of a grey image to (N, …) descriptors."""


@dataclass(frozen=True)
class PatchDescriber:
    """A patch descriptor as a frame describer: cuts patches at the extent that is best for DoG frames."""

    model: Descriptor

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def kind(self) -> Kind:
        """The model's kind."""
        return self.model.kind

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        """Cut the patches and describe them."""
        patches = extract_patches(image, frames, self.model.input_size, self.model.extent_for(DETECTOR))
        return describe(patches, self.model)


def detect_and_describe(
    image: ImageLike, model: Descriptor, max_keypoints: int | None = 2000, name: str = "image"
) -> Features:
    """Find keypoints (DoG) in an image and describe them, at the extent that the model is best at.

    Args:
        image: a path; or an array, (H, W) grey or (H, W, 3) RGB uint8; or a PIL image.
        model: from `doap.load`.
        max_keypoints: keep the strongest; None keeps all.
        name: what to call an image without a path if it is at error.

    Raises:
        DoapError: if the image cannot be read or has no keypoint.

    Example:
        >>> import doap, skimage
        >>> features = doap.detect_and_describe(skimage.data.camera(), doap.load("doap-demo-128"), 500)
        >>> features.descriptors.shape
        (500, 128)
    """
    if isinstance(image, str | Path):
        name = str(image)
    grey = _open(image)
    frames = DETECTORS[DETECTOR](grey, max_keypoints)
    if not len(frames):
        raise DoapError(f"{name}: no keypoint found in {grey.shape[1]}x{grey.shape[0]} pixels; is it flat or tiny?")
    height, width = grey.shape
    return Features(frames, PatchDescriber(model).describe_frames(grey, frames), (height, width), model.name)


def match(first: Features, second: Features, geometry: Geometry = "fundamental", threshold: float = 1.5) -> Matches:
    """Match two images: mutual nearest neighbours, then the geometry most of them agree on.

    Args:
        first: features of one image.
        second: of the other, by the same model.
        geometry: "fundamental" for any scene, "homography" for planes and turning cameras.
        threshold: pixels an inlier may be off.

    Example:
        >>> import doap, skimage
        >>> model = doap.load("doap-demo-128")
        >>> left, right, _ = skimage.data.stereo_motorcycle()
        >>> a, b = (doap.detect_and_describe(image, model, 1000) for image in (left, right))
        >>> found = doap.match(a, b)
        >>> int(found.inliers.sum()) > 200, found.matrix.shape
        (True, (3, 3))
    """
    if first.model != second.model:
        raise DoapError(f"features of {first.model} and {second.model} cannot be matched with each other")
    indices, distances = mutual_nearest(first.descriptors, second.descriptors)
    points = first.keypoints[indices[:, 0]], second.keypoints[indices[:, 1]]
    found = verify(*points, second.size, geometry, threshold)
    return Matches(indices, distances, found.inliers, found.matrix)


def _open(image: ImageLike) -> Grey:
    if isinstance(image, str | Path):
        return read_grey(image)
    if isinstance(image, Image.Image):
        return to_grey(image)
    array = np.asarray(image)
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise DoapError(f"an image is (H, W), (H, W, 3) or (H, W, 4) uint8, not {array.shape} {array.dtype}")
    return to_grey(Image.fromarray(array))
