"""DesDis: small networks distilled from a larger one (Liu et al., IJCV 2024)."""

from torch import Tensor, nn

from doap.networks.network import PatchNetwork


def _layer(channels: int, width: int, stride: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(width, affine=False),
        nn.ReLU(),
    )


class DesDis(PatchNetwork):
    """L2Net's manner with half the layers, each of the first three halving the map; unit vectors are its own reading.

    Layers carry the names of the published files, so that these load as they are.

    Args:
        width: channels of the first layer, 8 or 32 in what was published; the others follow as 2 and 4 times this.
    """

    def __init__(self, width: int) -> None:
        super().__init__(128, 32)
        self.layer1 = nn.Sequential(nn.InstanceNorm2d(1), *_layer(1, width, 2))
        self.layer2 = nn.Sequential(*_layer(width, 2 * width, 2))
        self.layer3 = nn.Sequential(*_layer(2 * width, 4 * width, 2), *_layer(4 * width, 4 * width, 1))
        self.desc = nn.Sequential(nn.Dropout(0.1), nn.Conv2d(4 * width, 128, 4), nn.BatchNorm2d(128, affine=False))

    def forward(self, patches: Tensor) -> Tensor:
        """(N, 1, 32, 32) float, of any brightness and contrast, to (N, 128)."""
        self.check(patches)
        values: Tensor = self.desc(self.layer3(self.layer2(self.layer1(patches))))
        return values.flatten(1)
