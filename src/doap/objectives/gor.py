"""GOR: the triplet loss with global orthogonal regularisation (Zhang et al., ICCV 2017)."""

from torch import Tensor, nn

from doap.objectives.average_precision import inner_products
from doap.objectives.pairs import unit_batch
from doap.objectives.tfeat import TripletLoss


class GlobalOrthogonalLoss(nn.Module):
    """Non-matching descriptors spread like uniform points on the sphere, beside the triplet loss.

        L = L_triplet + α (M₁² + max(0, M₂ - 1/d))

    M₁ is the mean and M₂ the mean square of F(x)ᵀF(x') over all pairs of patches of different groups: for
    uniform points on the sphere of d dimensions they are 0 and 1/d.

    Args:
        margin: m of `TripletLoss`.
        weight: α.
    """

    def __init__(self, margin: float = 1.0, weight: float = 1.0) -> None:
        super().__init__()
        self.triplet = TripletLoss(margin)
        self.weight = weight

    def forward(self, outputs: Tensor, groups: Tensor) -> Tensor:
        """Compute the loss of (M, d) raw outputs with (M,) integer groups, a scalar."""
        unit, labels = unit_batch(outputs, groups)
        negative = labels[:, None] != labels[None, :]
        products = inner_products(unit, unit) * negative
        count = negative.sum().clamp(min=1)
        mean, mean_square = products.sum() / count, products.square().sum() / count
        spread = mean.square() + (mean_square - 1 / unit.shape[1]).relu()
        triplet: Tensor = self.triplet(outputs, groups)
        return triplet + self.weight * spread
