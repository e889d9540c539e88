"""DesDis, small networks distilled from a larger one (Liu et al., IJCV 2024)."""

from torch import Tensor, nn

from doap.networks.network import PatchNetwork


def _conv_layer(in_channels: int, out_channels: int, stride: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(out_channels, affine=False),
        nn.ReLU(),
    )


class DesDis(PatchNetwork):
    """A network in the style of L2Net with five convolutions, the first three of stride 2, for unit vectors.

    Layers have the names used in the published files, so that these load unchanged.

    Args:
        width: Channels of the first layer, 8 or 32 in the published networks; later layers have 2 or 4 times as many.
    """

    def __init__(self, width: int) -> None:
        super().__init__(128, 32)
        self.layer1 = nn.Sequential(nn.InstanceNorm2d(1), *_conv_layer(1, width, 2))
        self.layer2 = nn.Sequential(*_conv_layer(width, 2 * width, 2))
        self.layer3 = nn.Sequential(*_conv_layer(2 * width, 4 * width, 2), *_conv_layer(4 * width, 4 * width, 1))
        self.desc = nn.Sequential(nn.Dropout(0.1), nn.Conv2d(4 * width, 128, 4), nn.BatchNorm2d(128, affine=False))

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, 128) activations of (N, 1, 32, 32) float patches, of any brightness and contrast."""
        self.check(patches)
        values: Tensor = self.desc(self.layer3(self.layer2(self.layer1(patches.to(self.dtype)))))
        return values.flatten(1)
