"""Conversion of a model to its fastest form on its device."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from doap import onednn
from doap.errors import DoapError
from doap.networks.descriptor import Descriptor, device_of
from doap.networks.inference.folding import Network, fold_normalisation
from doap.networks.inference.layers import InferenceLinear
from doap.networks.inference.precision import fastest_dtype
from doap.networks.inference.single_channel import inference_conv
from doap.networks.network import PatchNetwork, is_traced


class InferenceNetwork(PatchNetwork):
    """A network in its inference form: folded, fused, channels-last, not trainable.

    Args:
        network: Network with the layers of `doap.networks.inference.layers`.
        precision: Dtype of its convolutions.
    """

    def __init__(self, network: PatchNetwork, precision: torch.dtype) -> None:
        super().__init__(network.dimensions, network.input_size)
        self.network = network
        self.precision = precision
        self.surroundings = network.surroundings

    def forward(self, patches: Tensor) -> Tensor:
        """Compute the raw activations of the wrapped network."""
        activations: Tensor = self.network(patches)
        if self.precision == torch.bfloat16 and not is_traced():
            zeros = 0 * patches.sum((1, 2, 3))[:, None]  # NaN of NaN, which fused ReLU makes 0
            activations = activations + zeros.to(activations.dtype)
        return activations

    def _keep_outputs(self, count: int) -> None:
        raise DoapError(f"a fast model cannot be truncated; load it with dimensions={count}")


def optimize_for_inference(model: Descriptor, dtype: torch.dtype | None = None) -> Descriptor:
    """Return a copy of a model that is several times faster and cannot be trained.

    `doap.load` returns it by default. Descriptors differ from the exact ones by rounding: in float32 by 1e-6, in
    float16 the cosine is 0.9999, in bfloat16 0.999.

    Args:
        model: Model from `doap.load(..., fast=False)`; not modified.
        dtype: Dtype of convolutions; by default the fastest of the device, see `fastest_dtype`.

    Returns:
        The copy, on the same device. A model without layers, a handcrafted one, or one in its inference form already is
        returned itself.
    """
    device = device_of(model)
    if device is None or isinstance(model.network, InferenceNetwork) or not _has_layers(model.network):
        return model
    precision = dtype or fastest_dtype(device)
    network = optimize_layers(deepcopy(model.network), precision, device)
    return model.with_network(InferenceNetwork(network, precision)).eval()


def optimize_layers(network: Network, precision: torch.dtype, device: torch.device) -> Network:
    """Fold the normalisation of a network and replace its layers by those for inference, in place.

    Args:
        network: Any network of convolutions and linear layers.
        precision: Dtype of the convolutions.
        device: Device of the network.
    """
    network = fold_normalisation(network.eval()).requires_grad_(False)
    _replace_layers(network, precision, _product_dtype(precision, device))
    return network


def _product_dtype(precision: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products: only the first and the last layer are products, with little work."""
    if device.type != "cpu":
        return precision
    is_slow = precision == torch.float16 or not onednn.multiplies(precision)
    return torch.float32 if is_slow else precision


def _has_layers(network: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d | nn.Linear) for module in network.modules())


def _replace_layers(module: nn.Module, dtype: torch.dtype, product_dtype: torch.dtype) -> None:
    """Replace all convolutions and linear layers, with the ReLU that follows a convolution in a sequence."""
    children = [(name, child) for name, child in module.named_children() if not isinstance(child, nn.Identity)]
    for index, (name, child) in enumerate(children):
        if isinstance(child, nn.Linear):
            setattr(module, name, InferenceLinear(child, product_dtype))
        elif isinstance(child, nn.Conv2d):
            followers = children[index + 1 : index + 2] if isinstance(module, nn.Sequential) else []
            relus = [next_name for next_name, follower in followers if isinstance(follower, nn.ReLU)]
            is_product = child.in_channels == 1 or _may_cover_map(child)
            setattr(module, name, inference_conv(child, bool(relus), product_dtype if is_product else dtype))
            for relu in relus:
                setattr(module, relu, nn.Identity())
        else:
            _replace_layers(child, dtype, product_dtype)


def _may_cover_map(convolution: nn.Conv2d) -> bool:
    """Return whether a convolution is large and has no padding: such ones read the whole map or, in TFeat, half."""
    return not any(map(int, convolution.padding)) and min(convolution.kernel_size) > 3
