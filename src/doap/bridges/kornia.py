"""Models as kornia's modules, and frames as its local affine frames (LAFs).

Kornia's images and patches are floats in 0..1, those of a model grey values in 0..255: every module here states its
range. A LAF is a frame [A | c] with the same coordinates; two conventions differ:

- Scale. Kornia's patches end at the unit square of a LAF. Those of a model end at `extent` times the frame. Kornia's
  scale-space detectors return the detected scale times `mr_size`, 6 by default.
- Angle. `kornia.feature.get_laf_orientation` is counter-clockwise in the image: minus the angle of OpenCV and doap.
"""

import math

import numpy as np
import torch
from kornia.feature import LocalFeature
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from doap.choices import DEFAULT_DETECTOR, FrameShape
from doap.errors import DoapError, check_number
from doap.features.describing import BATCH_PIXELS
from doap.features.image_input import read_image
from doap.features.keypoint_input import to_frames
from doap.images.detection import CustomDetector, check_options, detect_batch, detector_name
from doap.images.extraction import Pyramid, extract_patch_tensor
from doap.matching.bits import unpack_signs
from doap.networks.descriptor import Descriptor, check_model, describe_patches
from doap.types import Frames


def lafs_from_frames(frames: ArrayLike | Tensor, mr_size: float = 1.0) -> Tensor:
    """Convert (N, 2, 3) frames to LAFs, a (1, N, 2, 3) float32 tensor.

    Args:
        frames: Frames, as of `Features.frames`.
        mr_size: Scale of a LAF in units of the frame's: 6 for LAFs as of kornia's scale-space detectors, the extent of
            a model for LAFs whose patches it describes.

    Raises:
        DoapError: If a frame is not finite or has no positive scale, or `mr_size` is not positive.

    Example:
        >>> from kornia.feature import get_laf_orientation
        >>> frame = [[[0, -3, 10], [3, 0, 20]]]  # scale 3, 90 degrees clockwise in the image
        >>> get_laf_orientation(lafs_from_frames(frame)).item()
        -90.0
    """
    _check_positive("mr_size", mr_size)
    return torch.from_numpy(_scale(to_frames(frames), mr_size))[None]


def frames_from_lafs(lafs: Tensor, mr_size: float = 1.0) -> Frames:
    """Convert the LAFs of one image, (1, N, 2, 3) or (N, 2, 3), to (N, 2, 3) float32 frames: row i is LAF i.

    Args:
        lafs: LAFs of any floating-point type, on any device, without padding:
            `lafs[image][kornia.feature.laf_is_filled(lafs)[image]]`.
        mr_size: Scale of a LAF in units of the frame's, see `lafs_from_frames`.

    Raises:
        DoapError: If a LAF is not finite or has no positive scale, as those that pad a batch.
    """
    _check_positive("mr_size", mr_size)
    return _scale(to_frames(lafs), 1 / mr_size)


class PatchDescriptor(nn.Module):
    """A model as a patch descriptor for `LAFDescriptor` and `LocalFeature`: (N, 1, S, S) to (N, D) floats.

    A binary model returns its bits as ±1 / √bits: distances rank as Hamming distances, exactly for a power of 4 such as
    256 bits. Gradients reach patches and weights of a real model loaded with `fast=False`.

    Args:
        model: Model from `doap.load`.
        value_range: Value of white in the patches: 1 for those of kornia's images, 255 for grey values.
        packed: Whether a binary model returns (N, bits / 8) uint8 as it is, for Hamming distances.

    Example:
        >>> import doap, torch
        >>> from kornia.feature import LAFDescriptor
        >>> model = doap.load("doap-demo-128")
        >>> descriptor = LAFDescriptor(PatchDescriptor(model), model.input_size)
        >>> lafs = torch.tensor([[[[20.0, 0, 40], [0, 20, 30]]]])
        >>> descriptor(torch.rand(1, 1, 80, 80), lafs).shape
        torch.Size([1, 1, 128])
    """

    def __init__(self, model: Descriptor, value_range: float = 1.0, packed: bool = False) -> None:
        super().__init__()
        _check_positive("value_range", value_range)
        _check_packed(model, packed)
        self.model = model
        self.value_range = value_range
        self.packed = packed

    def forward(self, patches: Tensor) -> Tensor:
        """Describe patches.

        Args:
            patches: (N, 1, S, S) of any floating-point type and size S, with values in 0..`value_range`; those of
                another size than the model's `input_size` are resized, see `doap.networks.descriptor.to_input`.

        Returns:
            (N, D) unit vectors, float32 or, after `double()`, float64; with `packed`, (N, bits / 8) uint8.

        Raises:
            ValueError: If the patches have another shape or type.
        """
        if not patches.is_floating_point():
            raise ValueError(f"patches must be floating-point in 0..{self.value_range:g}, not {patches.dtype}")
        values = patches.to(torch.promote_types(patches.dtype, torch.float32)) * (255 / self.value_range)
        return _to_output(self.model(values), self.packed)


