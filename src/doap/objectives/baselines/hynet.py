"""HyNet's loss: a hybrid of distance and inner product.

Tian et al., HyNet: Learning Local Descriptor with Hybrid Similarity Measure and Triplet Loss, NeurIPS 2020.
"""

from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances
from doap.objectives.baselines.pairs import make_pairs, unit_batch
from doap.objectives.baselines.sosnet import hardest_negatives
from doap.objectives.lists import IgnoreTable


class HyNetLoss(nn.Module):
    """Triplet margin loss on a hybrid of distance and inner product, and equal lengths within a pair.

        L = 1/N Σ_i max(0, m + s(d(a_i, p_i)) - s(d⁻_i)) + γ/N Σ_i (‖A_i‖ - ‖P_i‖)²
        s(d) = d + α d²/2

    over N pairs (a_i, p_i) from `pairs`, with raw outputs A_i and P_i. Between unit vectors d²/2 is 1 - aᵀp, so α
    weighs the inner product against the distance. d⁻_i is the hardest negative, as in `sosnet`. The paper divides
    s by a constant; here, as in the published training code, it is absorbed by the margin.

    Args:
        margin: m.
        mix: α.
        length_weight: γ.
    """

    def __init__(self, margin: float = 1.2, mix: float = 2.0, length_weight: float = 0.1) -> None:
        super().__init__()
        self.margin = margin
        self.mix = mix
        self.length_weight = length_weight

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss, a scalar, of (M, d) raw outputs with (M,) integer groups, without the ignored pairs."""
        unit, groups = unit_batch(outputs, groups)
        pairs = make_pairs(groups, ignore)
        anchors, positives = unit[pairs.anchors], unit[pairs.positives]
        matching = euclidean_distances(anchors, positives).diagonal()
        negative = hardest_negatives(anchors, positives, pairs.related_pairs)
        hinge = (self.margin + self._hybrid(matching) - self._hybrid(negative)).relu()
        lengths = outputs.to(unit.dtype).norm(dim=1)
        length_penalty = (lengths[pairs.anchors] - lengths[pairs.positives]).square()
        loss: Tensor = hinge.mean() + self.length_weight * length_penalty.mean()
        return loss

    def _hybrid(self, distances: Tensor) -> Tensor:
        return distances + self.mix * distances.square() / 2
