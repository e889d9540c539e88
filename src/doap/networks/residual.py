"""A deeper L2Net with residual blocks (He et al., CVPR 2016): a teacher of smaller networks."""

import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.l2net import INPUT_SIZE, last_layer
from doap.networks.network import LayeredNetwork, conv_layer, initialise


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions whose normalised output is added to their input; ReLU follows the sum.

    Args:
        channels: Channels of input and output, C.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        *layers, _ = [*conv_layer(channels, channels, 3, 1), *conv_layer(channels, channels, 3, 1)]  # no last ReLU
        self.layers = nn.Sequential(*layers)

    def forward(self, maps: Tensor) -> Tensor:
        """Compute (N, C, H, W) maps of (N, C, H, W) maps."""
        branch: Tensor = self.layers(maps)
        return F.relu(maps + branch)


class Residual(LayeredNetwork):
    """L2Net's plan with residual blocks where L2Net has one convolution.

    Two 3x3 convolutions at 32x32, then twice a 3x3 convolution of stride 2 and `depth` residual blocks, at 16x16 and at
    8x8. The last convolution covers the whole 8x8 map and has dropout before it.

    As in L2Net, no convolution has a bias and each is followed by batch normalisation without learned scale or shift.
    Their weights then have no scale: a large learning rate enlarges them, which lowers their effective learning rate.
    The normalisation is therefore before the sum of a block (post-activation). With normalisation after it, or with
    learned scales, the size of a branch would depend on values that large learning rates let diverge.

    Initialised after He et al. 5,452,352 parameters at 128 dimensions, width 64 and depth 2.

    Args:
        dimensions: Length of the output: dimensions of the descriptor, or its bits.
        width: Channels of the first layer; the other layers have 1, 2 or 4 times as many.
        dropout: Dropout probability before the last layer.
        depth: Residual blocks at each of the two lower resolutions.
        surroundings: Number of larger extents to read: 1 takes 64x64 patches, 2 takes 128x128, see
            `doap.networks.network.split_extents`.
    """

    def __init__(
        self, dimensions: int = 128, width: int = 32, dropout: float = 0.1, depth: int = 2, surroundings: int = 0
    ) -> None:
        super().__init__(dimensions, INPUT_SIZE, surroundings)
        layers: list[nn.Module] = [*conv_layer(1, width, 3, 1), *conv_layer(width, width, 3, 1)]
        for channels in (width, 2 * width):
            layers += conv_layer(channels, 2 * channels, 3, 2)
            layers += [ResidualBlock(2 * channels) for _ in range(depth)]
        layers += last_layer(4 * width, dimensions, dropout, surroundings)
        self.layers = nn.Sequential(*layers)
        initialise(self)