class FrameDetector(nn.Module):
    """A detector of doap as a detection module of kornia; DoG frames are detected on the device of the images.

    Args:
        num_features: Number of strongest frames per image; None keeps all.
        detector: Name of a detector or a function, see `doap.detect_and_describe`.
        frames: "detected", "upright", "baumberg" or "learned", see `doap.detect_and_describe`.
    """

    def __init__(
        self,
        num_features: int | None = 2000,
        detector: str | CustomDetector = DEFAULT_DETECTOR,
        frames: FrameShape = "detected",
    ) -> None:
        super().__init__()
        check_options(detector, frames, num_features)
        self.num_features = num_features
        self.detector = detector
        self.frames: FrameShape = frames

    def forward(self, img: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Detect frames.

        Args:
            img: (B, 1, H, W) or (B, 3, H, W) RGB, floats in 0..1 or uint8.
            mask: (B, 1, H, W); frames are kept where it is not 0.

        Returns:
            LAFs, (B, N, 2, 3) float32, of the scales of the frames (`mr_size` 1), strongest first, and their responses,
            (B, N). N is the largest number of frames in the batch; images with fewer are padded with zeros, as
            `kornia.feature.laf_is_filled` expects.
        """
        grey = _grey(img)
        count, height, width = grey.shape
        if mask is not None and mask.shape != (count, 1, height, width):
            raise DoapError(f"the mask must be ({count}, 1, {height}, {width}), not {tuple(mask.shape)}")
        if not count:
            return torch.zeros(0, 0, 2, 3, device=img.device), torch.zeros(0, 0, device=img.device)
        step = max(1, BATCH_PIXELS // (height * width))
        detected = [
            detections
            for start in range(0, count, step)
            for detections in detect_batch(
                grey[start : start + step],
                self.detector,
                self.frames,
                self.num_features,
                None if mask is None else mask[start : start + step, 0],
            )
        ]
        lafs, responses = (
            pad_sequence([torch.from_numpy(rows) for rows in columns], batch_first=True).to(img.device)
            for columns in zip(*((item.frames, item.responses) for item in detected), strict=True)
        )
        return lafs, responses


class FrameDescriptor(nn.Module):
    """A model as a descriptor of LAFs like `LAFDescriptor`, with doap's own extraction of patches.

    Descriptors are those of `doap.describe_keypoints`. There are no gradients: `LAFDescriptor` of a `PatchDescriptor`
    has them.

    Args:
        model: Model from `doap.load`.
        packed: Whether a binary model returns uint8, see `PatchDescriptor`.
    """

    def __init__(self, model: Descriptor, packed: bool = False) -> None:
        super().__init__()
        _check_packed(model, packed)
        self.model = model
        self.packed = packed

    def forward(self, img: Tensor, lafs: Tensor) -> Tensor:
        """Describe LAFs.

        Args:
            img: (B, 1, H, W) or (B, 3, H, W) RGB, floats in 0..1 or uint8.
            lafs: (B, N, 2, 3), whose unit squares are the patches.

        Returns:
            (B, N, D), see `PatchDescriptor`; all LAFs of zeros of an image have the same descriptor.
        """
        grey = _grey(img)
        if lafs.ndim != 4 or len(lafs) != len(grey) or lafs.shape[2:] != (2, 3):
            raise DoapError(f"LAFs must be ({len(grey)}, N, 2, 3), not {tuple(lafs.shape)}")
        size = self.model.input_size
        patches = [
            extract_patch_tensor(Pyramid(image), frames, size, 1.0) for image, frames in zip(grey, lafs, strict=True)
        ]
        together = torch.cat(patches) if patches else grey.new_empty(0, size, size)
        rows = _to_output(describe_patches(together, self.model), self.packed)
        return rows.reshape(*lafs.shape[:2], rows.shape[1]).to(img.device)


class DoapFeature(LocalFeature):
    """Detection and description by doap as a `LocalFeature`, as kornia's `SIFTFeature` or `KeyNetHardNet`.

    `forward(img, mask=None)` takes images (B, 1, H, W), or (B, 3, H, W) RGB, in 0..1, and returns the LAFs
    (B, N, 2, 3) of the patches, responses (B, N) and descriptors (B, N, D), all without gradients. They are the
    features of `doap.detect_and_describe`, with LAFs = `lafs_from_frames(frames, extent)`. N is the largest number of
    keypoints in the batch; images with fewer are padded with zeros. LAFs are float32 for images of any type: half
    precision rounds coordinates above 1024 to whole pixels.

    Args:
        model: Model from `doap.load`.
        num_features: Number of strongest keypoints per image; None keeps all.
        detector: Name of a detector or a function, see `doap.detect_and_describe`.
        frames: "detected", "upright", "baumberg" or "learned", see `doap.detect_and_describe`.
        packed: Whether a binary model returns uint8, see `PatchDescriptor`.

    Example:
        >>> import doap, skimage, torch
        >>> image = torch.from_numpy(skimage.data.camera())[None, None] / 255
        >>> lafs, responses, descs = DoapFeature(doap.load("doap-demo-256b"), num_features=100)(image)
        >>> lafs.shape, responses.shape, descs.shape
        (torch.Size([1, 100, 2, 3]), torch.Size([1, 100]), torch.Size([1, 100, 256]))
    """

    def __init__(
        self,
        model: Descriptor,
        num_features: int | None = 2000,
        detector: str | CustomDetector = DEFAULT_DETECTOR,
        frames: FrameShape = "detected",
        packed: bool = False,
    ) -> None:
        descriptor = FrameDescriptor(model, packed)
        extent = model.extent_for(detector_name(detector))
        super().__init__(FrameDetector(num_features, detector, frames), descriptor, extent)


def _check_positive(name: str, value: float) -> None:
    check_number(name, value)
    if not 0 < value < math.inf:
        raise DoapError(f"{name} must be positive and finite, not {value}")


def _check_packed(model: Descriptor, packed: bool) -> None:
    check_model(model)
    if packed and model.kind != "binary":
        raise DoapError(f"{model.name} has no bits to pack; use packed=False, or a binary model")


def _scale(frames: Frames, factor: float) -> Frames:
    """Multiply the scales of frames; their centres stay."""
    return frames * np.array([factor, factor, 1], np.float32)


def _grey(img: Tensor) -> Tensor:
    """Convert images as kornia's to (B, H, W) uint8 on the same device."""
    if img.ndim != 4 or img.shape[1] not in (1, 3):
        raise DoapError(f"images must be (B, 1, H, W) or (B, 3, H, W), not {tuple(img.shape)}")
    if not len(img):
        return img.new_empty(0, *img.shape[2:], dtype=torch.uint8)
    return torch.stack([torch.as_tensor(read_image(image)) for image in img])


def _to_output(descriptors: Tensor, packed: bool) -> Tensor:
    """Return real descriptors as they are, and packed bits as ±1 / √bits, most significant first, unless `packed`."""
    if packed or descriptors.dtype != torch.uint8:
        return descriptors
    signs = unpack_signs(descriptors, torch.float32)
    return signs / math.sqrt(signs.shape[1])
