"""Fast inference: folded batch normalisation, channels-last memory format, bfloat16 where the hardware supports it."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_weights

from doap.networks.descriptor import Descriptor, device_of
from doap.networks.network import PatchNetwork


def optimize_for_inference(model: Descriptor) -> Descriptor:
    """Return a copy of a model that is several times faster and cannot be trained.

    Distances between descriptors change in the third digit where bfloat16 is used (`multiplies_bfloat16`), and by
    rounding errors elsewhere.

    Args:
        model: Model from `doap.load`; not modified.

    Returns:
        The copy, on the same device. A handcrafted model has nothing to optimise and is returned itself.
    """
    device = device_of(model)
    if device is None:
        return model
    network = fold_normalisation(deepcopy(model.network).eval())
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's type stubs
    optimized = InferenceNetwork(network, multiplies_bfloat16(device.type))
    return Descriptor(optimized, model.kind, model.extent, model.name, model.extents).eval()


class InferenceNetwork(PatchNetwork):
    """Wrapper that runs a network in channels-last memory format and, optionally, in bfloat16."""

    def __init__(self, network: PatchNetwork, bfloat16: bool) -> None:
        super().__init__(network.dimensions, network.input_size)
        self.network = network
        self.in_bfloat16 = bfloat16

    def forward(self, patches: Tensor) -> Tensor:
        """Compute the activations of the wrapped network."""
        channels_last = patches.contiguous(memory_format=torch.channels_last)
        with torch.autocast(patches.device.type, torch.bfloat16, enabled=self.in_bfloat16):
            activations: Tensor = self.network(channels_last)
        return activations


def fold_normalisation(network: PatchNetwork) -> PatchNetwork:
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


def multiplies_bfloat16(device_type: str) -> bool:
    """Return whether a device type ("cpu", "cuda" …) multiplies bfloat16 in hardware."""
    if device_type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    amx: Callable[[], bool] = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return device_type == "cpu" and amx()  # CPUs without AMX emulate bfloat16 slowly
