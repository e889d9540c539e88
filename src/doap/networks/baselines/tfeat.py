"""TFeat (Balntas et al., BMVC 2016), and the same trunk trained with HardNet's loss (Mishkin et al., ECCV 2018).

Layers carry the names of the published files, so that these load as they are.
"""

from torch import Tensor, nn

from doap.networks.network import PatchNetwork, normalise


def _trunk() -> tuple[nn.Module, ...]:
    """(N, 1, 32, 32) to (N, 64, 8, 8)."""
    return nn.Conv2d(1, 32, 7), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 6), nn.Tanh()


class TFeat(PatchNetwork):
    """Two convolutions with tanh and one linear layer; 600 thousand parameters.

    Trained for plain L2 distances between its tanh outputs; with `Descriptor`'s unit vectors it ranks by the angle
    between them instead, which its authors' figures do not.
    """

    def __init__(self) -> None:
        super().__init__(128, 32)
        self.features = nn.Sequential(nn.InstanceNorm2d(1), *_trunk())
        self.descr = nn.Sequential(nn.Linear(64 * 8 * 8, 128), nn.Tanh())

    def forward(self, patches: Tensor) -> Tensor:
        """(N, 1, 32, 32) float, of any brightness and contrast, to (N, 128)."""
        self.check(patches)
        values: Tensor = self.descr(self.features(patches).flatten(1))
        return values


class HardTFeat(PatchNetwork):
    """TFeat's trunk with its last layer as an 8x8 convolution; unit vectors are its own reading too."""

    def __init__(self) -> None:
        super().__init__(128, 32)
        self.features = nn.Sequential(*_trunk())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Conv2d(64, 128, 8), nn.Tanh())

    def forward(self, patches: Tensor) -> Tensor:
        """(N, 1, 32, 32) float, of any brightness and contrast, to (N, 128)."""
        self.check(patches)
        # The unbiased deviation, as in its training, is 0.05 % larger than ours.
        pixels = self.input_size**2
        normalised = normalise(patches) * ((pixels - 1) / pixels) ** 0.5
        values: Tensor = self.classifier(self.features(normalised))
        return values.flatten(1)
