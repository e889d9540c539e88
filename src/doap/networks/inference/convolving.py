"""Convolution, bias and ReLU in one kernel, where the library of the device has one."""

import torch
import torch.nn.functional as F
from torch import Tensor

from doap import onednn
from doap.networks.inference.precision import is_arm, multiplies_bfloat16
from doap.networks.network import is_traced

Pair = tuple[int, int]


def convolve(maps: Tensor, weight: Tensor, bias: Tensor, stride: Pair, padding: Pair, relu: bool) -> Tensor:
    """Convolve maps, by one kernel of cuDNN or oneDNN if ReLU follows.

    Args:
        maps: (N, C, H, W).
        weight: (K, C, h, w), of the same dtype.
        bias: (K,).
        stride: Vertical and horizontal stride.
        padding: Rows and columns of zeros on each side.
        relu: Whether ReLU follows.

    Returns:
        (N, K, H', W').
    """
    fused: Tensor
    if relu and not _is_recorded(maps):
        if _has_cudnn(maps):
            fused = torch.cudnn_convolution_relu(maps, weight, bias, stride, padding, (1, 1), 1)
            return fused
        if _has_onednn(maps):
            fused = torch.ops.mkldnn._convolution_pointwise(
                maps, weight, bias, padding, stride, (1, 1), 1, "relu", [], ""
            )
            return fused
    values = F.conv2d(maps, weight, bias, stride, padding)
    return F.relu(values, inplace=True) if relu else values


def _is_recorded(maps: Tensor) -> bool:
    """Return whether the computation is recorded, for gradients or by a compiler: fused kernels cannot be."""
    return is_traced() or (torch.is_grad_enabled() and maps.requires_grad)


def _has_cudnn(maps: Tensor) -> bool:
    """Return whether cuDNN convolves these maps."""
    return maps.is_cuda and torch.version.hip is None and torch.backends.cudnn.is_available()  # type: ignore[no-untyped-call]


def _has_onednn(maps: Tensor) -> bool:
    """Return whether oneDNN convolves these maps by its own kernels, not by the library for ARM."""
    is_multiplied = maps.dtype == torch.float32 or (maps.dtype == torch.bfloat16 and multiplies_bfloat16("cpu"))
    return (
        maps.device.type == "cpu"
        and is_multiplied
        and not is_arm()
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and onednn.is_enabled()
        and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
    )
