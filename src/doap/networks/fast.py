"""The fastest mode of a device for describing: batch normalisation folded, channels last, bfloat16 where it pays."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_weights

from doap.networks.descriptor import Descriptor, device_of
from doap.networks.network import PatchNetwork


def fastest(model: Descriptor) -> Descriptor:
    """A copy of a model, on its device, that describes several times faster and cannot be trained.

    Distances between descriptors change in the third digit where bfloat16 is used (`multiplies_bfloat16`), and by
    rounding alone elsewhere.

    Args:
        model: from `doap.load`; it stays as it is. A handcrafted one is the same in every mode, and returned itself.
    """
    device = device_of(model)
    if device is None:
        return model
    network = fold_normalisation(deepcopy(model.network).eval())
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's own types leave it out
    fast = Fast(network, multiplies_bfloat16(device.type))
    return Descriptor(fast, model.kind, model.extent, model.name, model.extents).eval()


class Fast(PatchNetwork):
    """A network that is read in channels-last order and, if wanted, computes in bfloat16."""

    def __init__(self, network: PatchNetwork, bfloat16: bool) -> None:
        super().__init__(network.dimensions, network.input_size)
        self.network = network
        self.in_bfloat16 = bfloat16

    def forward(self, patches: Tensor) -> Tensor:
        """As the network that is wrapped."""
        ordered = patches.contiguous(memory_format=torch.channels_last)
        with torch.autocast(patches.device.type, torch.bfloat16, enabled=self.in_bfloat16):
            activations: Tensor = self.network(ordered)
        return activations


def fold_normalisation(network: PatchNetwork) -> PatchNetwork:
    """Merge every batch normalisation that follows a convolution or linear layer into it, in place; in eval mode."""
    for module in network.modules():
        if isinstance(module, nn.Sequential):
            for place in range(len(module) - 1):
                layer, normalisation = module[place], module[place + 1]
                if isinstance(layer, nn.Conv2d) and isinstance(normalisation, nn.BatchNorm2d):
                    module[place] = fuse_conv_bn_eval(layer, normalisation)
                elif isinstance(layer, nn.Linear) and isinstance(normalisation, nn.BatchNorm1d):
                    module[place] = _fold_into_linear(layer, normalisation)
                else:
                    continue
                module[place + 1] = nn.Identity()
    return network


def _fold_into_linear(layer: nn.Linear, normalisation: nn.BatchNorm1d) -> nn.Linear:
    """As `fuse_linear_bn_eval`, which fails where scale and shift are not learned: there they are 1 and 0."""
    held = dict(normalisation.named_buffers()) | dict(normalisation.named_parameters())
    mean, variance = held["running_mean"], held["running_var"]
    scale, shift = held.get("weight", torch.ones_like(mean)), held.get("bias", torch.zeros_like(mean))
    folded = deepcopy(layer)
    folded.weight, folded.bias = fuse_linear_bn_weights(
        layer.weight, layer.bias, mean, variance, normalisation.eps, scale, shift
    )
    return folded


def multiplies_bfloat16(device: str) -> bool:
    """Whether a kind of device ("cpu", "cuda" …) multiplies bfloat16 in hardware."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    amx: Callable[[], bool] = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return device == "cpu" and amx()  # CPUs without AMX emulate it, slowly
