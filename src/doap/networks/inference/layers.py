"""Convolutions and linear layers by the fastest kernel for their shape and device.

Each casts its input to the dtype of its weights, so that layers of different dtypes follow each other.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.inference.convolving import Pair, are_bounded, convolve
from doap.networks.inference.precision import is_arm
from doap.networks.network import as_rows, is_traced

CAST_RATIO = 10  # by which NumPy casts to float16 faster on an ARM CPU than one thread of torch, without vectors


class InferenceConv(nn.Module):
    """A convolution with bias, optionally followed by ReLU; a matrix product where it covers the whole map.

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
        self.kernel_size: Pair = (convolution.kernel_size[0], convolution.kernel_size[1])
        self.stride: Pair = (convolution.stride[0], convolution.stride[1])
        self.padding: Pair = (int(convolution.padding[0]), int(convolution.padding[1]))
        self.relu = relu
        self.is_bounded = are_bounded(self.weight, self.bias)

    def forward(self, maps: Tensor) -> Tensor:
        """Compute (N, K, H', W') maps of (N, C, H, W) maps."""
        maps = cast(maps, self.weight.dtype)
        if tuple(maps.shape[2:]) == self.kernel_size and not any(self.padding):
            values = F.linear(as_rows(maps), as_rows(self.weight), self.bias)[:, :, None, None]
            return F.relu(values, inplace=True) if self.relu else values
        return self.convolve(maps)

    def convolve(self, maps: Tensor) -> Tensor:
        """Compute maps of maps in the dtype of the weights."""
        return convolve(maps, self.weight, self.bias, self.stride, self.padding, self.relu, self.is_bounded)


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
    if not is_slow or is_traced() or torch.get_num_threads() >= CAST_RATIO:
        return values.to(dtype)
    with np.errstate(over="ignore"):  # too large values become infinite, as in torch
        return torch.from_numpy(values.detach().numpy().astype(np.float16, order="K"))
