"""Base classes and building blocks of all networks."""

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.errors import DoapError

EPS = nn.BatchNorm2d(1).eps
"""Added to variances by the batch normalisation of networks."""


class PatchNetwork(nn.Module):
    """Base class of networks.

    A network maps (N, 1, S, S) float patches with grey values in 0..255 to (N, dimensions) raw activations. These are
    no descriptors: the objective and `Descriptor` normalise or threshold them. `Descriptor` describes patches.

    Args:
        dimensions: Length of the output: dimensions of the descriptor, or its bits.
        input_size: S, side of the patches in pixels.
    """

    def __init__(self, dimensions: int, input_size: int) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.input_size = input_size

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights, to which a network casts patches after normalising them; float32 without weights."""
        return next((parameter.dtype for parameter in self.parameters()), torch.float32)

    def check(self, patches: Tensor) -> None:
        """Raise ValueError unless patches are (N, 1, S, S)."""
        size = self.input_size
        if patches.shape[1:] != (1, size, size):
            raise ValueError(f"{type(self).__name__} takes (N, 1, {size}, {size}), not {tuple(patches.shape)}")

    def forward_with_maps(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Compute activations and the feature maps that L2-Net's loss compares.

        Args:
            patches: (N, 1, S, S) float, of any brightness and contrast.

        Returns:
            (N, dimensions) raw activations, and the maps after the first and the last batch normalisation, with N rows.
        """
        raise NotImplementedError(f"{type(self).__name__} does not batch normalise its first feature map")


class LayeredNetwork(PatchNetwork):
    """Base class of networks that are a sequence of layers on normalised patches. Subclasses set `layers`."""

    layers: nn.Sequential

    def forward(self, patches: Tensor) -> Tensor:
        """Compute activations.

        Args:
            patches: (N, 1, S, S) float, of any brightness and contrast.

        Returns:
            (N, dimensions) raw activations.
        """
        self.check(patches)
        activations: Tensor = self.layers(normalise(patches).to(self.dtype))
        return activations.flatten(1)

    def forward_with_maps(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Compute activations and two maps, see `PatchNetwork`; the last map holds the activations."""
        self.check(patches)
        convolution, normalisation, *layers = self.layers
        first: Tensor = normalisation(convolution(normalise(patches).to(self.dtype)))
        values = first.clone()  # the ReLU that follows works in place
        for layer in layers:
            values = layer(values)
        return values.flatten(1), [first, values]


def conv_layer(in_channels: int, out_channels: int, kernel_size: int, stride: int) -> list[nn.Module]:
    """Return a convolution without bias, batch normalisation without learned scale or shift, and ReLU."""
    return [
        nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=kernel_size // 2, bias=False),
        nn.BatchNorm2d(out_channels, affine=False),
        nn.ReLU(inplace=True),
    ]


def initialise(network: nn.Module) -> None:
    """Sample the weights of all convolutional and linear layers after He et al. (ICCV 2015), in place."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear) and not module.weight.is_meta:  # sampling imports a compiler there
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")


def load_weights(network: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy the tensors of a file to a network.

    Args:
        network: Network whose tensors have these names and shapes.
        tensors: Tensors by name.
        path: The file, for messages.

    Raises:
        DoapError: If a value is not finite in the type of the network, or the variance of a batch normalisation is
            not positive; the network would give no numbers.
    """
    network.load_state_dict(dict(tensors))
    for name, value in network.state_dict().items():
        if not value.sum(dtype=torch.float64).isfinite():  # sums of float32 do not overflow
            raise DoapError(f"{path}: its tensor {name} holds NaN or infinity; copy or download it again")
        if name.endswith("running_var") and not (value + EPS > 0).all():
            raise DoapError(f"{path}: its tensor {name} has variances of 0 or less; copy or download it again")


def normalise(patches: Tensor) -> Tensor:
    """Subtract the mean of each patch and divide by its standard deviation; a constant patch becomes 0.

    Args:
        patches: (N, 1, S, S) float, grey values in 0..255.

    Returns:
        (N, 1, S, S).
    """
    # sqrt(eps) is a thousandth of a grey level: well below the quantisation of patches, well above rounding errors.
    sides = [int(side) for side in patches.shape[1:]]  # the exporter to ONNX takes no traced sizes
    return F.layer_norm(patches, sides, eps=1e-6)
