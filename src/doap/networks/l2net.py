"""L2Net: seven convolution layers from a 32x32 patch to a descriptor (Tian et al., CVPR 2017)."""

from torch import nn

from doap.networks.network import LayeredNetwork, initialise, layer

INPUT_SIZE = 32


class L2Net(LayeredNetwork):
    """The paper's network, without the centre-surround branch.

    Convolutions without bias, each followed by batch normalisation without learned scale or shift;
    ReLU between them; dropout before the last, which sees the whole 8x8 map. Initialised after He.
    1,334,560 parameters at 128 dimensions and the full width of 32.

    Args:
        dimensions: length of the output: the descriptor's dimensions, or its bits.
        width: channels of the first layer; the others follow as 1, 2 and 4 times this.
        dropout: probability of zeroing a value before the last layer in training.
    """

    def __init__(self, dimensions: int = 128, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, INPUT_SIZE)
        layers: list[nn.Module] = []
        channels = 1
        for factor, stride in ((1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
            layers += layer(channels, factor * width, 3, stride)
            channels = factor * width
        layers += [
            nn.Dropout(dropout),
            nn.Conv2d(channels, dimensions, INPUT_SIZE // 4, bias=False),
            nn.BatchNorm2d(dimensions, affine=False),
        ]
        self.layers = nn.Sequential(*layers)
        initialise(self)
