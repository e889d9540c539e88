"""Images as users have them, as one grey image on the device that describes them."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from doap.errors import DoapError
from doap.images.reading import grey_from_pil, read_grey, to_grey
from doap.types import Grey

ImageLike = str | Path | NDArray[Any] | Image.Image | Tensor
"""An image, see `read_image`."""

GreyImage = Grey | Tensor
"""(H, W) uint8: an array, or a tensor on a device."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ROUNDING = 0.5 / 255  # half a grey level, by which interpolation may leave 0..1
LUMA = (19595, 38470, 7471)  # Rec. 601 weights of red, green and blue over 2^16, as Pillow computes luma


def read_image(image: ImageLike) -> GreyImage:
    """Convert an image to grey; tensors stay on their device.

    - Path: one of `doap.images.reading.FORMATS`, upright; see `doap.read_grey`.
    - PIL image, of any mode; it is turned upright if it has EXIF data that say so, as `Image.open` leaves them.
    - Array, (H, W), (H, W, 1), (H, W, 3) RGB or (H, W, 4) RGBA: uint8 in 0..255; bool; uint16, scaled so that its
      largest value becomes 255, as grey files of 16 bit are, but alpha always by its range; or float in 0..1.
    - Tensor, (H, W), (1, H, W) or (3, H, W) RGB: uint8 in 0..255, or float in 0..1 as kornia's.

    The type alone decides the range; values outside it are refused, floats from half a grey level on.

    Raises:
        DoapError: If the file cannot be read, or the array is not as described.
    """
    if isinstance(image, str | Path):
        return read_grey(image)
    if isinstance(image, Image.Image):
        return grey_from_pil(image)
    if isinstance(image, Tensor):
        return _grey_tensor(image)
    array = np.asarray(image)
    if not array.ndim and not isinstance(
        image, np.ndarray
    ):  # None is what cv2.imread returns for a file that it cannot read
        raise DoapError(f"an image must be a path, a PIL image, an array or a tensor, not {type(image).__name__}")
    return _grey_array(array)


def split_images(images: Any) -> list[ImageLike] | None:
    """Return the images of a list, a tuple or a (B, 1, H, W) or (B, 3, H, W) tensor; None for a single image."""
    if isinstance(images, list | tuple):
        return list(images)
    if isinstance(images, Tensor) and images.ndim == 4:
        return list(images)
    return None


def shrink_image(image: GreyImage, max_size: float | None) -> GreyImage:
    """Shrink an image by area averaging so that its longer side has at most `max_size` pixels; None keeps it.

    Output pixel i covers the input from i s to (i + 1) s, with s = input side / output side.
    """
    longest = max(image.shape)
    if max_size is None or longest <= max_size:
        return image
    height, width = (max(1, round(side * max_size / longest)) for side in image.shape)
    if not isinstance(image, Tensor):
        return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    rows, columns = (
        _area_weights(side, target, image.device) for side, target in zip(image.shape, (height, width), strict=True)
    )
    return (rows @ image.float() @ columns.T).round().clamp(0, 255).to(torch.uint8)


def _area_weights(side: int, target: int, device: torch.device) -> Tensor:
    """Return the share of each output pixel that each input pixel covers, (target, side)."""
    edges = torch.arange(target + 1, device=device, dtype=torch.float32) * (side / target)
    pixels = torch.arange(side, device=device, dtype=torch.float32)
    overlap = torch.minimum(edges[1:, None], pixels + 1) - torch.maximum(edges[:-1, None], pixels)
    return overlap.clamp(min=0) * (target / side)


def _grey_array(array: NDArray[Any]) -> Grey:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or not array.size:
        raise DoapError(f"an image must be (H, W), (H, W, 3) or (H, W, 4), not {array.shape}")
    if array.dtype == np.bool_:
        values = array * np.uint8(255)
    elif array.dtype.newbyteorder("=") == np.uint16:
        values = _deep_to_bytes(array)
    elif array.dtype.kind == "f":
        _check_range(float(array.min()), float(array.max()))
        values = np.round(array * 255).clip(0, 255).astype(np.uint8)
    elif array.dtype == np.uint8:
        values = array
    else:
        raise DoapError(f"an image must be uint8, uint16, bool, or float in 0..1, not {array.dtype}")
    if values.ndim == 3:
        return to_grey(Image.fromarray(np.ascontiguousarray(values)))
    # A mirrored image of one row counts as contiguous, but torch takes no negative strides.
    return values.copy() if min(values.strides) < 0 else values


def _deep_to_bytes(array: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Map 0 to 0 and the largest value to 255; alpha, of a fourth channel, by the range of its type."""
    has_alpha = array.ndim == 3 and array.shape[2] == 4
    largest = np.full(array.shape[2:], max(int((array[:, :, :3] if has_alpha else array).max()), 1))
    if has_alpha:
        largest[3] = np.iinfo(np.uint16).max
    return np.round(array * (255 / largest)).astype(np.uint8)


def _grey_tensor(image: Tensor) -> Tensor:
    shape = tuple(image.shape)
    if image.ndim not in (2, 3) or (image.ndim == 3 and shape[0] not in (1, 3)) or not image.numel():
        raise DoapError(
            f"a tensor of an image must be (H, W), (1, H, W) or (3, H, W), of a batch (B, 1 or 3, H, W), not {shape}"
        )
    if image.layout is not torch.strided or image.is_meta:
        raise DoapError("a tensor of an image must be dense and have values; call to_dense() on a sparse one")
    if image.dtype in FLOATS:
        low, high = torch.aminmax(image.detach())
        _check_range(float(low), float(high))
        image = (image.detach().float() * 255).round().clamp(0, 255).to(torch.uint8)
    elif image.dtype != torch.uint8:
        raise DoapError(f"a tensor of an image must be uint8, or float in 0..1, not {image.dtype}")
    if image.ndim == 2:
        return image
    if shape[0] == 1:
        return image[0]
    red, green, blue = (weight * channel.int() for weight, channel in zip(LUMA, image, strict=True))
    luma: Tensor = (red + green + blue + (1 << 15)) >> 16
    return luma.to(torch.uint8)


def _check_range(low: float, high: float) -> None:
    if not (low > -ROUNDING and high < 1 + ROUNDING):  # also for NaN
        raise DoapError(f"an image of floats must have values in 0..1, not {low:g}..{high:g}; divide by its maximum")
