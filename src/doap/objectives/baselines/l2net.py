"""L2-Net's loss: relative distances in the batch, uncorrelated dimensions, and discriminative feature maps.

Tian et al., L2-Net: Deep Learning of Discriminative Patch Descriptor in Euclidean Space, CVPR 2017.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import euclidean_distances, inner_products, relaxed_descriptors
from doap.objectives.baselines.pairs import make_pairs, unit_batch
from doap.objectives.lists import IgnoreTable


class L2NetLoss(nn.Module):
    """Softmax over the distances of the batch and over the products of feature maps, plus correlations of dimensions.

        E₁ = -½ Σ_i [log s(i | row i) + log s(i | column i)],   s = softmax of 2 - d(a_i, p_j)
        E₂ = ½ Σ_{k≠l} [r_kl(a)² + r_kl(p)²],   r_kl the correlation of dimensions k and l over the batch
        E₃ = -½ Σ_maps Σ_i [log v(i | row i) + log v(i | column i)],   v = softmax of f(a_i)ᵀf(p_j)
        L  = (E₁ + E₂ + E₃) / M

    over N pairs (a_i, p_i) from `pairs`, j over i and the pairs of other groups, d Euclidean between unit vectors. f
    is a flattened feature map: after the first and after the last batch normalisation of the network. The terms are
    sums, as published, and M is the number of patches: MatConvNet, the authors' library, divides gradients by it.
    """

    def forward(
        self,
        outputs: Tensor,
        groups: Tensor,
        ignore: IgnoreTable | None = None,
        feature_maps: Sequence[Tensor] = (),
    ) -> Tensor:
        """Compute the loss, a scalar, without the ignored pairs.

        Args:
            outputs: (M, d) raw activations.
            groups: (M,) integer group of each patch.
            ignore: Pairs to leave out.
            feature_maps: (M, values) batch-normalised maps of the same patches; without any, E₃ is 0.
        """
        unit, groups = unit_batch(outputs, groups)
        pairs = make_pairs(groups, ignore)
        anchors, positives = unit[pairs.anchors], unit[pairs.positives]
        excluded = pairs.related_pairs.fill_diagonal_(False)
        loss = _softmax_error(2 - euclidean_distances(anchors, positives), excluded)
        loss = loss + (_squared_correlation(anchors) + _squared_correlation(positives)) / 2
        for values in feature_maps:
            products = inner_products(values[pairs.anchors], values[pairs.positives])
            loss = loss + _softmax_error(products, excluded)
        return loss / len(outputs)


def _softmax_error(similarity: Tensor, excluded: Tensor) -> Tensor:
    """Return -½ Σ_i [log s_ii along its row + log s_ii along its column] of (N, N) similarities, s their softmax."""
    similarity = similarity.masked_fill(excluded, -torch.inf)
    return -(similarity.log_softmax(1).diagonal() + similarity.log_softmax(0).diagonal()).sum() / 2


def _squared_correlation(descriptors: Tensor) -> Tensor:
    """Return Σ_{k≠l} r_kl² of (N, d) descriptors; the correlation of a constant dimension is 0."""
    centred = relaxed_descriptors((descriptors - descriptors.mean(0)).T, "real")
    return inner_products(centred, centred).fill_diagonal_(0).square().sum()
