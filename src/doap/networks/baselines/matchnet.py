"""MatchNet's feature tower (Han et al., CVPR 2015)."""

import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.network import PatchNetwork


class MatchNet(PatchNetwork):
    """Five convolutions and three pooling layers; the 64 output maps of 8x8 are flattened channel by channel.

    The authors compare features with a metric network. Without it, unit vectors are compared. The input is not
    normalised per patch, so the descriptor depends on brightness and contrast.
    """

    def __init__(self) -> None:
        super().__init__(4096, 64)
        self.conv0 = nn.Conv2d(1, 24, 7, padding=3)
        self.conv1 = nn.Conv2d(24, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 96, 3, padding=1)
        self.conv3 = nn.Conv2d(96, 96, 3, padding=1)
        self.conv4 = nn.Conv2d(96, 64, 3, padding=1)

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, 4096) activations of (N, 1, 64, 64) float patches, grey values in 0..255."""
        self.check(patches)
        values = _pool(F.relu(self.conv0(((patches - 128) / 160).to(self.dtype))))
        values = _pool(F.relu(self.conv1(values)))
        values = F.relu(self.conv3(F.relu(self.conv2(values))))
        return _pool(F.relu(self.conv4(values))).flatten(1)


def _pool(values: Tensor) -> Tensor:
    # Caffe, which it was trained with, keeps the window that overlaps the border: 64 pixels become 32, not 31.
    return F.max_pool2d(values, 3, stride=2, ceil_mode=True)
