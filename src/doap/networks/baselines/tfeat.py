"""TFeat (Balntas et al., BMVC 2016), and its trunk trained with HardNet's loss (Mishkin et al., ECCV 2018).

Layers have the names used in the published files, so that these load unchanged.
"""

from torch import Tensor, nn

from doap.networks.network import PatchNetwork, normalise


def _trunk() -> tuple[nn.Module, ...]:
    """Return the layers from (N, 1, 32, 32) to (N, 64, 8, 8)."""
    return nn.Conv2d(1, 32, 7), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 6), nn.Tanh()


class TFeat(PatchNetwork):
    """Two convolutions with tanh and one linear layer; 600 thousand parameters.

    The network was trained, and is evaluated by its authors, with plain L2 distances between its tanh outputs. With the
    unit vectors of `Descriptor` it ranks by angle instead.
    """

    def __init__(self) -> None:
        super().__init__(128, 32)
        self.features = nn.Sequential(nn.InstanceNorm2d(1), *_trunk())
        self.descr = nn.Sequential(nn.Linear(64 * 8 * 8, 128), nn.Tanh())

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, 128) activations of (N, 1, 32, 32) float patches, of any brightness and contrast."""
        self.check(patches)
        values: Tensor = self.descr(self.features(patches.to(self.dtype)).flatten(1))
        return values


class HardTFeat(PatchNetwork):
    """The trunk of TFeat with an 8x8 convolution as last layer, trained for unit vectors."""

    def __init__(self) -> None:
        super().__init__(128, 32)
        self.features = nn.Sequential(*_trunk())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Conv2d(64, 128, 8), nn.Tanh())

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, 128) activations of (N, 1, 32, 32) float patches, of any brightness and contrast."""
        self.check(patches)
        # Its training used the unbiased standard deviation, which is 0.05 % larger.
        pixels = self.input_size**2
        normalised = normalise(patches) * ((pixels - 1) / pixels) ** 0.5
        values: Tensor = self.classifier(self.features(normalised.to(self.dtype)))
        return values.flatten(1)
