"""GOR: global orthogonal regularisation, added to another loss.

Zhang et al., Learning Spread-Out Local Feature Descriptors, ICCV 2017.
"""

from torch import Tensor, nn

from doap.objectives.average_precision import inner_products
from doap.objectives.baselines.pairs import related_patches, unit_batch
from doap.objectives.baselines.triplet import TripletLoss
from doap.objectives.lists import IgnoreTable


class GlobalOrthogonalLoss(nn.Module):
    """Another loss, plus a penalty unless non-matching descriptors spread like uniform points on the sphere.

        L = L_other + α (M₁² + max(0, M₂ - 1/d))

    M₁ is the mean and M₂ the mean square of F(x)ᵀF(x') over all pairs of patches of different groups. For uniform
    points on the sphere in d dimensions they are 0 and 1/d.

    Args:
        other: L_other; the triplet loss by default, as in the paper. With HardNet's loss it is the HardNet-GOR of the
            DOAP paper.
        weight: α.
    """

    def __init__(self, other: nn.Module | None = None, weight: float = 1.0) -> None:
        super().__init__()
        self.other = other or TripletLoss()
        self.weight = weight

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss, a scalar, of (M, d) raw outputs with (M,) integer groups, without the ignored pairs."""
        unit, labels = unit_batch(outputs, groups)
        negative = ~related_patches(labels, ignore)
        products = inner_products(unit, unit) * negative
        count = negative.sum().clamp(min=1)
        mean, mean_square = products.sum() / count, products.square().sum() / count
        penalty = mean.square() + (mean_square - 1 / unit.shape[1]).relu()
        other: Tensor = self.other(outputs, groups, ignore)
        return other + self.weight * penalty
