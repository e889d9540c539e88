"""Extraction of patches at frames from an image pyramid, without aliasing.

A patch pixel covers an area of the image. One bilinear sample aliases if this area is larger than an image pixel.
Therefore each level of the pyramid is low-passed by the binomial filter [1 3 3 1] / 8 and halved. A patch is sampled at
the level where its pixels are 1 to 2 level pixels apart, and each of its pixels is the mean of 2x2 samples.

On the CPU, OpenCV builds the pyramid and samples the patches; elsewhere torch does. In less than a thousandth of the
pixels, values near a half are rounded differently.
"""

from functools import cache, lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from doap.errors import DoapError, check_whole_number
from doap.extents import check_extent
from doap.images.full_precision import without_autocast
from doap.images.opencv_extraction import SUPERSAMPLING, Plane, halve, is_exact, sample_patches
from doap.networks.descriptor import check_device
from doap.types import Frames, Grey

CHUNK_SIZE = 2048  # frames
DEVICE_CHUNK_SIZE = 4096  # frames: about 1 GiB at 32 pixels; the time of a GPU is spent on the number of operations
CHUNK_SIDE = 64  # pixels: of larger patches, fewer are sampled at once, in the same memory
MIN_SIDE = 16  # pixels: levels with a shorter side are not halved
MAX_COORDINATE = 1e6  # of frames, in pixels: far outside of any image, and exact enough for all arithmetic here


class Pyramid:
    """An image at successively halved resolutions, in grey values 0..255.

    Levels are built when they are first used: patches of large frames do not need the first ones in float32.

    Args:
        image: (H, W) uint8 array, or (H, W) tensor of uint8 or floating point grey values.
        device: Device of the levels and of sampling; by default that of the tensor, or the CPU.
    """

    def __init__(self, image: Grey | Tensor, device: str | torch.device | None = None) -> None:
        if image.ndim != 2 or 0 in image.shape:
            raise DoapError(f"an image must be (H, W) with at least one pixel, not {tuple(image.shape)}")
        if isinstance(image, np.ndarray):
            _check_bytes(image)
        self._image = (
            image if isinstance(image, Tensor) else torch.from_numpy(np.require(image, requirements=["C", "W"]))
        )
        if device is not None:
            self._image = self._image.to(device)
        self.device = self._image.device
        self.shape = (image.shape[0], image.shape[1])
        self._levels: dict[int, Tensor] = {}
        self._flat: Tensor | None = None  # all levels

    def __len__(self) -> int:
        """Return the number of levels."""
        side, count = min(self.shape), 1
        while side >= MIN_SIDE:
            side, count = (side + 1) // 2, count + 1
        return count

    @property
    def levels(self) -> list[Tensor]:
        """All levels, (1, 1, H, W) float32 tensors."""
        return [self.level(number) for number in range(len(self))]

    def level(self, number: int) -> Tensor:
        """Return one level, a (1, 1, H, W) float32 tensor; level 0 is the image."""
        if number not in self._levels:
            if number == 0:
                self._levels[0] = self._image.detach().float()[None, None]
            elif self.device.type == "cpu":
                below = self._image if number == 1 else self.level(number - 1)[0, 0]
                self._levels[number] = torch.from_numpy(halve(_filterable(below)))[None, None]
            else:
                self._levels[number] = _halve(self.level(number - 1))
        return self._levels[number]

    def level_numbers(self, spacing: Tensor) -> Tensor:
        """Return the level, (N,), for (N,) distances between patch pixels in image pixels."""
        return spacing.log2().nan_to_num().floor().clamp(0, len(self) - 1).long()

    @without_autocast
    def sample(self, points: Tensor, spacing: Tensor) -> Tensor:
        """Sample the image at points; the border is replicated.

        Args:
            points: (N, h, w, 2) float, (x, y) in image pixels.
            spacing: (N,) distance between patch pixels in image pixels, which selects the level.

        Returns:
            (N, h, w) float32 in 0..255.
        """
        numbers = self.level_numbers(spacing)
        if self.device.type != "cpu":
            return self._gather(points, numbers)
        values = points.new_empty(points.shape[:3])
        for number in sorted(set(numbers.tolist())):
            mask = numbers == number
            # Pixel centres: x of the image lies at (x + 0.5) / 2^l - 0.5 of level l.
            values[mask] = _bilinear(self.level(number), (points[mask] + 0.5) / 2**number - 0.5)
        return values

    def _gather(self, points: Tensor, numbers: Tensor) -> Tensor:
        """Sample (N, h, w, 2) points at the levels (N,) in common operations: a loop would wait for the GPU."""
        if self._flat is None:
            self._flat = torch.cat([level.flatten() for level in self.levels])
        table = _level_table(self.shape, len(self), self.device)
        start, height, width = table[numbers][:, :, None, None].unbind(1)
        shrink = torch.exp2(-numbers.float())[:, None, None]
        x, y = ((points[..., axis] + 0.5).mul_(shrink).sub_(0.5) for axis in (0, 1))
        # The last pixel of a line has no next one: it is interpolated with itself.
        x, y = torch.minimum(x.clamp_(min=0), width - 1), torch.minimum(y.clamp_(min=0), height - 1)
        left, top = x.long(), y.long()
        right = torch.minimum(left + 1, width - 1)
        upper, lower = start + top * width, start + torch.minimum(top + 1, height - 1) * width
        x, y = x.frac_(), y.frac_()
        above, below = (self._flat[row + left].lerp_(self._flat[row + right], x) for row in (upper, lower))
        return above.lerp_(below, y)


