"""AffNet's loss: HardNet's, without a gradient through the negatives.

Mishkin, Radenović and Matas, Repeatability is not enough: Learning affine regions via discriminability, ECCV 2018.
"""

from torch import Tensor

from doap.objectives.baselines.hardnet import HardNetLoss


class HardNegativeConstantLoss(HardNetLoss):
    """Triplet margin loss with the closest non-match in the batch as a constant.

        L = 1/N Σ_i max(0, m + d(a_i, p_i) - n_i),   ∂n_i := 0

    n_i is the distance to the closest negative, as in `HardNetLoss`. Descriptors keep their distances to negatives, and
    frames are moved only to bring matches together.

    Args:
        margin: m.
    """

    def _negative_distances(self, distances: Tensor) -> Tensor:
        return distances.detach()
