"""Patches of an atlas as a Triton kernel, for NVIDIA GPUs: one launch, and no memory but that of the patches."""

# Triton compiles these functions as its own language, whose arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from doap.images.opencv_extraction import SUPERSAMPLING

BLOCK = 256  # patch pixels


@triton.jit
def _cut_kernel(
    pixels, starts, widths, heights, affine, tilts, visible, patches,
    SIZE: tl.constexpr, SAMPLES: tl.constexpr, MAX_TILT: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Cut some pixels of a patch: means of SAMPLES² bilinear samples."""
    patch = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < SIZE * SIZE
    start = tl.load(starts + patch)
    width = tl.load(widths + patch)
    height = tl.load(heights + patch)
    a, b, x0 = tl.load(affine + 6 * patch), tl.load(affine + 6 * patch + 1), tl.load(affine + 6 * patch + 2)
    c, d, y0 = tl.load(affine + 6 * patch + 3), tl.load(affine + 6 * patch + 4), tl.load(affine + 6 * patch + 5)
    tilt_u, tilt_v = tl.load(tilts + 2 * patch), tl.load(tilts + 2 * patch + 1)
    scale = tl.load(visible + patch)
    total = tl.zeros((BLOCK,), tl.float32)
    for sample in tl.static_range(SAMPLES * SAMPLES):
        column = SAMPLES * (pixel % SIZE) + sample % SAMPLES
        row = SAMPLES * (pixel // SIZE) + sample // SAMPLES
        u = ((2 * column + 1).to(tl.float32) / (SAMPLES * SIZE) - 1) * scale
        v = ((2 * row + 1).to(tl.float32) / (SAMPLES * SIZE) - 1) * scale
        depth = 1 + tl.maximum(tilt_u * u + tilt_v * v, -MAX_TILT)
        u, v = u / depth, v / depth
        x = tl.minimum(tl.maximum(x0 + a * u + b * v, 0.0), width.to(tl.float32) - 1 - LAST)
        y = tl.minimum(tl.maximum(y0 + c * u + d * v, 0.0), height.to(tl.float32) - 1 - LAST)
        left, top = x.to(tl.int32), y.to(tl.int32)
        corner = pixels + start + top * width + left
        right, down = x - left, y - top
        upper = tl.load(corner, mask=inside, other=0).to(tl.float32) * (1 - right)
        upper += tl.load(corner + 1, mask=inside, other=0).to(tl.float32) * right
        lower = tl.load(corner + width, mask=inside, other=0).to(tl.float32) * (1 - right)
        lower += tl.load(corner + width + 1, mask=inside, other=0).to(tl.float32) * right
        total += upper * (1 - down) + lower * down
    tl.store(patches + patch * SIZE * SIZE + pixel, total / (SAMPLES * SAMPLES), mask=inside)


def cut(
    pixels: Tensor,
    starts: Tensor,
    sides: tuple[Tensor, Tensor],
    affine: Tensor,
    tilts: Tensor,
    visible: Tensor,
    size: int,
    max_tilt: float,
    last: float,
) -> Tensor:
    """Cut patches from levels of pyramids.

    Args:
        pixels: Levels of all images, uint8, one after another.
        starts: (N,) int64, first pixel of the level of each patch.
        sides: Width and height of the level, (N,) integers each.
        affine: (N, 2, 3) maps from patch coordinates, [-1, 1]², to pixels of the level.
        tilts: (N, 2) tilts of the planes of the patches.
        visible: (N,) share of the patch's side that is sampled around its centre.
        size: Side of the patches.
        max_tilt: Largest decrease of the depth.
        last: Distance of the last position from the last pixel.

    Returns:
        (N, size, size) float32.
    """
    patches = torch.empty(len(starts), size, size, device=pixels.device)
    if len(starts):
        width, height = (side.to(torch.int32).contiguous() for side in sides)
        _cut_kernel[(len(starts), triton.cdiv(size * size, BLOCK))](
            pixels, starts.contiguous(), width, height, affine.contiguous(), tilts.contiguous(), visible.contiguous(),
            patches, SIZE=size, SAMPLES=SUPERSAMPLING, MAX_TILT=max_tilt, LAST=last, BLOCK=BLOCK,
        )  # fmt: skip
    return patches
