"""Convolutions of unusual shapes, which a GPU trains several times faster as matrix products.

Weights, their names and all other uses are those of `nn.Conv2d`.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

ROWS = 16  # the nine pixels of a neighbourhood, padded to what tensor cores multiply
PIXELS_PER_SUM = 8192  # products of so many pixels are summed at once, then these sums


class WholeMapConvolution(nn.Conv2d):
    """Convolution whose kernel covers the whole map: each output is one inner product."""

    def forward(self, input: Tensor) -> Tensor:
        """Compute (N, C', 1, 1) of (N, C, H, W) maps as large as the kernel."""
        if not (self.training and input.is_cuda):
            return super().forward(input)
        # In channels-last order both are views.
        maps, kernels = (values.permute(0, 2, 3, 1).flatten(1) for values in (input, self.weight))
        return F.linear(maps, kernels, self.bias)[:, :, None, None]


class PatchConvolution(nn.Conv2d):
    """Convolution of 3x3 with zero padding of patches, which have one channel; without bias."""

    def forward(self, input: Tensor) -> Tensor:
        """Compute (N, C', H, W) of (N, 1, H, W) patches."""
        if not (self.training and input.is_cuda) or input.requires_grad:
            return super().forward(input)
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else input.dtype
        return convolve_patches(input.to(dtype), self.weight.to(dtype))


def convolve_patches(patches: Tensor, weight: Tensor) -> Tensor:
    """Convolve patches by 3x3 kernels with zero padding; gradients reach the kernels only.

    Args:
        patches: (N, 1, H, W).
        weight: (C, 1, 3, 3).

    Returns:
        (N, C, H, W) in channels-last order.
    """
    result: Tensor = _PatchProduct.apply(patches, weight.flatten(1))  # type: ignore[no-untyped-call]
    return torch.unflatten(result, 0, (len(patches), *patches.shape[2:])).permute(0, 3, 1, 2)


class _PatchProduct(torch.autograd.Function):
    """Matrix product of the neighbourhoods of all pixels and (C, 9) kernels: (N · H · W, C)."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor, kernels: Tensor) -> Tensor:
        neighbourhoods = _neighbourhoods(patches[:, 0])
        ctx.save_for_backward(neighbourhoods)
        ctx.taps = kernels.shape[1]
        return neighbourhoods.T @ F.pad(kernels, (0, ROWS - ctx.taps)).T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        (neighbourhoods,) = ctx.saved_tensors
        size = PIXELS_PER_SUM if len(gradient) % PIXELS_PER_SUM == 0 else len(gradient)
        pixels = torch.unflatten(neighbourhoods, 1, (-1, size)).permute(1, 2, 0)
        parts = torch.unflatten(gradient, 0, (-1, size)).mT @ pixels
        total = parts.sum(0, dtype=torch.promote_types(gradient.dtype, torch.float32))
        return None, total[:, : ctx.taps].to(gradient.dtype)


def _neighbourhoods(patches: Tensor) -> Tensor:
    """Return the 3x3 neighbourhoods of the pixels of (N, H, W) patches, (16, N · H · W), zero beyond the border."""
    height, width = patches.shape[1:]
    padded = F.pad(patches, (1, 1, 1, 1))
    result = patches.new_zeros(ROWS, *patches.shape)
    for tap in range(9):
        row, column = divmod(tap, 3)
        result[tap] = padded[:, row : row + height, column : column + width]
    return result.flatten(1)
