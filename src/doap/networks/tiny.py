"""A network for phones and CPUs: fewer weights and less time than the smallest published peer's, DesDis-8."""

from torch import Tensor, nn

from doap.networks.network import PatchNetwork, normalise

INPUT_SIZE = 32


class Tiny(PatchNetwork):
    """L2Net's manner in four layers: the first turns a patch into 8x8 overlapping cells, as SIFT's cells do.

    Convolutions and the last layer, which is linear, have no bias, and each is followed by batch normalisation without
    learned scale or shift; ReLU between them; dropout before the last. Initialised after He.

    Time on a CPU goes into large maps, not into weights: hence one stride of 4 instead of two of 2, and hence a linear
    layer over the whole 4x4 map, several times faster there than the same as a convolution. It holds most of the
    weights, so more dimensions than 128 get a map of fewer channels: 80,384 parameters at 128 dimensions and width 32,
    75,776 at 256.

    Args:
        dimensions: length of the output: the descriptor's dimensions, or its bits.
        width: channels of the second layer; the first has half as many.
        dropout: probability of zeroing a value before the last layer in training.
    """

    def __init__(self, dimensions: int = 128, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, INPUT_SIZE)
        cells, last = max(1, width // 2), max(1, min(width, 128 * width // dimensions))
        self.layers = nn.Sequential(
            *_layer(nn.Conv2d(1, cells, 8, stride=4, padding=2, bias=False)),
            *_layer(nn.Conv2d(cells, width, 3, stride=2, padding=1, bias=False)),
            *_layer(nn.Conv2d(width, last, 3, padding=1, bias=False)),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(last * (INPUT_SIZE // 8) ** 2, dimensions, bias=False),
            nn.BatchNorm1d(dimensions, affine=False),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, patches: Tensor) -> Tensor:
        """Describe patches.

        Args:
            patches: (N, 1, 32, 32) float, of any brightness and contrast.

        Returns:
            (N, dimensions) raw activations.
        """
        self.check(patches)
        activations: Tensor = self.layers(normalise(patches))
        return activations


def _layer(convolution: nn.Conv2d) -> tuple[nn.Module, ...]:
    return convolution, nn.BatchNorm2d(convolution.out_channels, affine=False), nn.ReLU(inplace=True)
