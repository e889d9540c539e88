"""L2Net's loss: relative distances in the batch, and uncorrelated dimensions (Tian et al., CVPR 2017)."""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances, inner_products, relaxed_descriptors
from doap.objectives.baselines.pairs import pair_up, unit_batch
from doap.objectives.lists import IgnoreTable


class L2NetLoss(nn.Module):
    """Softmax over the batch's distances, both ways, plus the correlation between dimensions.

        E₁ = -½ Σ_i [log s(i | row i) + log s(i | column i)],   s = softmax of 2 - d(a_i, p_j)
        E₂ = ½ Σ_{k≠l} [r_kl(a)² + r_kl(p)²],   r_kl the correlation of dimensions k and l over the batch
        L  = E₁ + E₂

    over N pairs (a_i, p_i) as `pairs` cuts them, j over i and the pairs of other groups, d Euclidean between
    unit vectors. Sums, not means, as published, so that E₁ and E₂ keep their balance. The paper's third
    term looks at feature maps inside the network, which an objective does not see.
    """

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss of (M, d) raw outputs with (M,) integer groups, and pairs to leave out, a scalar."""
        unit, groups = unit_batch(outputs, groups)
        pairs = pair_up(groups, ignore)
        first, second = unit[pairs.first], unit[pairs.second]
        same_point = pairs.related.fill_diagonal_(False)
        closeness = (2 - euclidean_distances(first, second)).masked_fill(same_point, -torch.inf)
        relative = closeness.log_softmax(1).diagonal() + closeness.log_softmax(0).diagonal()
        return -relative.sum() / 2 + (_correlation(first) + _correlation(second)) / 2


def _correlation(descriptors: Tensor) -> Tensor:
    """Σ_{k≠l} r_kl² of (N, d) descriptors; a dimension that does not vary correlates with none."""
    centred = relaxed_descriptors((descriptors - descriptors.mean(0)).T, "real")
    return inner_products(centred, centred).fill_diagonal_(0).square().sum()
