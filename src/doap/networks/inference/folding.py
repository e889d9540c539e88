"""Folding of batch normalisation into the layer before it."""

from copy import deepcopy
from typing import TypeVar

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_weights

Network = TypeVar("Network", bound=nn.Module)


def fold_normalisation(network: Network) -> Network:
    """Fold every batch normalisation into the convolution or linear layer before it, in place; needs eval mode."""
    for module in network.modules():
        if isinstance(module, nn.Sequential):
            for index in range(len(module) - 1):
                layer, normalisation = module[index], module[index + 1]
                if isinstance(layer, nn.Conv2d) and isinstance(normalisation, nn.BatchNorm2d):
                    module[index] = fuse_conv_bn_eval(layer, normalisation)
                elif isinstance(layer, nn.Linear) and isinstance(normalisation, nn.BatchNorm1d):
                    module[index] = _fold_into_linear(layer, normalisation)
                else:
                    continue
                module[index + 1] = nn.Identity()
    return network


def _fold_into_linear(layer: nn.Linear, normalisation: nn.BatchNorm1d) -> nn.Linear:
    """Fold as torch's `fuse_linear_bn_eval`, which fails without learned scale and shift; they are 1 and 0 here."""
    tensors = dict(normalisation.named_buffers()) | dict(normalisation.named_parameters())
    mean, variance = tensors["running_mean"], tensors["running_var"]
    scale, shift = tensors.get("weight", torch.ones_like(mean)), tensors.get("bias", torch.zeros_like(mean))
    folded = deepcopy(layer)
    folded.weight, folded.bias = fuse_linear_bn_weights(
        layer.weight, layer.bias, mean, variance, normalisation.eps, scale, shift
    )
    return folded
