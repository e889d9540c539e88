"""Convolution, bias and ReLU in one kernel, where the library of the device has one."""

import torch
import torch.nn.functional as F
from torch import Tensor

from doap import onednn
from doap.networks.inference.precision import multiplies_bfloat16
from doap.networks.network import is_traced

Pair = tuple[int, int]

# From the largest input of a layer to its largest output; trained networks have a tenth of it at most.
MAX_GAIN = 1000.0


def convolve(
    maps: Tensor, weight: Tensor, bias: Tensor, stride: Pair, padding: Pair, relu: bool, is_bounded: bool
) -> Tensor:
    """Convolve maps, by one kernel of cuDNN or oneDNN if ReLU follows.

    The ReLU of oneDNN makes 0 of NaN. It is used where no NaN arises: with weights that do not let sums overflow.

    Args:
        maps: (N, C, H, W).
        weight: (K, C, h, w), of the same dtype.
        bias: (K,).
        stride: Vertical and horizontal stride.
        padding: Rows and columns of zeros on each side.
        relu: Whether ReLU follows.
        is_bounded: Whether the weights are bounded, see `are_bounded`.

    Returns:
        (N, K, H', W').
    """
    fused: Tensor
    if relu and not _is_recorded(maps):
        if _has_cudnn(maps):
            fused = torch.cudnn_convolution_relu(maps, weight, bias, stride, padding, (1, 1), 1)
            return fused
        if is_bounded and _has_onednn(maps):
            fused = torch.ops.mkldnn._convolution_pointwise(
                maps, weight, bias, padding, stride, (1, 1), 1, "relu", [], ""
            )
            return fused
    values = F.conv2d(maps, weight, bias, stride, padding)
    return F.relu(values, inplace=True) if relu else values


def are_bounded(weight: Tensor, bias: Tensor) -> bool:
    """Return whether weights are so small that the outputs of a dozen such layers do not overflow."""
    gain = weight.abs().float().flatten(1).sum(1) + bias.abs().float()
    return bool((gain < MAX_GAIN).all())


def _is_recorded(maps: Tensor) -> bool:
    """Return whether the computation is recorded, for gradients or by a compiler: fused kernels cannot be."""
    return is_traced() or (torch.is_grad_enabled() and maps.requires_grad)


def _has_cudnn(maps: Tensor) -> bool:
    """Return whether cuDNN convolves these maps."""
    return maps.is_cuda and torch.version.hip is None and torch.backends.cudnn.is_available()  # type: ignore[no-untyped-call]


def _has_onednn(maps: Tensor) -> bool:
    """Return whether oneDNN convolves these maps in bfloat16; in float32 ReLU takes 2 % of the time."""
    return (
        maps.device.type == "cpu"
        and maps.dtype == torch.bfloat16
        and multiplies_bfloat16("cpu")
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and onednn.is_enabled()
        and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
    )
