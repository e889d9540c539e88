"""Convolutions and linear layers by the fastest kernel for their shape and device.

Each casts its input to the dtype of its weights, so that layers of different dtypes follow each other.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.inference.precision import is_arm

PRODUCT_COLUMNS = 32  # of a matrix product that fills the vector units of an ARM CPU
CAST_RATIO = 10  # by which NumPy casts to float16 faster on an ARM CPU than one thread of torch, without vectors


class InferenceConv(nn.Module):
    """A convolution with bias, optionally followed by ReLU.

    - A convolution that covers the whole map is a matrix product.
    - One of a single input channel is a matrix product with the pixels of each window on ARM CPUs, where torch's kernel
      for it is slow. With few output channels, a window covers several neighbouring outputs: fewer pixels are copied,
      and the product is faster in spite of the zeros among its weights.
    - On NVIDIA GPUs the bias and ReLU are part of cuDNN's kernel.

    Args:
        convolution: Convolution to replace; its weights are copied.
        relu: Whether ReLU follows.
        dtype: Dtype of the computation.
    """

    def __init__(self, convolution: nn.Conv2d, relu: bool, dtype: torch.dtype) -> None:
        super().__init__()
        bias = convolution.bias
        if bias is None:
            bias = convolution.weight.new_zeros(convolution.out_channels)
        weight = convolution.weight.detach().to(dtype, memory_format=torch.channels_last)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias.detach().to(dtype), requires_grad=False)
        self.kernel_size = tuple(convolution.kernel_size)
        self.stride = tuple(convolution.stride)
        self.padding = tuple(map(int, convolution.padding))
        self.relu = relu
        self.from_windows = convolution.in_channels == 1 and is_arm()
        self.columns = max(1, PRODUCT_COLUMNS // convolution.out_channels)
        self.wide_weight: nn.Parameter | None = None
        if self.from_windows and self.columns > 1:
            wide = _widen(self.weight, self.columns, self.stride[1])
            self.wide_weight = nn.Parameter(wide, requires_grad=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Compute (N, K, H', W') maps of (N, C, H, W) maps."""
        maps = cast(maps, self.weight.dtype)
        if tuple(maps.shape[2:]) == self.kernel_size and not any(self.padding):
            values = F.linear(_rows(maps), _rows(self.weight), self.bias)[:, :, None, None]
        elif self.from_windows and maps.device.type == "cpu":
            values = self._from_windows(maps)
        elif self.relu and _has_fused_relu(maps):
            fused: Tensor = torch.cudnn_convolution_relu(
                maps, self.weight, self.bias, self.stride, self.padding, (1, 1), 1
            )
            return fused
        else:
            values = F.conv2d(maps, self.weight, self.bias, self.stride, self.padding)
        return F.relu(values, inplace=True) if self.relu else values

    def _from_windows(self, maps: Tensor) -> Tensor:
        """Multiply the pixels of each window, (N, H', W' / columns, pixels), with the weights."""
        (rows, columns), (row_step, column_step), (top, left) = self.kernel_size, self.stride, self.padding
        padded = F.pad(maps[:, 0], (left, left, top, top))
        outputs = (padded.shape[2] - columns) // column_step + 1
        weight, count = _rows(self.weight), 1
        if self.wide_weight is not None and outputs % self.columns == 0:
            weight, count = self.wide_weight, self.columns
        width = columns + (count - 1) * column_step
        windows = padded.unfold(1, rows, row_step).unfold(2, width, count * column_step).flatten(3)
        values = F.linear(windows, weight, self.bias.repeat(count))
        by_column = torch.unflatten(values, 3, (count, len(self.bias)))
        return by_column.flatten(2, 3).permute(0, 3, 1, 2)


class InferenceLinear(nn.Module):
    """A linear layer.

    Args:
        layer: Linear layer to replace; its weights are copied.
        dtype: Dtype of the computation.
    """

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach().to(dtype), requires_grad=False)
        self.bias: nn.Parameter | None = None
        if layer.bias is not None:
            self.bias = nn.Parameter(layer.bias.detach().to(dtype), requires_grad=False)

    def forward(self, values: Tensor) -> Tensor:
        """Compute (N, K) values of (N, C) values."""
        return F.linear(cast(values, self.weight.dtype), self.weight, self.bias)


def cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return values in a dtype, rounded to nearest even; in the same memory order."""
    is_slow = (values.dtype, dtype, values.device.type) == (torch.float32, torch.float16, "cpu") and is_arm()
    is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    if not is_slow or is_traced or torch.get_num_threads() >= CAST_RATIO:
        return values.to(dtype)
    with np.errstate(over="ignore"):  # too large values become infinite, as in torch
        return torch.from_numpy(values.detach().numpy().astype(np.float16, order="K"))


def _widen(weight: Tensor, columns: int, step: int) -> Tensor:
    """Return the weights of several neighbouring outputs: (columns · K, rows · width) of (K, 1, rows, kernel width)."""
    channels, _, rows, width = weight.shape
    wide = weight.new_zeros(columns, channels, rows, width + (columns - 1) * step)
    for column in range(columns):
        wide[column, :, :, column * step : column * step + width] = weight[:, 0]
    return wide.flatten(2).flatten(0, 1)


def _rows(maps: Tensor) -> Tensor:
    """Flatten (N, C, H, W) to (N, H · W · C); maps in channels-last order are not copied."""
    return maps.permute(0, 2, 3, 1).flatten(1)


def _has_fused_relu(maps: Tensor) -> bool:
    """Return whether cuDNN computes convolution, bias and ReLU in one kernel; it has no gradient."""
    return (
        maps.is_cuda
        and torch.version.hip is None
        and torch.backends.cudnn.is_available()  # type: ignore[no-untyped-call]
        and not torch.compiler.is_compiling()
        and not (torch.is_grad_enabled() and maps.requires_grad)
    )
