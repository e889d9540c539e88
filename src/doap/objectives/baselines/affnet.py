"""AffNet's loss: HardNet's, without a gradient through the negatives.

Mishkin, Radenović and Matas, Repeatability is not enough: Learning affine regions via discriminability, ECCV 2018.
"""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances
from doap.objectives.baselines.pairs import make_pairs, unit_batch
from doap.objectives.lists import IgnoreTable


class HardNegativeConstantLoss(nn.Module):
    """Triplet margin loss with the closest non-match in the batch as a constant.

        L = 1/N Σ_i max(0, m + d(a_i, p_i) - n_i),   ∂n_i := 0

    n_i is the distance to the closest negative, as in `HardNetLoss`. Descriptors keep their distances to negatives, and
    frames are moved only to bring matches together.

    Args:
        margin: m.
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss, a scalar, of (M, d) raw outputs with (M,) integer groups, without the ignored pairs."""
        unit, groups = unit_batch(outputs, groups)
        pairs = make_pairs(groups, ignore)
        distances = euclidean_distances(unit[pairs.anchors], unit[pairs.positives])
        negatives = distances.detach().masked_fill(pairs.related_pairs, torch.inf)
        hardest = torch.minimum(negatives.amin(1), negatives.amin(0))
        return (self.margin + distances.diagonal() - hardest).relu().mean()
