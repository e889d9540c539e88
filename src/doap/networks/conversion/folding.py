"""Layers of published networks, and their equivalents in `L2Net`."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from doap.networks.l2net import INPUT_SIZE
from doap.networks.network import EPS


@dataclass(frozen=True)
class ConvLayer:
    """A convolution and the batch normalisation after it, in float64.

    y = scale · (weight * x + bias - mean) / deviation + shift.

    Args:
        weight: (C', C, K, K).
        bias: (C').
        mean: (C').
        deviation: (C'), square root of the variance, with what is added to it.
        scale: (C').
        shift: (C').
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    deviation: Tensor
    scale: Tensor
    shift: Tensor


def l2net_tensors(layers: Sequence[ConvLayer], unbiased: bool) -> dict[str, Tensor]:
    """Return the state dict of the `L2Net` that computes the same as some layers, up to rounding.

    `L2Net` has neither biases nor learned scales and shifts: they are folded into the weights and the mean.

    Args:
        layers: The seven layers.
        unbiased: Whether the published network divides a patch by its unbiased standard deviation. `L2Net` divides by
            the biased one, which is smaller by a constant factor: it is folded into the first layer.
    """
    pixels = INPUT_SIZE**2
    gain = ((pixels - 1) / pixels) ** 0.5 if unbiased else 1.0
    tensors: dict[str, Tensor] = {}
    for number, layer in enumerate(layers):
        index = 3 * number + (number == 6)  # convolution, normalisation, ReLU; dropout before the last
        factor = layer.scale * (gain if number == 0 else 1.0)
        tensors[f"layers.{index}.weight"] = layer.weight * factor[:, None, None, None]
        mean = layer.scale * (layer.mean - layer.bias) - layer.shift * layer.deviation
        tensors[f"layers.{index + 1}.running_mean"] = mean
        tensors[f"layers.{index + 1}.running_var"] = layer.deviation**2 - EPS
        tensors[f"layers.{index + 1}.num_batches_tracked"] = torch.tensor(0)
    return tensors
