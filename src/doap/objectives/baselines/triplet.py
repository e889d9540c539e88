"""TFeat's loss: triplets with the anchor swap (Balntas et al., BMVC 2016)."""

from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances
from doap.objectives.baselines.pairs import pair_up, unit_batch
from doap.objectives.lists import IgnoreTable


class TripletLoss(nn.Module):
    """Triplet margin loss over all negatives, each seen from the nearer patch of the pair.

        L = mean_{i, n} max(0, m + d(a_i, p_i) - min(d(a_i, n), d(p_i, n)))

    over the pairs (a_i, p_i) as `pairs` cuts them and every patch n of another group: the mean of what TFeat
    draws at random. d is Euclidean between unit vectors; without a single negative L is 0.

    Args:
        margin: m.
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss of (M, d) raw outputs with (M,) integer groups, and pairs to leave out, a scalar."""
        unit, groups = unit_batch(outputs, groups)
        pairs = pair_up(groups, ignore)
        distances = euclidean_distances(unit, unit)
        negative = ~(pairs.related_patches[pairs.first] | pairs.related_patches[pairs.second])
        nearer = distances[pairs.first].minimum(distances[pairs.second])
        hinge = (self.margin + distances[pairs.first, pairs.second][:, None] - nearer).relu()
        return (hinge * negative).sum() / negative.sum().clamp(min=1)
