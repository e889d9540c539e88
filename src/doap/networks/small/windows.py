"""The network of the shipped tiny models: filters on windows of the patch, faster than DesDis-8 on CPUs."""

from torch import nn

from doap.networks.network import conv_layer, initialise
from doap.networks.small.linear_head import Flatten, LinearHeadNetwork, linear_head

INPUT_SIZE = 32
WINDOW, STEP = 8, 4  # pixels
MAP_SIZE = INPUT_SIZE // STEP - 2  # after the second layer, which has no padding


class Windows(LinearHeadNetwork):
    """Filters on overlapping windows of 8x8 pixels, a convolution of 3x3 and a linear head.

    As in L2Net, no layer has a bias and each is followed by batch normalisation without learned scale or shift. ReLU
    follows the convolutions, dropout precedes the head. Initialised after He et al.

    The first layer has stride 4: its map of 8x8 is the largest of the network, so that nearly all the time is spent on
    products of large matrices. The second layer has no padding, and the head reads its whole 6x6 map. 158,720
    parameters at 128 dimensions and width 32, 157,696 at 256.

    Args:
        dimensions: Length of the output: dimensions of the descriptor, or its bits.
        width: Channels of both convolutions. Multiples of 16 are the fastest.
        dropout: Dropout probability before the head.
    """

    def __init__(self, dimensions: int = 128, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, INPUT_SIZE)
        self.layers = nn.Sequential(
            *conv_layer(1, width, WINDOW, STEP, padding=(WINDOW - STEP) // 2),
            *conv_layer(width, width, 3, 1, padding=0),
            Flatten(),
            nn.Dropout(dropout),
            *linear_head(width * MAP_SIZE**2, dimensions),
            nn.BatchNorm1d(dimensions, affine=False),
        )
        initialise(self)
