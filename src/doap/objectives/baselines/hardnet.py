"""HardNet's loss: each pair against the hardest negative of the batch.

Mishchuk et al., Working hard to know your neighbor's margins: Local descriptor learning loss, NIPS 2017.
"""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances
from doap.objectives.baselines.pairs import make_pairs, unit_batch
from doap.objectives.lists import IgnoreTable


class HardNetLoss(nn.Module):
    """Triplet margin loss with the closest non-match in the batch.

        L = 1/N Σ_i max(0, m + d(a_i, p_i) - min(min_{j≠i} d(a_i, p_j), min_{j≠i} d(a_j, p_i)))

    over N pairs (a_i, p_i) from `pairs`, j over pairs of other groups, d Euclidean between unit vectors. A pair
    without a negative adds 0.

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
        negatives = self._negative_distances(distances).masked_fill(pairs.related_pairs, torch.inf)
        hardest = torch.minimum(negatives.amin(1), negatives.amin(0))
        return (self.margin + distances.diagonal() - hardest).relu().mean()

    def _negative_distances(self, distances: Tensor) -> Tensor:
        """Return the (N, N) distances among which the negatives are chosen."""
        return distances
