"""The layers of a network with batch normalisation folded into them, as the int8 form is built from."""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from doap.errors import DoapError
from doap.networks.descriptor import Descriptor
from doap.networks.inference import fold_normalisation
from doap.networks.l2net import L2Net
from doap.networks.layers.convolutions import WholeMapConvolution
from doap.networks.network import LayeredNetwork
from doap.networks.residual import Residual, ResidualBlock
from doap.networks.small.tiny import Tiny
from doap.networks.small.windows import Windows

Computed = nn.Conv2d | nn.Linear | ResidualBlock
"""Modules whose inputs are quantised; the input of a residual block is here what it adds to its own."""


@dataclass(frozen=True)
class Layer:
    """A convolution, or a linear layer over a whole map, with an optional ReLU.

    Attributes:
        weight: (out channels, in channels, k, k) of a convolution; (out, in) of a linear layer, which reads a map
            in the order (row, column, channel). Float64.
        bias: (out channels,) float64.
        relu: Whether ReLU follows.
        stride: Stride of a convolution.
        padding: Its padding on all sides.
    """

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    relu: bool
    stride: int = 1
    padding: int = 0

    @property
    def is_convolution(self) -> bool:
        """Whether the layer is a convolution."""
        return self.weight.ndim == 4


@dataclass(frozen=True)
class Sum:
    """The sum of a residual block, followed by ReLU: its input is the output of the layer before it.

    Attributes:
        first: Index of the first layer of the block, whose input is added.
        relu: True, as of a layer.
    """

    first: int
    relu: bool = True


def read_layers(model: Descriptor) -> list[Layer | Sum]:
    """Return the layers of a model in float64, the last convolution as a linear layer.

    Raises:
        DoapError: If the model is no L2Net, Residual, Tiny or Windows.
    """
    modules = [module for module in _modules(_fold(model)) if isinstance(module, Computed | nn.ReLU)]
    layers: list[Layer | Sum] = []
    for module, following in zip(modules, [*modules[1:], None], strict=True):
        if isinstance(module, ResidualBlock):
            layers.append(Sum(len(layers) - _count_layers(module)))
        elif isinstance(module, nn.Conv2d | nn.Linear):
            layers.append(_read_layer(module, relu=isinstance(following, nn.ReLU)))
    return layers


@torch.no_grad()
def layer_inputs(model: Descriptor, patches: Tensor) -> list[Tensor]:
    """Compute the input of every layer in floats.

    Args:
        model: An L2Net, a Residual, a Tiny or a Windows.
        patches: (N, 1, S, S) float, grey values in 0..255.

    Returns:
        One float32 tensor with N rows per layer of `read_layers`, (n + 1) · N before the last layer of a network with
        n surroundings; those after the first are outputs of the layer before, after its ReLU.
    """
    network = _fold(model)
    inputs, values = [], network.first_input(patches.double())
    for module in _modules(network):
        if isinstance(module, Computed):
            inputs.append(values.float())
        if isinstance(module, ResidualBlock):
            values = F.relu(values + inputs[-1 - _count_layers(module)])
        else:
            values = F.relu(values) if isinstance(module, nn.ReLU) else module(values)  # not in place
    return inputs


def check_has_int8(model: Descriptor) -> None:
    """Raise a `DoapError` if a model has no int8 form."""
    network = type(model.network)
    if network not in (L2Net, Residual, Tiny, Windows):  # subclasses of L2Net compute more than its layers
        raise DoapError(
            f"{model.name}: {network.__name__} has no int8 form, only L2Net, Residual, Tiny and Windows have; "
            "load it without int8"
        )


def _modules(network: LayeredNetwork) -> list[nn.Module]:
    """Return the modules of a network in their order: the layers of a residual block, then the block, for its sum."""
    modules: list[nn.Module] = []
    for module in network.layers:
        modules += [*module.layers, module] if isinstance(module, ResidualBlock) else [module]
    return modules


def _count_layers(block: ResidualBlock) -> int:
    return sum(isinstance(module, nn.Conv2d) for module in block.layers)


def _fold(model: Descriptor) -> LayeredNetwork:
    """Return the network of a model in float64 with folded batch normalisation."""
    check_has_int8(model)
    folded = fold_normalisation(deepcopy(model.network).eval().cpu().double())
    assert isinstance(folded, LayeredNetwork)
    return folded


def _read_layer(module: nn.Conv2d | nn.Linear, relu: bool) -> Layer:
    weight = module.weight.detach()
    bias = weight.new_zeros(len(weight)) if module.bias is None else module.bias.detach()
    if isinstance(module, nn.Linear):
        return Layer(weight.numpy(), bias.numpy(), relu)
    if isinstance(module, WholeMapConvolution):
        return Layer(weight.permute(0, 2, 3, 1).flatten(1).numpy(), bias.numpy(), relu)
    return Layer(weight.numpy(), bias.numpy(), relu, module.stride[0], int(module.padding[0]))
