"""CS-L2Net, the centre-surround version of L2Net (Tian et al., CVPR 2017)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from doap.networks.l2net import INPUT_SIZE as TOWER_SIZE
from doap.networks.l2net import L2Net
from doap.networks.network import PatchNetwork

INPUT_SIZE = 2 * TOWER_SIZE


class CentreSurround(PatchNetwork):
    """Two L2Nets with separate weights: one reads the centre at full resolution, one the whole patch at half of it.

    2,669,120 parameters at 256 dimensions and the full width of 32.

    Args:
        dimensions: Length of the output; even, since each tower outputs half.
        width: Channels of each tower's first layer.
        dropout: Dropout probability of each tower, see `L2Net`.
    """

    def __init__(self, dimensions: int = 256, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, INPUT_SIZE)
        if dimensions % 2:
            raise ValueError(f"each tower outputs half of the dimensions, but {dimensions} is odd")
        self.centre = L2Net(dimensions // 2, width, dropout)
        self.surround = L2Net(dimensions // 2, width, dropout)

    def forward(self, patches: Tensor) -> Tensor:
        """Compute activations.

        Args:
            patches: (N, 1, 64, 64) float, of any brightness and contrast.

        Returns:
            (N, dimensions) raw activations, those of the centre first.
        """
        self.check(patches)
        margin = (INPUT_SIZE - TOWER_SIZE) // 2
        centre = patches[:, :, margin:-margin, margin:-margin]
        return torch.cat([self.centre(centre), self.surround(F.avg_pool2d(patches, 2))], 1)
