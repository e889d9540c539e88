"""MatchNet's feature tower (Han et al., CVPR 2015)."""

import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.network import PatchNetwork


class MatchNet(PatchNetwork):
    """Five convolutions and three poolings to 64 maps of 8x8, flattened channel by channel.

    Its authors compare these by a metric network; unit vectors are the way to use the tower alone. The input is
    not normalised patch by patch, so brightness and contrast matter to it.
    """

    def __init__(self) -> None:
        super().__init__(4096, 64)
        self.conv0 = nn.Conv2d(1, 24, 7, padding=3)
        self.conv1 = nn.Conv2d(24, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 96, 3, padding=1)
        self.conv3 = nn.Conv2d(96, 96, 3, padding=1)
        self.conv4 = nn.Conv2d(96, 64, 3, padding=1)

    def forward(self, patches: Tensor) -> Tensor:
        """(N, 1, 64, 64) float, grey values in 0..255, to (N, 4096)."""
        self.check(patches)
        values = _pool(F.relu(self.conv0((patches - 128) / 160)))
        values = _pool(F.relu(self.conv1(values)))
        values = F.relu(self.conv3(F.relu(self.conv2(values))))
        return _pool(F.relu(self.conv4(values))).flatten(1)


def _pool(values: Tensor) -> Tensor:
    # Caffe, where it was trained, keeps the window that hangs over the edge: 64 pixels become 32, not 31.
    return F.max_pool2d(values, 3, stride=2, ceil_mode=True)
