"""OpenCV: a model as a feature of OpenCV, with the methods of `cv2.Feature2D`.

`create` takes the place of `cv2.SIFT_create`. The result has the methods of `cv2.Feature2D` but is none: methods that a
Python subclass of it inherits crash the process.
"""
# Methods and arguments are called as in OpenCV.
# ruff: noqa: N802, N803

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from doap.choices import DEFAULT_DETECTOR, FrameShape
from doap.errors import DoapError
from doap.extents import check_extent
from doap.features.describing import DetectionOptions
from doap.features.features import Features
from doap.features.image_input import shrink_image
from doap.features.keypoint_input import to_frames
from doap.features.views import View, describe_views, on_device, rescale_frames
from doap.images.detection import CustomDetector, detector_name
from doap.networks import DEFAULT_MODEL
from doap.networks.descriptor import Descriptor
from doap.networks.registry import load
from doap.types import Descriptors, Grey

KeyPoints = tuple[cv2.KeyPoint, ...]
FlannParams = dict[str, bool | int | float | str]

# Algorithms of FLANN, which OpenCV's Python module does not name.
FLANN_INDEX_KDTREE, FLANN_INDEX_LSH = 1, 6


def create(
    model: str | Path | Descriptor = DEFAULT_MODEL,
    *,
    detector: str | CustomDetector = DEFAULT_DETECTOR,
    frames: FrameShape = "detected",
    max_keypoints: int | None = 2000,
    min_response: float = 0.0,
    max_size: int | None = None,
    extent: float | None = None,
    device: str | torch.device | None = None,
    dimensions: int | None = None,
) -> "DoapFeature2D":
    """Create a detector and descriptor with the methods of `cv2.Feature2D`.

    Args:
        model: Model from `doap.load`, or what `doap.load` takes: a name or the path of weights.
        detector: Name of a detector, see `doap.DETECTORS`; or a function of an (H, W) uint8 image that returns
            keypoints, such as `cv2.ORB_create().detect`.
        frames: "detected", "upright", "baumberg" or "learned", see `doap.detect_and_describe`, like the next three.
        max_keypoints: Number of strongest keypoints to keep per image; None keeps all.
        min_response: Smallest response of a keypoint, in the units of the detector.
        max_size: Longest side at which images are processed; keypoints are always in pixels of the given image.
        extent: Half the side of a patch in units of half the size of a keypoint; None takes that of the model for the
            detector, also for methods of OpenCV's; for any other function that for DoG keypoints.
        device: Device of a model that is given by name, "cpu" by default.
        dimensions: Length of the descriptors of a model that is given by name, see `doap.load`.

    Raises:
        DoapError: If the model cannot be loaded, or an option is out of range.

    Example:
        >>> import skimage
        >>> from doap.bridges import opencv
        >>> feature = opencv.create("doap-demo-256b", max_keypoints=100)
        >>> keypoints, descriptors = feature.detectAndCompute(skimage.data.camera(), None)
        >>> len(keypoints), descriptors.shape
        (100, (100, 32))
    """
    options = DetectionOptions(detector, frames, max_keypoints, min_response, max_size)
    if isinstance(model, str | Path):
        model = load(model, "cpu" if device is None else device, dimensions=dimensions)
    elif not isinstance(model, Descriptor):
        raise DoapError(f"the model must be a name, a path or what doap.load returns, not {type(model).__name__}")
    elif device is not None:
        raise DoapError("a loaded model stays on its device; leave out the device, or load the model on another one")
    elif dimensions is not None:
        raise DoapError("a loaded model keeps its length; leave out the dimensions, or load the model with them")
    if extent is None:
        extent = model.extent_for(detector_name(detector))
    else:
        check_extent(extent)
    return DoapFeature2D(model, options, extent)


