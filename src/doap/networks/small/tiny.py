"""A small network for phones and CPUs, with fewer weights than DesDis-8, the smallest published baseline."""

from torch import nn

from doap.networks.network import conv_layer, initialise
from doap.networks.small.linear_head import Flatten, LinearHeadNetwork, linear_head

INPUT_SIZE = 32
MAP_SIZE = INPUT_SIZE // 8  # after three layers of stride 2


class Tiny(LinearHeadNetwork):
    """Three convolutions of stride 2, one of 7x7 and two of 3x3, and a linear head.

    As in L2Net, no layer has a bias and each is followed by batch normalisation without learned scale or shift. ReLU
    follows the convolutions, dropout precedes the head. Initialised after He et al.

    On a CPU, large feature maps take the time, not weights. The first layer therefore has few channels, and the head is
    a linear layer over the whole 4x4 map, which is several times faster there than the equivalent convolution. The head
    holds most of the weights. For more than 128 dimensions it is the product of two matrices with no more weights in
    total: 77,448 parameters at 128 dimensions and width 32, 77,192 at 256.

    Args:
        dimensions: Length of the output: dimensions of the descriptor, or its bits.
        width: Channels of the second and third layer; the first has a quarter as many.
        dropout: Dropout probability before the head.
    """

    def __init__(self, dimensions: int = 128, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, INPUT_SIZE)
        layers: list[nn.Module] = []
        channels = 1
        for out_channels, kernel_size in ((max(1, width // 4), 7), (width, 3), (width, 3)):
            layers += conv_layer(channels, out_channels, kernel_size, 2)
            channels = out_channels
        layers += [Flatten(), nn.Dropout(dropout), *linear_head(channels * MAP_SIZE**2, dimensions)]
        self.layers = nn.Sequential(*layers, nn.BatchNorm1d(dimensions, affine=False))
        initialise(self)
