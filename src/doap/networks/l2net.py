"""L2Net: seven convolutional layers on a 32x32 patch (Tian et al., CVPR 2017)."""

from torch import nn

from doap.networks.network import LayeredNetwork, conv_layer, initialise

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
    """

    def __init__(self, dimensions: int = 128, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, INPUT_SIZE)
        layers: list[nn.Module] = []
        channels = 1
        for factor, stride in ((1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
            layers += conv_layer(channels, factor * width, 3, stride)
            channels = factor * width
        layers += [
            nn.Dropout(dropout),
            nn.Conv2d(channels, dimensions, INPUT_SIZE // 4, bias=False),
            nn.BatchNorm2d(dimensions, affine=False),
        ]
        self.layers = nn.Sequential(*layers)
        initialise(self)