@dataclass(frozen=True, eq=False, repr=False)
class DoapFeature2D:
    """Detector and descriptor with the methods of `cv2.Feature2D`, made by `create`.

    Images are as in OpenCV: `numpy.ndarray` or `cv2.UMat`, uint8, (H, W) grey, (H, W, 3) BGR or (H, W, 4) BGRA. Masks
    are (H, W) uint8 or bool; keypoints are kept where they are not 0. Answers are those of `cv2.SIFT`; where it raises
    `cv2.error`, reads outside of a mask or computes from an invalid keypoint, a `DoapError` says what to do.

    Attributes:
        model: Model that describes.
        options: Options of detection.
        extent: Half the side of a patch in units of half the size of a keypoint.
    """

    model: Descriptor
    options: DetectionOptions
    extent: float

    def __repr__(self) -> str:
        return f"DoapFeature2D({self.model.name}, {self.options}, extent={self.extent:g})"

    def detect(self, image: Any, mask: Any = None) -> Any:
        """Detect keypoints, strongest first.

        Args:
            image: Image, or list of images.
            mask: Mask or None; for a list of images, a list of them or None.

        Returns:
            Tuple of `cv2.KeyPoint`, empty if the image is None or empty; for a list of images, a tuple of such tuples.
        """
        if isinstance(image, list | tuple):
            return _for_each(self.detect, image, [None] * len(image) if mask is None else mask, "masks")
        grey = _to_grey(image)
        if grey is None:
            return ()
        (view,) = self.options.detect([grey], [_to_mask(mask, grey)], self.model)
        frames = rescale_frames(view.frames, view.image.shape, view.size)
        nothing = np.empty((len(frames), 0), np.float32)
        return tuple(Features(frames, nothing, view.size, self.model.name, view.responses).to_cv2())

    def compute(self, image: Any, keypoints: Any, descriptors: Any = None) -> tuple[Any, Any]:
        """Describe keypoints of any detector: size and angle are used, the octave is not.

        Args:
            image: Image, or list of images.
            keypoints: Keypoints, or for a list of images, a list of lists of them. The angle -1 means none.
            descriptors: Array to fill, if it has the right shape and type.

        Returns:
            Tuple of all the given keypoints, and their descriptors in the same order: (N, D) float32 or (N, bits / 8)
            uint8, None without keypoints or if the image is None or empty; for a list of images, two tuples of these.
        """
        if isinstance(image, list | tuple):
            pairs = _for_each(self.compute, image, keypoints, "lists of keypoints")
            return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
        keypoints = _to_keypoints(keypoints)
        full = _to_grey(image)
        if full is None or not keypoints:
            return keypoints, _give(None, image, descriptors)
        size = full.shape[0], full.shape[1]
        grey = on_device(shrink_image(full, self.options.max_size), self.model)
        frames = rescale_frames(to_frames(keypoints), size, (grey.shape[0], grey.shape[1]))
        (features,) = describe_views([View(grey, frames, None, size)], self.model, self.extent)
        return keypoints, _give(features.descriptors, image, descriptors)

    def detectAndCompute(
        self, image: Any, mask: Any = None, descriptors: Any = None, useProvidedKeypoints: bool = False
    ) -> tuple[KeyPoints, Any]:
        """Detect and describe keypoints, strongest first.

        Args:
            image: Image.
            mask: Mask or None.
            descriptors: Array to fill, if it has the right shape and type.
            useProvidedKeypoints: Must be False: as in OpenCV, keypoints cannot be passed here from Python.

        Returns:
            Tuple of `cv2.KeyPoint`, and their descriptors as of `compute`; `((), None)` without keypoints.
        """
        if useProvidedKeypoints:
            raise DoapError("keypoints cannot be passed to detectAndCompute in Python; call compute(image, keypoints)")
        if isinstance(image, list | tuple):
            raise DoapError("detectAndCompute takes one image; call detect and compute with a list of images")
        grey = _to_grey(image)
        if grey is None:
            raise DoapError("the image is None or empty; cv2.imread returns None for a file that it cannot read")
        views = self.options.detect([grey], [_to_mask(mask, grey)], self.model)
        (features,) = describe_views(views, self.model, self.extent)
        return tuple(features.to_cv2()), _give(features.descriptors, image, descriptors)

    def computeImageFeatures(self, image: Any, mask: Any = None) -> cv2.detail.ImageFeatures:
        """Detect and describe keypoints for `cv2.detail`, in the place of `cv2.detail.computeImageFeatures2`."""
        keypoints, descriptors = self.detectAndCompute(image, mask)
        # cv2.detail.ImageFeatures() of OpenCV 4 is uninitialised memory: to set its descriptors crashes the process.
        features = cv2.detail.computeImageFeatures2(cv2.ORB.create(1), np.zeros((64, 64), np.uint8))
        height, width = image.get().shape[:2] if isinstance(image, cv2.UMat) else image.shape[:2]
        features.img_idx = -1
        features.img_size = (width, height)
        features.keypoints = keypoints
        if keypoints:
            features.descriptors = descriptors if isinstance(descriptors, cv2.UMat) else _to_umat(descriptors)
        return features

    def createMatcher(self, crossCheck: bool = False) -> cv2.BFMatcher:
        """Create the exact matcher for these descriptors; `cv2.BFMatcher()` would compare bits by `cv2.NORM_L2`."""
        return cv2.BFMatcher(self.defaultNorm(), crossCheck)

    def flannParams(self) -> tuple[FlannParams, FlannParams]:
        """Return index and search parameters: `cv2.FlannBasedMatcher(*feature.flannParams())`.

        Selected with benchmarks/opencv_bridge.py: an approximate search that finds most of the distinctive neighbours.
        """
        if self.model.kind == "binary":
            return {"algorithm": FLANN_INDEX_LSH, "table_number": 6, "key_size": 10, "multi_probe_level": 2}, {}
        return {"algorithm": FLANN_INDEX_KDTREE, "trees": 4}, {"checks": 128}

    def descriptorSize(self) -> int:
        """Return the number of elements of a descriptor: floats, or bytes of packed bits."""
        return self.model.bytes if self.model.kind == "binary" else self.model.network.dimensions

    def descriptorType(self) -> int:
        """Return `cv2.CV_32F`, or `cv2.CV_8U` for bits."""
        return cv2.CV_8U if self.model.kind == "binary" else cv2.CV_32F

    def defaultNorm(self) -> int:
        """Return `cv2.NORM_L2`, or `cv2.NORM_HAMMING` for bits."""
        return cv2.NORM_HAMMING if self.model.kind == "binary" else cv2.NORM_L2

    def empty(self) -> bool:
        """Return False: the model is loaded."""
        return False

    def getDefaultName(self) -> str:
        """Return "Feature2D." and the name of the model."""
        return f"Feature2D.{self.model.name}"


