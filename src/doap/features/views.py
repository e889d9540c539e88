"""Images with frames, described together: patches of several images fill the batches of the network."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.features.features import Features
from doap.features.image_input import GreyImage
from doap.images.extraction import Pyramid, extract_patch_tensor
from doap.networks.descriptor import Descriptor, describe_patches, device_of
from doap.types import Descriptors, Frames

POOL_SIZE = 16_384  # patches that are extracted before they are described: two batches of a GPU, 16 MiB at 32 pixels


@dataclass(frozen=True, eq=False)
class View:
    """An image, its frames and what becomes of them.

    Attributes:
        image: (H, W) uint8 on the device of extraction, possibly smaller than the given image.
        frames: (N, 2, 3) in pixels of `image`.
        responses: (N,), or None if unknown.
        size: (height, width) of the given image, in whose pixels the features are.
    """

    image: GreyImage
    frames: Frames
    responses: NDArray[np.float32] | None
    size: tuple[int, int]


def on_device(image: GreyImage, model: Descriptor) -> GreyImage:
    """Move an image to the device of a model: an array for the CPU, a tensor for others."""
    device = device_of(model)
    if device is None or device.type == "cpu":
        return image.cpu().numpy() if isinstance(image, Tensor) else image
    if isinstance(image, Tensor):
        return image.to(device)
    return torch.from_numpy(np.require(image, requirements=["C", "W"])).to(device)


def describe_views(views: Iterable[View], model: Descriptor, extent: float) -> list[Features]:
    """Describe the frames of images, which may be made lazily: one is held in memory at a time.

    Args:
        views: Images and frames, on the device of the model.
        model: Model that describes.
        extent: Half the side of a patch in units of the frame's scale.

    Returns:
        Features per image, in pixels of the given image.
    """
    pool = _PatchPool(model)
    parts: list[tuple[Frames, NDArray[np.float32] | None, tuple[int, int]]] = []
    for view in views:
        pyramid = Pyramid(view.image)
        for start in range(0, len(view.frames), POOL_SIZE):
            chunk = torch.from_numpy(view.frames[start : start + POOL_SIZE])
            pool.add(extract_patch_tensor(pyramid, chunk, model.input_size, extent))
        parts.append((rescale_frames(view.frames, view.image.shape, view.size), view.responses, view.size))
    ends = np.cumsum([len(frames) for frames, _, _ in parts])
    rows = np.split(pool.describe_all(), ends[:-1]) if parts else []
    if len(rows) > 1:  # a view of the rows of all images would keep them all in memory
        rows = [part.copy() for part in rows]
    return [
        Features(frames, part, size, model.name, responses)
        for (frames, responses, size), part in zip(parts, rows, strict=True)
    ]


class _PatchPool:
    """Patches that wait until there are enough for full batches, and the descriptors of earlier ones."""

    def __init__(self, model: Descriptor) -> None:
        self._model = model
        self._patches: list[Tensor] = []
        self._descriptors: list[Descriptors] = []

    def add(self, patches: Tensor) -> None:
        """Add (N, S, S) patches, and describe all that wait if they are enough."""
        self._patches.append(patches)
        if sum(map(len, self._patches)) >= POOL_SIZE:
            self._describe()

    def describe_all(self) -> Descriptors:
        """Return the descriptors of all patches in the order in which they were added."""
        if self._patches:
            self._describe()
        if not self._descriptors:
            return describe_patches(np.zeros((0, 1, 1), np.uint8), self._model)
        return self._descriptors[0] if len(self._descriptors) == 1 else np.concatenate(self._descriptors)

    def _describe(self) -> None:
        patches = torch.cat(self._patches)
        self._patches = []
        self._descriptors.append(describe_patches(patches, self._model).cpu().numpy())


def rescale_frames(frames: Frames, from_size: tuple[int, ...], to_size: tuple[int, ...]) -> Frames:
    """Map frames of an image to those of the same image at another size, larger or smaller.

    Pixel centres: x becomes (x + 0.5) s - 0.5 with s = new width / old width, and y likewise.

    Args:
        frames: (N, 2, 3) frames in pixels of the image of `from_size`.
        from_size: (height, width) of the image that the frames are of.
        to_size: (height, width) of the image to map them to.

    Returns:
        (N, 2, 3) frames in pixels of the image of `to_size`; `frames` itself if the sizes are equal.
    """
    if tuple(from_size) == tuple(to_size):
        return frames
    factors = np.array(to_size[::-1], np.float64) / np.array(from_size[::-1], np.float64)
    mapped = frames * factors[:, None]
    mapped[:, :, 2] += 0.5 * factors - 0.5
    return mapped.astype(np.float32)
