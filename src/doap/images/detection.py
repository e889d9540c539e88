"""Detection of frames with any detector, in arrays and in tensors on any device."""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.choices import DEFAULT_DETECTOR, RENAMED_FRAME_SHAPES, FrameShape
from doap.errors import DoapError, check_choice
from doap.geometry.ellipses import scales
from doap.images import frames as frames_module
from doap.images.affine_shape import orient, orient_all
from doap.images.correction.correcting import correct_frames
from doap.images.detectors import AFFINE_CANDIDATES, DETECTORS, find_frames, with_affine_shape
from doap.images.dog.detector import find_dog_batch
from doap.images.extraction import Pyramid, to_bytes
from doap.images.frames import (
    Detections,
    Filter,
    detections_from_keypoints,
    first_of_each_ellipse,
    halve_resolution,
    make_upright,
)
from doap.images.full_precision import without_autocast
from doap.networks.frames.loading import load_frame_network
from doap.types import Frames, Grey

__all__ = ["CustomDetector", "Detections", "FrameShape", "Mask", "detect", "detect_batch", "detector_name"]

CustomDetector = Callable[[Grey], Frames | Sequence[cv2.KeyPoint]]
Mask = NDArray[Any] | Tensor

WITH_AFFINE_SHAPE = {"harris": "harris-affine", "hessian": "hessian-affine"}
UPRIGHT = ("vlfeat-harris-affine",)  # detectors that do not orient their frames
DEVICE_TYPES = ("cuda", "mps")  # on which the DoG detector of `images.dog` is used
OPENCV_NAMES = {
    "Feature2D.ORB": "orb",
    "Feature2D.AKAZE": "akaze",
    "Feature2D.BRISK": "brisk",
    "Feature2D.GFTTDetector": "gftt",
    "Feature2D.FastFeatureDetector": "fast",
}


def detector_name(detector: str | CustomDetector) -> str:
    """Return the name by which a model finds the extent for a detector, see `doap.Descriptor.extent_for`.

    Args:
        detector: As in `detect`. The method of one of OpenCV's detectors has the name of the detector. Any other
            function counts as DoG.

    Example:
        >>> import cv2
        >>> detector_name("harris"), detector_name(cv2.ORB.create().detect), detector_name(lambda image: [])
        ('harris', 'orb', 'dog')
    """
    if isinstance(detector, str):
        return detector
    owner = getattr(detector, "__self__", None)
    if not isinstance(owner, cv2.Feature2D):
        return DEFAULT_DETECTOR
    return OPENCV_NAMES.get(owner.getDefaultName(), DEFAULT_DETECTOR)


@without_autocast
def detect(
    image: Grey | Tensor,
    detector: str | CustomDetector = DEFAULT_DETECTOR,
    frames: FrameShape = "detected",
    max_keypoints: int | None = None,
    mask: Mask | None = None,
    min_response: float = 0.0,
) -> Detections:
    """Detect frames in an image, strongest first.

    DoG frames of a tensor on CUDA or MPS are detected there; all others on the CPU.

    Args:
        image: (H, W) uint8 array, or (H, W) tensor of grey values 0..255 on any device.
        detector: Name of one of `DETECTORS`; or a function of an (H, W) uint8 array that returns (N, 2, 3) frames,
            strongest first, or a sequence of `cv2.KeyPoint`, whose angle -1 means none.
        frames: "detected", as they are; "upright", where one of the frames that differ only by the orientation remains;
            "baumberg": adapted to affine shape, then oriented along the gradients; or "learned": corrected by the
            network `doap-frames`, then oriented likewise. As in SIFT, a keypoint can have several orientations.
        max_keypoints: Number of strongest frames to keep; None keeps all.
        mask: (H, W); a frame is kept if the mask is not 0 at the pixel nearest to its centre.
        min_response: Smallest response, in the units of the detector. That of DoG frames is 0.0133 by default; a lower
            one gives weaker frames.

    Raises:
        DoapError: If an argument is out of range, or a detector returns something else than frames or keypoints.
    """
    condition = _check(image.shape, detector, frames, max_keypoints, mask, min_response)
    if max_keypoints == 0:
        return Detections.none()
    if detector == "dog" and isinstance(image, Tensor) and image.device.type in DEVICE_TYPES:
        (detected,) = _find_dog_on_device(image[None], _keypoints_needed(frames, max_keypoints, mask), min_response)
        return _shape(image, detected, frames, max_keypoints, condition)
    grey = _to_array(image)
    if not isinstance(detector, str):
        return _shape(grey, _call(detector, grey, min_response), frames, max_keypoints, condition)
    if detector == "dog":
        detected = find_frames(detector, grey, max_keypoints if frames == "detected" else None, condition)
        return _shape(grey, detected, frames, max_keypoints, Filter())
    # The other detectors give one frame per keypoint.
    if frames == "baumberg":
        return _find_affine(detector, grey, max_keypoints, condition)
    detected = find_frames(detector, grey, max_keypoints, condition)
    if frames == "upright":
        return Detections(make_upright(detected.frames), detected.responses)
    return _correct(grey, detected, max_keypoints) if frames == "learned" else detected


