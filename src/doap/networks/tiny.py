"""A network for phones and CPUs: fewer weights than the smallest published peer, DesDis-8, and no slower."""

from torch import Tensor, nn

from doap.networks.network import LayeredNetwork, initialise, layer

INPUT_SIZE = 32
MAP_SIDE = INPUT_SIZE // 8  # three layers halve it

# The head maps the values of a patch to so many dimensions at once; to more of them in two steps.
DIRECT = 128


class Tiny(LayeredNetwork):
    """L2Net's manner in four layers: three convolutions of stride 2, 7x7 and twice 3x3, and a linear head.

    No layer has a bias, and each is followed by batch normalisation without learned scale or shift; ReLU between them;
    dropout before the head. Initialised after He.

    On a CPU the time goes into large maps and not into weights: hence few channels in the first layer, and hence a
    linear layer over the whole 4x4 map, several times faster there than the same as a convolution. It holds most of
    the weights. For more than 128 dimensions it is the product of two matrices that together hold no more: 77,448
    parameters at 128 dimensions and width 32, 77,192 at 256.

    Args:
        dimensions: length of the output: the descriptor's dimensions, or its bits.
        width: channels of the second and third layer; the first has a quarter as many.
        dropout: probability of zeroing a value before the head in training.
    """

    def __init__(self, dimensions: int = 128, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, INPUT_SIZE)
        layers: list[nn.Module] = []
        channels = 1
        for after, side in ((max(1, width // 4), 7), (width, 3), (width, 3)):
            layers += layer(channels, after, side, 2)
            channels = after
        layers += [_Flatten(), nn.Dropout(dropout), *_head(channels * MAP_SIDE**2, dimensions)]
        self.layers = nn.Sequential(*layers, nn.BatchNorm1d(dimensions, affine=False))
        initialise(self)


class _Flatten(nn.Module):
    """(N, C, H, W) to (N, H · W · C): as maps in channels-last order lie in memory, so that nothing is moved there."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.permute(0, 2, 3, 1).flatten(1)


def _head(values: int, dimensions: int) -> list[nn.Module]:
    """From so many values to the descriptor, in no more weights than `DIRECT` dimensions take."""
    if dimensions <= DIRECT:
        return [nn.Linear(values, dimensions, bias=False)]
    between = max(1, values * DIRECT // (values + dimensions))
    return [nn.Linear(values, between, bias=False), nn.Linear(between, dimensions, bias=False)]
