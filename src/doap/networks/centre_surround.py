"""CS-L2Net: one L2Net for the middle of a patch, another for all of it (Tian et al., CVPR 2017)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from doap.networks.l2net import INPUT_SIZE as TOWER_SIZE
from doap.networks.l2net import L2Net
from doap.networks.network import PatchNetwork

INPUT_SIZE = 2 * TOWER_SIZE


class CentreSurround(PatchNetwork):
    """Two L2Nets with weights of their own, side by side: the centre at full resolution, the surround at half.

    2,669,120 parameters at 256 dimensions and the full width of 32.

    Args:
        dimensions: length of the output, even: each tower gives half.
        width: channels of each tower's first layer.
        dropout: as in L2Net.
    """

    def __init__(self, dimensions: int = 256, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, INPUT_SIZE)
        if dimensions % 2:
            raise ValueError(f"the two towers give half of the dimensions each: {dimensions} is odd")
        self.centre = L2Net(dimensions // 2, width, dropout)
        self.surround = L2Net(dimensions // 2, width, dropout)

    def forward(self, patches: Tensor) -> Tensor:
        """Describe patches.

        Args:
            patches: (N, 1, 64, 64) float, of any brightness and contrast.

        Returns:
            (N, dimensions) raw activations, the centre's first.
        """
        self.check(patches)
        edge = (INPUT_SIZE - TOWER_SIZE) // 2
        middle = patches[:, :, edge:-edge, edge:-edge]
        return torch.cat([self.centre(middle), self.surround(F.avg_pool2d(patches, 2))], 1)
