"""Blur and changes of light of patches as Triton kernels, for NVIDIA GPUs: two launches instead of forty."""

# Triton compiles these functions as its own language, whose arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_PIXELS = 1 << 13  # of a patch, which one program holds in registers


class Light(NamedTuple):
    """Changes of light of N patches of H x W pixels.

    Attributes:
        gamma: (N,) exponents.
        gain: (N,) factors of the contrast.
        slope: (N, 2) grey levels from the centre to the border, vertically and horizontally.
        noise: (N, H, W) normally distributed.
        amplitude: (N,) of the noise.
    """

    gamma: Tensor
    gain: Tensor
    slope: Tensor
    noise: Tensor
    amplitude: Tensor


@triton.jit
def _blur(lines, taps, position, side, stride, inside, RADIUS: tl.constexpr, BLOCK: tl.constexpr):
    """Blur pixels along lines of a side; `position` is that of each pixel in its line, and the border is replicated."""
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(2 * RADIUS + 1):
        near = tl.minimum(tl.maximum(position + (tap - RADIUS), 0), side - 1)
        total += tl.load(taps + tap) * tl.load(lines + near * stride, mask=inside, other=0.0)
    return total


@triton.jit
def _blur_rows_kernel(source, target, taps, height, width, RADIUS: tl.constexpr, BLOCK: tl.constexpr):
    """Blur the rows of a patch."""
    patch = tl.program_id(0).to(tl.int64)
    pixel = tl.arange(0, BLOCK)
    inside = pixel < height * width
    row, column = pixel // width, pixel % width
    rows = source + patch * height * width + row * width
    values = _blur(rows, taps + patch * (2 * RADIUS + 1), column, width, 1, inside, RADIUS, BLOCK)
    tl.store(target + patch * height * width + pixel, values, mask=inside)


@triton.jit
def _blur_columns_kernel(
    source, target, taps, gammas, gains, slopes, noise, amplitudes, height, width,
    RADIUS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Blur the columns of a patch, then change its light."""
    patch = tl.program_id(0).to(tl.int64)
    pixel = tl.arange(0, BLOCK)
    inside = pixel < height * width
    row, column = pixel // width, pixel % width
    columns = source + patch * height * width + column
    values = _blur(columns, taps + patch * (2 * RADIUS + 1), row, height, width, inside, RADIUS, BLOCK)
    bright = tl.minimum(tl.maximum(values / 255, 0.0), 1.0)
    # 0 to a power is 0, but its logarithm is infinite.
    values = tl.where(bright > 0, 255 * tl.exp2(tl.load(gammas + patch) * tl.log2(tl.maximum(bright, 1e-30))), 0.0)
    mean = tl.sum(tl.where(inside, values, 0.0), 0) / (height * width)
    values = mean + tl.load(gains + patch) * (values - mean)
    values += tl.load(slopes + 2 * patch) * (2 * row.to(tl.float32) / (height - 1) - 1)
    values += tl.load(slopes + 2 * patch + 1) * (2 * column.to(tl.float32) / (width - 1) - 1)
    grain = tl.load(noise + patch * height * width + pixel, mask=inside, other=0.0)
    values += grain * tl.load(amplitudes + patch)
    tl.store(target + patch * height * width + pixel, values, mask=inside)


def blur_and_light(values: Tensor, taps: Tensor, light: Light) -> Tensor:
    """Blur (N, H, W) patches by the rows of (N, 2 r + 1) filters along both axes, then change their light."""
    count, height, width = values.shape
    if not count:
        return values
    radius, block = taps.shape[1] // 2, triton.next_power_of_2(height * width)
    taps, values = taps.contiguous(), values.contiguous()
    rows, result = torch.empty_like(values), torch.empty_like(values)
    _blur_rows_kernel[(count,)](values, rows, taps, height, width, RADIUS=radius, BLOCK=block, num_warps=8)
    _blur_columns_kernel[(count,)](
        rows, result, taps, *(change.contiguous() for change in light), height, width,
        RADIUS=radius, BLOCK=block, num_warps=8,
    )  # fmt: skip
    return result