def extract_patches(
    image: Grey | Pyramid, frames: Frames, size: int, extent: float, device: str | torch.device | None = None
) -> NDArray[np.uint8]:
    """Extract the patch of every frame.

    Args:
        image: The image, or its pyramid to share it between calls.
        frames: (N, 2, 3).
        size: Side of the patches in pixels.
        extent: Half the side of the patch in units of the frame's scale.
        device: Device of the extraction, by default the CPU; ignored for a pyramid, which has its own.

    Returns:
        (N, size, size) uint8; the border of the image is replicated.

    Raises:
        DoapError: If the image, the size, the extent, the device or the shape of the frames is invalid.
    """
    extent = check_extent(extent)
    check_whole_number("the side of a patch", size)
    if not size >= 1:
        raise DoapError(f"the side of a patch must be at least 1 pixel, not {size}")
    if np.shape(frames)[1:] != (2, 3):
        raise DoapError(f"frames must be (N, 2, 3), not {np.shape(frames)}")
    if device is not None:
        check_device(device)
    if not isinstance(image, Pyramid):
        _check_bytes(image)
    pyramid = image if isinstance(image, Pyramid) else Pyramid(image, device)
    tensor = torch.from_numpy(np.require(frames, np.float32, ["C", "W"]))
    return np.asarray(extract_patch_tensor(pyramid, tensor, size, extent).cpu().numpy())


