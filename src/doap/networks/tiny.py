"""A small network for phones and CPUs, with fewer weights than DesDis-8, the smallest published baseline."""

import torch
from torch import Tensor, nn

from doap.networks.network import LayeredNetwork, conv_layer, initialise

INPUT_SIZE = 32
MAP_SIZE = INPUT_SIZE // 8  # after three layers of stride 2

# With more dimensions than this, the head is a product of two matrices.
MAX_DIRECT_DIMENSIONS = 128


class Tiny(LayeredNetwork):
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
        layers += [_Flatten(), nn.Dropout(dropout), *_head(channels * MAP_SIZE**2, dimensions)]
        self.layers = nn.Sequential(*layers, nn.BatchNorm1d(dimensions, affine=False))
        initialise(self)

    def _keep_outputs(self, count: int) -> None:
        """Keep the first outputs; the head becomes that of a network of so many dimensions."""
        super()._keep_outputs(count)
        *layers, first, second, normalisation = self.layers
        if isinstance(first, nn.Linear) and isinstance(second, nn.Linear):
            self.layers = nn.Sequential(*layers, *_reshape_head(first, second), normalisation)


class _Flatten(nn.Module):
    """(N, C, H, W) to (N, H · W · C), which needs no copy of maps in channels-last order."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.permute(0, 2, 3, 1).flatten(1)


def _reshape_head(first: nn.Linear, second: nn.Linear) -> list[nn.Module]:
    """Return the product of two matrices as the head of a new network of its dimensions: one matrix, or two."""
    head = _head(first.in_features, second.out_features)
    matrices = [layer.weight for layer in head if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        if len(matrices) == 1:
            matrices[0].copy_(second.weight.double() @ first.weight.double())
        else:  # of a higher rank
            for matrix, layer in zip(matrices, (first, second), strict=True):
                rows, columns = layer.weight.shape
                matrix.zero_()[:rows, :columns] = layer.weight
    return [layer.to(first.weight) for layer in head]


def _head(features: int, dimensions: int) -> list[nn.Module]:
    """Return linear layers with at most `features * MAX_DIRECT_DIMENSIONS` weights."""
    if dimensions <= MAX_DIRECT_DIMENSIONS:
        return [nn.Linear(features, dimensions, bias=False)]
    rank = max(1, features * MAX_DIRECT_DIMENSIONS // (features + dimensions))
    return [nn.Linear(features, rank, bias=False), nn.Linear(rank, dimensions, bias=False)]
