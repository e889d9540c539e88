"""L2Net: seven convolutional layers on a 32x32 patch (Tian et al., CVPR 2017)."""

import torch
from torch import Tensor, nn

from doap.networks.layers.convolutions import WholeMapConvolution
from doap.networks.network import LayeredNetwork, StackExtents, conv_layer, initialise

INPUT_SIZE = 32


class L2Net(LayeredNetwork):
    """The network of the paper: L2Net without the centre-surround branch.

    Each convolution has no bias and is followed by batch normalisation without learned scale or shift. ReLU follows
    all but the last, which covers the whole 8x8 map and has dropout before it. Initialised after He et al.
    1,334,560 parameters at 128 dimensions and width 32.

    Args:
        dimensions: Length of the output: dimensions of the descriptor, or its bits.
        width: Channels of the first layer; the other layers have 1, 2 or 4 times as many.
        dropout: Dropout probability before the last layer.
        surroundings: Number of larger extents to read: 1 takes 64x64 patches, 2 takes 128x128, see
            `doap.networks.network.split_extents`.
    """

    def __init__(self, dimensions: int = 128, width: int = 32, dropout: float = 0.1, surroundings: int = 0) -> None:
        super().__init__(dimensions, INPUT_SIZE, surroundings)
        layers: list[nn.Module] = []
        channels = 1
        for factor, stride in ((1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
            layers += conv_layer(channels, factor * width, 3, stride)
            channels = factor * width
        layers += last_layer(channels, dimensions, dropout, surroundings)
        self.layers = nn.Sequential(*layers)
        initialise(self)


def last_layer(channels: int, dimensions: int, dropout: float, surroundings: int) -> list[nn.Module]:
    """Return the convolution that covers the whole 8x8 maps of centre and surroundings, with what is around.

    Args:
        channels: Channels of the maps.
        dimensions: Length of the output.
        dropout: Dropout probability before it.
        surroundings: Number of larger extents, each with a map of its own.
    """
    side, parts = INPUT_SIZE // 4, surroundings + 1
    return [
        *([StackExtents(parts)] if surroundings else []),
        nn.Dropout(dropout),
        WholeMapConvolution(channels, dimensions, (parts * side, side), bias=False),
        nn.BatchNorm2d(dimensions, affine=False),
    ]


class MeanL2Net(L2Net):
    """L2Net as its authors published it: it subtracts the mean of all training patches before it normalises a patch.

    The mean is stored with the weights. It is 0 in a new network, and training does not change it.

    Args:
        dimensions: Length of the output, see `L2Net`.
        width: Channels of the first layer, see `L2Net`.
        dropout: Dropout probability before the last layer.
    """

    mean: Tensor

    def __init__(self, dimensions: int = 128, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, width, dropout)
        self.register_buffer("mean", torch.zeros(1, 1, INPUT_SIZE, INPUT_SIZE))

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, dimensions) raw activations of (N, 1, 32, 32) float patches with grey values in 0..255."""
        self.check(patches)
        return super().forward(patches - self.mean)

    def forward_with_maps(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Compute activations and two maps, see `PatchNetwork`."""
        self.check(patches)
        return super().forward_with_maps(patches - self.mean)
