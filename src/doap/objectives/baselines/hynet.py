"""HyNet's loss: a similarity between distance and inner product (Tian et al., NeurIPS 2020)."""

from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances
from doap.objectives.baselines.pairs import pair_up, unit_batch
from doap.objectives.baselines.sosnet import hardest_negatives
from doap.objectives.lists import IgnoreTable


class HyNetLoss(nn.Module):
    """Triplet margin loss on a hybrid of both measures, and lengths that agree within a pair.

        L = 1/N Σ_i max(0, m + s(d(a_i, p_i)) - s(d⁻_i)) + γ/N Σ_i (‖A_i‖ - ‖P_i‖)²,   s(d) = d + α d²/2

    over N pairs (a_i, p_i) as `pairs` cuts them, A_i and P_i their raw outputs; d²/2 is 1 - aᵀp between unit
    vectors, so α weighs the inner product against the distance. d⁻_i is the hardest negative as in `sosnet`.
    The paper divides s by a constant; here, as in the published training, it is part of the margin.

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
        """Compute the loss of (M, d) raw outputs with (M,) integer groups, and pairs to leave out, a scalar."""
        unit, groups = unit_batch(outputs, groups)
        pairs = pair_up(groups, ignore)
        first, second = unit[pairs.first], unit[pairs.second]
        matching = euclidean_distances(first, second).diagonal()
        negative = hardest_negatives(first, second, pairs.related)
        hinge = (self.margin + self._hybrid(matching) - self._hybrid(negative)).relu()
        lengths = outputs.to(unit.dtype).norm(dim=1)
        stretch = (lengths[pairs.first] - lengths[pairs.second]).square()
        loss: Tensor = hinge.mean() + self.length_weight * stretch.mean()
        return loss

    def _hybrid(self, distances: Tensor) -> Tensor:
        return distances + self.mix * distances.square() / 2