@without_autocast
def detect_batch(
    images: Tensor,
    detector: str | CustomDetector = DEFAULT_DETECTOR,
    frames: FrameShape = "detected",
    max_keypoints: int | None = None,
    masks: Sequence[Mask | None] | Tensor | None = None,
    min_response: float = 0.0,
) -> list[Detections]:
    """Detect frames in images of equal size; on CUDA or MPS, DoG frames of several images at once.

    Args:
        images: (B, H, W) tensor of grey values 0..255 on any device.
        detector: As in `detect`, like the arguments below.
        frames: Shape of the frames.
        max_keypoints: Number of strongest frames to keep per image.
        masks: Mask or None per image; None for no masks.
        min_response: Smallest response.

    Returns:
        Detections per image; those of `detect`, on a GPU up to rounding.
    """
    if images.ndim != 3:
        raise DoapError(f"a batch of images must be (B, H, W), not {tuple(images.shape)}")
    mask_list = [None] * len(images) if masks is None else list(masks)
    if len(mask_list) != len(images):
        raise DoapError(f"{len(images)} images need as many masks, not {len(mask_list)}")
    if detector != "dog" or images.device.type not in DEVICE_TYPES or max_keypoints == 0:
        return [
            detect(image, detector, frames, max_keypoints, mask, min_response)
            for image, mask in zip(images, mask_list, strict=True)
        ]
    conditions = [_check(images.shape[1:], detector, frames, max_keypoints, mask, min_response) for mask in mask_list]
    detections = _find_dog_on_device(images, _keypoints_needed(frames, max_keypoints, *mask_list), min_response)
    return [
        _shape(image, detected, frames, max_keypoints, condition)
        for image, detected, condition in zip(images, detections, conditions, strict=True)
    ]


def check_options(detector: str | CustomDetector, frames: str, max_keypoints: int | None) -> None:
    """Raise DoapError for options of `detect` that do not exist or are out of range."""
    if isinstance(detector, str):
        check_choice("detector", detector, DETECTORS)
    if frames in RENAMED_FRAME_SHAPES:
        raise DoapError(f"frame shape {frames!r} was renamed; use {RENAMED_FRAME_SHAPES[frames]!r}")
    check_choice("frame shape", frames, get_args(FrameShape))
    if max_keypoints is not None and max_keypoints < 0:
        raise DoapError(f"max_keypoints must be at least 0, or None for all, not {max_keypoints}")
    if max_keypoints is not None and max_keypoints >= 1 << 31:
        raise DoapError(f"max_keypoints must be less than {1 << 31:,}, or None for all, not {max_keypoints:,}")


def _check(
    shape: Sequence[int],
    detector: str | CustomDetector,
    frames: str,
    max_keypoints: int | None,
    mask: Mask | None,
    min_response: float,
) -> Filter:
    """Check the arguments of `detect`, and return the condition that frames must meet."""
    if len(shape) != 2 or 0 in shape:
        raise DoapError(f"an image must be (H, W) with at least one pixel, not {tuple(shape)}")
    check_options(detector, frames, max_keypoints)
    if mask is None:
        return Filter(None, min_response)
    if tuple(mask.shape) != tuple(shape):
        raise DoapError(f"the mask is {_size(mask.shape)} but the image {_size(shape)} pixels; resize the mask")
    return Filter(mask_array(mask), min_response)


def mask_array(mask: Mask) -> NDArray[np.bool_]:
    """Return where a mask is not 0; a tensor may be of any type and on any device."""
    return (mask != 0).cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask) != 0


def _size(shape: Sequence[int]) -> str:
    return "x".join(str(side) for side in reversed(shape))


def _to_array(image: Grey | Tensor) -> Grey:
    if isinstance(image, Tensor):
        return (image if image.dtype == torch.uint8 else to_bytes(image.detach().float())).cpu().numpy()
    return image


