"""Halving of images and sampling of patches with OpenCV, for `extraction.Pyramid` on the CPU.

`cv2.warpAffine` samples a patch ten times as fast as `torch.nn.functional.grid_sample`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

Plane = NDArray[np.float32]

SUPERSAMPLING = 2  # samples per patch pixel along each axis
BLOCK_PIXELS = 2**16  # of the patches whose samples are averaged at once: 1 MiB, which fits the caches
STRIP = 256  # rows of a halved image that are filtered at once, which bounds the memory at full resolution

_TAPS = np.array([1, 3, 3, 1], np.float32) / 8


def halve(image: NDArray[np.uint8] | Plane) -> Plane:
    """Low-pass (H, W) by [1 3 3 1] / 8 along both axes and keep every second pixel; the border is replicated."""
    height, width = image.shape
    half = np.empty(((height + 1) // 2, (width + 1) // 2), np.float32)
    for top in range(0, len(half), STRIP):
        bottom = min(top + STRIP, len(half))
        rows = np.arange(2 * top - 1, 2 * bottom + 1).clip(0, height - 1)
        filtered = cv2.sepFilter2D(
            image[rows], cv2.CV_32F, _TAPS, _TAPS, anchor=(1, 1), borderType=cv2.BORDER_REPLICATE
        )
        half[top:bottom] = filtered[1:-1:2, ::2]
    return half


def sample_patches(
    levels: Callable[[int], Plane], numbers: NDArray[np.int64], maps: NDArray[np.float64], size: int
) -> NDArray[np.uint8]:
    """Sample patches with 2x2 bilinear samples per pixel; the border of a level is replicated.

    Blocks of patches are sampled by as many threads as torch and OpenCV may use.

    Args:
        levels: Function that returns a level of the pyramid, (H, W), by its number.
        numbers: (N,) level of each patch.
        maps: (N, 2, 3) affine map of each patch from its samples, (column, row), to pixels of its level.
        size: Side of the patches in pixels.

    Returns:
        (N, size, size) uint8.
    """
    patches = np.empty((len(maps), size, size), np.uint8)
    planes = {number: levels(number) for number in np.unique(numbers).tolist()}
    sides = np.array([planes[number].shape[::-1] for number in numbers.tolist()], np.int64).reshape(-1, 2)
    low, high = _covered_pixels(maps, sides, SUPERSAMPLING * size)
    # Relative to the covered pixels, positions keep their accuracy in float32, which OpenCV uses.
    local = np.concatenate([maps[:, :, :2], maps[:, :, 2:] - low[:, :, None]], 2)
    count = max(1, BLOCK_PIXELS // size**2)

    def sample(start: int) -> None:
        block = slice(start, start + count)
        regions = [
            planes[number][top:bottom, left:right]
            for number, (left, top), (right, bottom) in zip(
                numbers[block].tolist(), low[block].tolist(), high[block].tolist(), strict=True
            )
        ]
        _sample_block(regions, local[block], patches[block])

    starts = range(0, len(maps), count)
    workers = min(torch.get_num_threads(), cv2.getNumThreads(), len(starts))
    if workers > 1:
        with ThreadPoolExecutor(workers) as pool:  # OpenCV releases the interpreter lock
            list(pool.map(sample, starts))
    else:
        for start in starts:
            sample(start)
    return patches


@cache
def is_exact() -> bool:
    """Return whether `cv2.warpAffine` interpolates at the exact positions.

    OpenCV 4, and some builds of later versions, round them to 1/32 of a pixel.
    """
    if not hasattr(cv2, "ALGO_HINT_ACCURATE"):
        return False
    ramp = np.tile(np.arange(64, dtype=np.float32), (64, 1))
    sampled = np.empty((32, 32), np.float32)
    try:
        _warp(ramp, np.array([[0.77, 0.013, 5.007], [0, 0.9, 2]]), sampled)
    except cv2.error:  # the last versions of OpenCV 4 have the constant, but not the argument of this function
        return False
    rows, columns = np.mgrid[:32, :32]
    return bool(np.abs(sampled - (0.77 * columns + 0.013 * rows + 5.007)).max() < 1e-3)


def _covered_pixels(
    maps: NDArray[np.float64], sides: NDArray[np.int64], fine: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and one past the last pixel (x, y) that each patch reads, (N, 2) each; at least one pixel."""
    spans = (fine - 1) * maps[:, :, :2]
    first = maps[:, :, 2] + np.minimum(spans, 0).sum(2)
    last = maps[:, :, 2] + np.maximum(spans, 0).sum(2)
    low = np.clip(np.floor(first).astype(np.int64) - 1, 0, sides - 1)
    return low, np.clip(np.ceil(last).astype(np.int64) + 2, low + 1, sides)


def _sample_block(regions: list[Plane], maps: NDArray[np.float64], patches: NDArray[np.uint8]) -> None:
    count, size, _ = patches.shape
    fine = SUPERSAMPLING * size
    samples = np.empty((count, fine, fine), np.float32)
    for region, matrix, target in zip(regions, maps, samples, strict=True):
        _warp(region, matrix, target)
    means = cv2.resize(samples.reshape(-1, fine), (size, count * size), interpolation=cv2.INTER_AREA)
    cv2.convertScaleAbs(means, patches.reshape(-1, size))


def _warp(region: Plane, matrix: NDArray[np.float64], target: Plane) -> None:
    """Sample a region bilinearly at matrix · (column, row, 1) of every element of the target."""
    cv2.warpAffine(
        region,
        matrix,
        target.shape[::-1],
        target,
        cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        cv2.BORDER_REPLICATE,
        hint=cv2.ALGO_HINT_ACCURATE,
    )
