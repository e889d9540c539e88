"""Two extents in one descriptor: the centre of a patch at full resolution and the whole patch at half of it.

The layers of a network read the two parts one after the other with the same weights; the last layer reads the maps of
both. CS-L2Net (Tian et al., CVPR 2017) has separate weights for the parts and concatenates two descriptors instead.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def split_extents(patches: Tensor) -> Tensor:
    """Return the centre and the whole of each patch, at the same size.

    Args:
        patches: (N, 1, 2S, 2S) float.

    Returns:
        (2N, 1, S, S): the centre of the first patch, the whole first patch at half the resolution, and so on.
    """
    margin = int(patches.shape[2]) // 4
    centre = patches[:, :, margin:-margin, margin:-margin]
    return torch.stack([centre, F.avg_pool2d(patches, 2)], 1).flatten(0, 1)


class StackExtents(nn.Module):
    """Stack the maps of the two parts of each patch vertically, that of the centre on top.

    In channels-last order, the result is a view of the same memory.
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Return (N, C, 2H, W) maps of (2N, C, H, W) maps."""
        return torch.unflatten(maps, 0, (-1, 2)).transpose(1, 2).flatten(2, 3)
