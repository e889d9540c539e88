"""SOSNet's loss: second order similarity (Tian et al., CVPR 2019)."""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances, root
from doap.objectives.baselines.pairs import pair_up, unit_batch
from doap.objectives.lists import IgnoreTable


def hardest_negatives(first: Tensor, second: Tensor, related: Tensor) -> Tensor:
    """Distance of each pair, (N, d) twice, to the nearest patch of an unrelated pair, from either of its patches."""
    across = euclidean_distances(first, second)
    within = euclidean_distances(first, first).minimum(euclidean_distances(second, second))
    return across.minimum(across.T).minimum(within).masked_fill(related, torch.inf).amin(1)


class SOSNetLoss(nn.Module):
    """First order: quadratic hinge on the hardest negative. Second order: a pair sees its neighbours alike.

        L = 1/N Σ_i max(0, m + d(a_i, p_i) - d⁻_i)² + 1/N Σ_i √(Σ_{j ∈ c_i} (d(a_i, a_j) - d(p_i, p_j))²)

    over N pairs (a_i, p_i) as `pairs` cuts them, j over pairs of other groups, d Euclidean between unit
    vectors; d⁻_i is the least of d(a_i, p_j), d(a_j, p_i), d(a_i, a_j), d(p_i, p_j), and c_i holds those j for
    which a_j is among the K nearest of a_i, or p_j among those of p_i.

    Args:
        margin: m.
        neighbours: K.
    """

    def __init__(self, margin: float = 1.0, neighbours: int = 8) -> None:
        super().__init__()
        self.margin = margin
        self.neighbours = neighbours

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss of (M, d) raw outputs with (M,) integer groups, and pairs to leave out, a scalar."""
        unit, groups = unit_batch(outputs, groups)
        pairs = pair_up(groups, ignore)
        first, second, related = unit[pairs.first], unit[pairs.second], pairs.related
        matching = euclidean_distances(first, second).diagonal()
        hinge = (self.margin + matching - hardest_negatives(first, second, related)).relu()
        among_first, among_second = euclidean_distances(first, first), euclidean_distances(second, second)
        near = self._nearest(among_first, related) | self._nearest(among_second, related)
        second_order = root(((among_first - among_second) * near).square().sum(1))
        return hinge.square().mean() + second_order.mean()

    def _nearest(self, distances: Tensor, related: Tensor) -> Tensor:
        """(N, N) bool: which pairs of other groups are among the K nearest of each."""
        count = min(self.neighbours, len(distances))
        nearest = distances.detach().masked_fill(related, torch.inf).topk(count, largest=False).indices
        return torch.zeros_like(related).scatter_(1, nearest, True) & ~related
