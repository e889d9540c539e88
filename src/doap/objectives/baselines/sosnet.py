"""SOSNet's loss: second order similarity.

Tian et al., SOSNet: Second Order Similarity Regularization for Local Descriptor Learning, CVPR 2019.
"""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances, safe_sqrt
from doap.objectives.baselines.pairs import make_pairs, unit_batch
from doap.objectives.lists import IgnoreTable


class SOSNetLoss(nn.Module):
    """Quadratic hinge on the hardest negative, plus equal distances of both patches of a pair to their neighbours.

        L = 1/N Σ_i max(0, m + d(a_i, p_i) - d⁻_i)² + 1/N Σ_i √(Σ_{j ∈ c_i} (d(a_i, a_j) - d(p_i, p_j))²)

    over N pairs (a_i, p_i) from `pairs`, j over pairs of other groups, d Euclidean between unit vectors. d⁻_i is the
    minimum of d(a_i, p_j), d(a_j, p_i), d(a_i, a_j) and d(p_i, p_j). c_i holds the j for which a_j is among the K
    nearest neighbours of a_i, or p_j among those of p_i.

    Args:
        margin: m.
        neighbours: K.
    """

    def __init__(self, margin: float = 1.0, neighbours: int = 8) -> None:
        super().__init__()
        self.margin = margin
        self.neighbours = neighbours

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss, a scalar, of (M, d) raw outputs with (M,) integer groups, without the ignored pairs."""
        unit, groups = unit_batch(outputs, groups)
        pairs = make_pairs(groups, ignore)
        anchors, positives, related = unit[pairs.anchors], unit[pairs.positives], pairs.related_pairs
        matching = euclidean_distances(anchors, positives).diagonal()
        hinge = (self.margin + matching - hardest_negatives(anchors, positives, related)).relu()
        anchor_distances = euclidean_distances(anchors, anchors)
        positive_distances = euclidean_distances(positives, positives)
        near = self._nearest(anchor_distances, related) | self._nearest(positive_distances, related)
        second_order = safe_sqrt(((anchor_distances - positive_distances) * near).square().sum(1))
        return hinge.square().mean() + second_order.mean()

    def _nearest(self, distances: Tensor, related: Tensor) -> Tensor:
        """Return which pairs of other groups are among the K nearest of each pair, (N, N) bool."""
        count = min(self.neighbours, len(distances))
        nearest = distances.detach().masked_fill(related, torch.inf).topk(count, largest=False).indices
        return torch.zeros_like(related).scatter_(1, nearest, True) & ~related


def hardest_negatives(anchors: Tensor, positives: Tensor, related: Tensor) -> Tensor:
    """Return the distance from each pair to the nearest patch of an unrelated pair, (N,), from either of its patches.

    Args:
        anchors: (N, d) unit vectors.
        positives: (N, d) unit vectors.
        related: (N, N) bool, pairs that are not negatives of each other.
    """
    across = euclidean_distances(anchors, positives)
    within = euclidean_distances(anchors, anchors).minimum(euclidean_distances(positives, positives))
    return across.minimum(across.T).minimum(within).masked_fill(related, torch.inf).amin(1)
