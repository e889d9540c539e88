"""TFeat's loss: triplets with anchor swap.

Balntas et al., Learning local feature descriptors with triplets and shallow convolutional neural networks, BMVC 2016.
"""

from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances
from doap.objectives.baselines.pairs import make_pairs, unit_batch
from doap.objectives.lists import IgnoreTable


class TripletLoss(nn.Module):
    """Triplet margin loss over all negatives, each compared with the nearer patch of the pair.

        L = mean_{i, n} max(0, m + d(a_i, p_i) - min(d(a_i, n), d(p_i, n)))

    over the pairs (a_i, p_i) from `pairs` and all patches n of other groups: the expectation of TFeat's random
    triplets. d is Euclidean between unit vectors. Without a negative L is 0.

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
        distances = euclidean_distances(unit, unit)
        negative = ~(pairs.related_patches[pairs.anchors] | pairs.related_patches[pairs.positives])
        nearer = distances[pairs.anchors].minimum(distances[pairs.positives])
        hinge = (self.margin + distances[pairs.anchors, pairs.positives][:, None] - nearer).relu()
        return (hinge * negative).sum() / negative.sum().clamp(min=1)
