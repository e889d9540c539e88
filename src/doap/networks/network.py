"""What every network is: patches of one size in, activations out."""

import torch.nn.functional as F
from torch import Tensor, nn


class PatchNetwork(nn.Module):
    """Maps (N, 1, S, S) float patches, grey values in 0..255, to (N, dimensions) raw activations.

    The objective and `Descriptor` normalise or threshold the activations.

    Args:
        dimensions: length of the output: the descriptor's dimensions, or its bits.
        input_size: S, the side of the patches it reads.
    """

    def __init__(self, dimensions: int, input_size: int) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.input_size = input_size

    def check(self, patches: Tensor) -> None:
        """Refuse patches of another shape."""
        size = self.input_size
        if patches.shape[1:] != (1, size, size):
            raise ValueError(f"{type(self).__name__} takes (N, 1, {size}, {size}), not {tuple(patches.shape)}")


class LayeredNetwork(PatchNetwork):
    """A network that is its layers one after another; `layers` is for who inherits to make."""

    layers: nn.Sequential

    def forward(self, patches: Tensor) -> Tensor:
        """Describe patches.

        Args:
            patches: (N, 1, S, S) float, of any brightness and contrast.

        Returns:
            (N, dimensions) raw activations.
        """
        self.check(patches)
        activations: Tensor = self.layers(normalise(patches))
        return activations.flatten(1)


def layer(before: int, after: int, side: int, stride: int) -> list[nn.Module]:
    """A convolution without bias, batch normalisation without learned scale or shift, and ReLU."""
    return [
        nn.Conv2d(before, after, side, stride=stride, padding=side // 2, bias=False),
        nn.BatchNorm2d(after, affine=False),
        nn.ReLU(inplace=True),
    ]


def initialise(network: nn.Module) -> None:
    """Draw the weights of all convolutions and linear layers after He et al. (ICCV 2015)."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")


def normalise(patches: Tensor) -> Tensor:
    """Subtract each patch's mean and divide by its standard deviation; a constant patch becomes 0.

    Args:
        patches: (N, 1, S, S) float, grey values in 0..255.
    """
    # The root of eps, a thousandth of a grey level, is far under the quantisation of patches, far over rounding noise.
    return F.layer_norm(patches, patches.shape[1:], eps=1e-6)