def _call(detector: CustomDetector, image: Grey, min_response: float) -> Detections:
    """Run a user's detector on a copy of the image, which it may change."""
    result = detector(image.copy())
    if isinstance(result, list | tuple) and all(isinstance(keypoint, cv2.KeyPoint) for keypoint in result):
        detected = detections_from_keypoints(result)
        _check_shapes(detected.frames)
        return detected
    if isinstance(result, Tensor):
        result = result.detach().cpu()
        result = result.float() if result.dtype == torch.bfloat16 else result  # which NumPy does not have
    try:
        frames = np.asarray(result)
    except ValueError as error:  # such as the keypoints and descriptors of detectAndCompute
        raise DoapError(
            f"a detector must return (N, 2, 3) frames or cv2.KeyPoints, not {type(result).__name__} of other things"
        ) from error
    if frames.dtype.kind not in "fiu" or frames.ndim != 3 or frames.shape[1:] != (2, 3):
        raise DoapError(f"a detector must return (N, 2, 3) frames or cv2.KeyPoints, not {frames.shape} {frames.dtype}")
    if min_response > 0:
        raise DoapError("min_response needs a detector that returns cv2.KeyPoints: frames have no response")
    _check_shapes(frames)
    return Detections(frames.astype(np.float32), np.zeros(len(frames), np.float32))


def _check_shapes(frames: Frames) -> None:
    """Raise a DoapError that names the first frame that is not finite or has no area."""
    with np.errstate(invalid="ignore"):
        is_valid = np.isfinite(frames).all((1, 2)) & (scales(frames.astype(np.float64)) > 0)
    if not is_valid.all():
        index = int(np.argmin(is_valid))
        reason = "is not finite" if not np.isfinite(frames[index]).all() else "has no area"
        raise DoapError(f"frame {index} of the detector {reason}; drop it")


def _keypoints_needed(frames: FrameShape, max_keypoints: int | None, *masks: Mask | None) -> int | None:
    """Return how many of the strongest DoG keypoints give `max_keypoints` frames of a shape; None means all."""
    if max_keypoints is None or any(mask is not None for mask in masks):
        return None
    return round(AFFINE_CANDIDATES * max_keypoints) if frames == "baumberg" else max_keypoints


def _find_dog_on_device(images: Tensor, limit: int | None, min_response: float) -> list[Detections]:
    """Detect DoG frames in (B, H, W) on their device; images above `MAX_DETECTION_PIXELS` are halved."""
    if images[0].numel() <= frames_module.MAX_DETECTION_PIXELS:
        return find_dog_batch(images, limit, min_response)
    halves = torch.stack([torch.from_numpy(halve_resolution(_to_array(image))) for image in images])
    detections = _find_dog_on_device(halves.to(images.device), limit, min_response)
    return [detected.from_half_resolution() for detected in detections]


def _find_affine(detector: str, image: Grey, limit: int | None, condition: Filter) -> Detections:
    """Detect frames with the affine form of a detector, oriented along the dominant gradient."""
    detected = find_frames(WITH_AFFINE_SHAPE.get(detector, detector), image, limit, condition)
    if detector in UPRIGHT and len(detected):
        return Detections(orient(image, detected.frames), detected.responses)
    return detected


def _shape(
    image: Grey | Tensor, detected: Detections, frames: FrameShape, limit: int | None, condition: Filter
) -> Detections:
    """Apply the condition, the shape and the limit to circular frames, of which several may be one keypoint's."""
    detected = detected[condition.keeps(detected.frames[:, :, 2], detected.responses)]
    if frames == "detected" or not len(detected):
        return detected[:limit]
    detected = detected[first_of_each_ellipse(detected.frames)]
    if frames == "learned":
        return _correct(image, detected, limit)
    detected = Detections(make_upright(detected.frames), detected.responses)
    if frames == "upright":
        return detected[:limit]
    pyramid = Pyramid(image)
    candidates = None if limit is None else round(AFFINE_CANDIDATES * limit)
    detected = with_affine_shape(pyramid, detected[:candidates])[:limit]
    oriented, rows = orient_all(pyramid, detected.frames)
    return Detections(oriented, detected.responses[rows])[:limit]


def _correct(image: Grey | Tensor, detected: Detections, limit: int | None) -> Detections:
    """Correct frames by the shipped network, on the device of the image; one can become several, up to the limit."""
    detected = detected[:limit]
    if not len(detected):
        return detected
    pyramid = Pyramid(image)
    network = load_frame_network(device=str(pyramid.device))
    corrected, rows = correct_frames(pyramid, detected.frames, network)
    return Detections(corrected, detected.responses[rows])[:limit]