@without_autocast
def extract_patch_tensor(pyramid: Pyramid, frames: Tensor, size: int, extent: float) -> Tensor:
    """Extract the patch of every frame as a tensor.

    Args:
        pyramid: Pyramid of the image.
        frames: (N, 2, 3), on any device.
        size: Side of the patches in pixels.
        extent: Half the side of the patch in units of the frame's scale.

    Returns:
        (N, size, size) uint8 on the pyramid's device; the border of the image is replicated. Frames that are not finite
        give meaningless patches.
    """
    frames = frames.detach().to(pyramid.device, torch.float32)
    frames = frames.nan_to_num(0, 0, 0).clamp(-MAX_COORDINATE, MAX_COORDINATE)
    if pyramid.device.type == "cpu" and is_exact():
        return _extract_by_opencv(pyramid, frames, size, extent)
    patches = torch.empty(len(frames), size, size, dtype=torch.uint8, device=pyramid.device)
    step = CHUNK_SIZE if pyramid.device.type == "cpu" else DEVICE_CHUNK_SIZE
    step = max(1, step * CHUNK_SIDE**2 // max(size, CHUNK_SIDE) ** 2)
    for start in range(0, len(frames), step):
        samples = pyramid.sample(*patch_points(frames[start : start + step], size, extent))
        patches[start : start + step] = to_bytes(average_samples(samples))
    return patches


def _extract_by_opencv(pyramid: Pyramid, frames: Tensor, size: int, extent: float) -> Tensor:
    numbers = pyramid.level_numbers(pixel_spacing(frames, size, extent)).numpy()
    # The first sample lies at -1 + 1 / fine of the patch's coordinates, and samples are 2 / fine apart.
    fine = SUPERSAMPLING * size
    shapes, centres = np.split(frames.numpy().astype(np.float64), [2], axis=2)
    shrink = 0.5 ** numbers[:, None, None]
    steps = 2 * extent / fine * shrink * shapes
    first = (centres + 0.5) * shrink - 0.5 - (fine - 1) / 2 * steps.sum(2, keepdims=True)

    def plane(number: int) -> Plane:
        return np.asarray(pyramid.level(number)[0, 0].numpy())

    return torch.from_numpy(sample_patches(plane, numbers, np.concatenate([steps, first], 2), size))


def are_patches_inside(frames: Frames, shape: tuple[int, ...], extent: float) -> NDArray[np.bool_]:
    """Return whether the whole patch of each frame is inside an image, (N,) bool.

    Args:
        frames: (N, 2, 3).
        shape: (height, width) of the image.
        extent: Half the side of the patch in units of the frame's scale.
    """
    half = extent * np.abs(frames[:, :, :2]).sum(2)
    low, high = frames[:, :, 2] - half, frames[:, :, 2] + half
    return np.asarray((low >= 0).all(1) & (high <= np.array(shape[::-1]) - 1).all(1))


@without_autocast
def patch_points(frames: Tensor, size: int, extent: float) -> tuple[Tensor, Tensor]:
    """Return the sample points, (N, s, s, 2), and pixel spacings, (N,), of the patches of (N, 2, 3) frames."""
    return to_image_points(patch_grid(size, frames.device), frames, extent), pixel_spacing(frames, size, extent)


@without_autocast
def to_image_points(unit: Tensor, frames: Tensor, extent: float) -> Tensor:
    """Map patch points, (s, s, 2) or (N, s, s, 2) in patch coordinates, to image points, (N, s, s, 2)."""
    # One product per frame, thousands of points by 3x2, is much faster than as many 2x2 products.
    points = F.pad(extent * unit, (0, 1), value=1.0).flatten(-3, -2)
    return (points @ frames.transpose(1, 2)).view(len(frames), *unit.shape[-3:])


def pixel_spacing(frames: Tensor, size: int, extent: float) -> Tensor:
    """Return the distance between patch pixels in image pixels along the frame's longer axis, (N,)."""
    return 2 * extent * axis_lengths(frames[:, :, :2])[0] / size


def axis_lengths(shapes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the larger and the smaller singular value of (N, 2, 2) matrices, (N,) each.

    In closed form, because torch's decomposition synchronises with the GPU.
    """
    (a, b), (c, d) = (row.unbind(1) for row in shapes.unbind(1))
    sum_, difference = torch.hypot(a + d, b - c), torch.hypot(a - d, b + c)
    return (sum_ + difference) / 2, (sum_ - difference).abs() / 2


def patch_grid(size: int, device: torch.device) -> Tensor:
    """Return the sample positions of a patch in its own coordinates, [-1, 1]², as (s, s, 2) with s = 2 size."""
    fine = SUPERSAMPLING * size
    steps = (2 * torch.arange(fine, device=device, dtype=torch.float32) + 1) / fine - 1
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([x, y], -1)


def average_samples(samples: Tensor) -> Tensor:
    """Average (N, 2 size, 2 size) samples to (N, size, size) pixels."""
    return F.avg_pool2d(samples[:, None], SUPERSAMPLING)[:, 0]


def to_bytes(values: Tensor) -> Tensor:
    """Round grey values to uint8."""
    return values.round().clamp(0, 255).to(torch.uint8)


def _check_bytes(image: object) -> None:
    """Raise a `DoapError` if an image is no array or tensor of uint8."""
    if not (isinstance(image, np.ndarray | Tensor) and image.dtype in (np.uint8, torch.uint8)):
        given = getattr(image, "dtype", type(image).__name__)
        raise DoapError(f"an image must be uint8 grey values, as doap.read_grey returns, not {given}")


def _filterable(image: Tensor) -> Grey | Plane:
    """Return an (H, W) CPU tensor as an array of a type that OpenCV filters."""
    return np.asarray((image if image.dtype == torch.uint8 else image.float()).detach().contiguous().numpy())


def _halve(level: Tensor) -> Tensor:
    """Low-pass by [1 3 3 1] / 8 along both axes and keep every second pixel; an odd border is replicated."""
    height, width = level.shape[2:]
    padded = F.pad(level, (1, 1 + width % 2, 1, 1 + height % 2), mode="replicate")
    taps = _binomial(level.device)
    rows = F.conv2d(padded, taps.view(1, 1, 4, 1), stride=(2, 1))
    return F.conv2d(rows, taps.view(1, 1, 1, 4), stride=(1, 2))


@cache
def _binomial(device: torch.device) -> Tensor:
    """Return the taps of the low-pass, cached per device: a transfer would synchronise with the GPU."""
    return (torch.tensor([1, 3, 3, 1], dtype=torch.float32) / 8).to(device)


@lru_cache(256)
def _level_table(shape: tuple[int, int], count: int, device: torch.device) -> Tensor:
    """Return the start among the pixels of all levels, the height and the width of each level, (count, 3)."""
    rows, start = [], 0
    height, width = shape
    for _ in range(count):
        rows.append([start, height, width])
        start, height, width = start + height * width, (height + 1) // 2, (width + 1) // 2
    return torch.tensor(rows).to(device)


def _bilinear(level: Tensor, points: Tensor) -> Tensor:
    """Sample (1, 1, H, W) at (N, h, w, 2) pixel positions, clamped here: not every device supports border padding."""
    height, width = level.shape[2:]
    limits = points.new_tensor([width - 1, height - 1])
    inside = torch.minimum(points.clamp(min=0), limits)
    normalised = inside / limits.clamp(min=1) * 2 - 1
    samples = F.grid_sample(level, normalised.flatten(0, 1)[None], mode="bilinear", align_corners=True)
    return samples.view(points.shape[:3])
