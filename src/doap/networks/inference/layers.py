"""Convolutions and linear layers by the fastest kernel for their shape and device.

Each casts its input to the dtype of its weights, so that layers of different dtypes follow each other.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.inference.precision import is_arm


class InferenceConv(nn.Module):
    """A convolution with bias, optionally followed by ReLU.

    - A convolution that covers the whole map is a matrix product.
    - One of a single input channel is a matrix product with the pixels of each window on ARM CPUs, where torch's kernel
      for it is slow.
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

    def forward(self, maps: Tensor) -> Tensor:
        """Compute (N, K, H', W') maps of (N, C, H, W) maps."""
        maps = maps.to(self.weight.dtype)
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
        """Multiply the pixels of each window, (N, H', W', k · k), with the weights."""
        (rows, columns), (row_step, column_step), (top, left) = self.kernel_size, self.stride, self.padding
        padded = F.pad(maps[:, 0], (left, left, top, top))
        windows = padded.unfold(1, rows, row_step).unfold(2, columns, column_step).flatten(3)
        return F.linear(windows, _rows(self.weight), self.bias).permute(0, 3, 1, 2)


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
        return F.linear(values.to(self.weight.dtype), self.weight, self.bias)


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
