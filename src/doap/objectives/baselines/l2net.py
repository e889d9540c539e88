"""L2-Net's loss: relative distances in the batch, and uncorrelated dimensions.

Tian et al., L2-Net: Deep Learning of Discriminative Patch Descriptor in Euclidean Space, CVPR 2017.
"""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances, inner_products, relaxed_descriptors
from doap.objectives.baselines.pairs import make_pairs, unit_batch
from doap.objectives.lists import IgnoreTable


class L2NetLoss(nn.Module):
    """Softmax over the distances of the batch, along rows and columns, plus the correlation between dimensions.

        E₁ = -½ Σ_i [log s(i | row i) + log s(i | column i)],   s = softmax of 2 - d(a_i, p_j)
        E₂ = ½ Σ_{k≠l} [r_kl(a)² + r_kl(p)²],   r_kl the correlation of dimensions k and l over the batch
        L  = E₁ + E₂

    over N pairs (a_i, p_i) from `pairs`, j over i and the pairs of other groups, d Euclidean between unit vectors.
    Sums, not means, as published, which keeps the balance of E₁ and E₂. The paper's third term uses feature maps
    inside the network, which are not available to an objective.
    """

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss, a scalar, of (M, d) raw outputs with (M,) integer groups, without the ignored pairs."""
        unit, groups = unit_batch(outputs, groups)
        pairs = make_pairs(groups, ignore)
        anchors, positives = unit[pairs.anchors], unit[pairs.positives]
        excluded = pairs.related_pairs.fill_diagonal_(False)
        similarity = (2 - euclidean_distances(anchors, positives)).masked_fill(excluded, -torch.inf)
        log_likelihood = similarity.log_softmax(1).diagonal() + similarity.log_softmax(0).diagonal()
        return -log_likelihood.sum() / 2 + (_squared_correlation(anchors) + _squared_correlation(positives)) / 2


def _squared_correlation(descriptors: Tensor) -> Tensor:
    """Return Σ_{k≠l} r_kl² of (N, d) descriptors; the correlation of a constant dimension is 0."""
    centred = relaxed_descriptors((descriptors - descriptors.mean(0)).T, "real")
    return inner_products(centred, centred).fill_diagonal_(0).square().sum()
