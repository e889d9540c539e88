"""CS-L2Net, the centre-surround version of L2Net (Tian et al., CVPR 2017)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from doap.networks.l2net import INPUT_SIZE as TOWER_SIZE
from doap.networks.l2net import L2Net, MeanL2Net
from doap.networks.network import PatchNetwork, halve

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
        centre, surround = self._split(patches)
        return torch.cat([self.centre(centre), self.surround(surround)], 1)

    def forward_with_maps(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Compute activations and the two maps of each tower, see `PatchNetwork`."""
        centre, surround = self._split(patches)
        centre_activations, centre_maps = self.centre.forward_with_maps(centre)
        surround_activations, surround_maps = self.surround.forward_with_maps(surround)
        return torch.cat([centre_activations, surround_activations], 1), [*centre_maps, *surround_maps]

    def _split(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs of the two towers."""
        self.check(patches)
        margin = (INPUT_SIZE - TOWER_SIZE) // 2
        return patches[:, :, margin:-margin, margin:-margin], halve(patches)


class MeanCentreSurround(CentreSurround):
    """CS-L2Net as its authors published it.

    It differs from `CentreSurround` in three points: each tower subtracts a stored mean patch, see `MeanL2Net`; the
    patch is halved as by MATLAB's `imresize`; the output of each tower has unit length.

    Args:
        dimensions: Length of the output; even, since each tower outputs half.
        width: Channels of each tower's first layer.
        dropout: Dropout probability of each tower, see `L2Net`.
    """

    def __init__(self, dimensions: int = 256, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, width, dropout)
        self.centre = MeanL2Net(dimensions // 2, width, dropout)
        self.surround = MeanL2Net(dimensions // 2, width, dropout)

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, dimensions) activations of (N, 1, 64, 64) float patches with grey values in 0..255."""
        return _normalise_towers(super().forward(patches))

    def forward_with_maps(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Compute activations and the two maps of each tower, see `PatchNetwork`."""
        activations, maps = super().forward_with_maps(patches)
        return _normalise_towers(activations), maps

    def _split(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        centre, _ = super()._split(patches)
        return centre, halve_bicubic(patches)


def _normalise_towers(activations: Tensor) -> Tensor:
    return torch.cat([F.normalize(tower) for tower in activations.chunk(2, 1)], 1)


def halve_bicubic(patches: Tensor) -> Tensor:
    """Halve the size of patches by the bicubic filter of MATLAB's `imresize`, with antialiasing.

    Args:
        patches: (N, 1, S, S) float, S even.

    Returns:
        (N, 1, S / 2, S / 2), in the precision of the patches also under autocast.
    """
    far, near = torch.tensor([1.75, 1.25]), torch.tensor([0.75, 0.25])  # distances of pixels in output pixels
    outer = -0.5 * far**3 + 2.5 * far**2 - 4 * far + 2
    inner = 1.5 * near**3 - 2.5 * near**2 + 1
    half = torch.cat([outer, inner]) / 2
    weights = torch.cat([half, half.flip(0)]).to(patches)
    for dim in (2, 3):  # beyond the border, pixels are mirrored
        first, last = patches.narrow(dim, 0, 3).flip(dim), patches.narrow(dim, patches.shape[dim] - 3, 3).flip(dim)
        patches = torch.cat([first, patches, last], dim)
    with torch.autocast(patches.device.type, enabled=False):
        return F.conv2d(patches, torch.outer(weights, weights)[None, None], stride=2)