def _for_each(function: Callable[[Any, Any], Any], images: Sequence[Any], others: Any, what: str) -> tuple[Any, ...]:
    """Call a function with each image and its mask or keypoints; errors name the image."""
    if not isinstance(others, list | tuple) or len(others) != len(images):
        number = len(others) if isinstance(others, list | tuple) else type(others).__name__
        raise DoapError(f"{len(images)} images need a list of as many {what}, not {number}")
    results = []
    for number, (image, other) in enumerate(zip(images, others, strict=True)):
        try:
            results.append(function(image, other))
        except DoapError as error:
            raise DoapError(f"image {number} of the list: {error}") from error
    return tuple(results)


def _to_grey(image: Any) -> Grey | None:
    """Convert an image as OpenCV's SIFT does; None if it is None or empty."""
    array = image.get() if isinstance(image, cv2.UMat) else image
    if array is None:
        return None
    if not isinstance(array, np.ndarray):
        raise DoapError(f"an image must be an array or cv2.UMat, as cv2.imread returns it, not {type(image).__name__}")
    if not array.size:
        return None
    if array.dtype != np.uint8:
        raise DoapError(f"an image must be uint8, as for cv2.SIFT, not {array.dtype}; see cv2.normalize")
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise DoapError(f"an image must be (H, W), (H, W, 3) BGR or (H, W, 4) BGRA, not {array.shape}")
    if channels == 1:
        return array.reshape(array.shape[:2])
    return np.asarray(cv2.cvtColor(array, cv2.COLOR_BGR2GRAY if channels == 3 else cv2.COLOR_BGRA2GRAY), np.uint8)


def _to_mask(mask: Any, image: Grey) -> Grey | None:
    """Check a mask of an image; None if there is none, or if it is empty, as in OpenCV."""
    array = mask.get() if isinstance(mask, cv2.UMat) else mask
    if array is None or (isinstance(array, np.ndarray) and not array.size):
        return None
    if not isinstance(array, np.ndarray) or array.dtype not in (np.uint8, np.bool_):
        raise DoapError(f"a mask must be an array of uint8 or bool, not {getattr(array, 'dtype', type(mask).__name__)}")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.shape != image.shape:
        raise DoapError(f"the mask has shape {array.shape}, but the image {image.shape}; resize the mask")
    return np.asarray(array, np.uint8)


def _to_keypoints(keypoints: Any) -> KeyPoints:
    try:
        points = () if keypoints is None else tuple(keypoints)
    except TypeError:
        raise DoapError(f"keypoints must be a sequence of cv2.KeyPoint, not {type(keypoints).__name__}") from None
    for index, point in enumerate(points):
        if not isinstance(point, cv2.KeyPoint):
            raise DoapError(f"keypoint {index} is no cv2.KeyPoint but {type(point).__name__}; see cv2.KeyPoint_convert")
    return points


def _give(rows: Descriptors | None, image: Any, descriptors: Any) -> Any:
    """Return descriptors as OpenCV does: as a UMat for a UMat, in the caller's array if it fits, None without rows."""
    if rows is None or not len(rows):
        return cv2.UMat() if isinstance(image, cv2.UMat) else None
    if isinstance(image, cv2.UMat):
        return _to_umat(rows)
    if isinstance(descriptors, np.ndarray) and descriptors.shape == rows.shape and descriptors.dtype == rows.dtype:
        descriptors[...] = rows
        return descriptors
    return rows


def _to_umat(rows: Any) -> cv2.UMat:
    return cv2.UMat(rows)  # a constructor that is missing in OpenCV's types
