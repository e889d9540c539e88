"""FastAP: Average Precision from histograms of squared distances.

Cakir et al., Deep Metric Learning to Rank, CVPR 2019.
"""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import inner_products, soft_histogram
from doap.objectives.baselines.pairs import related_patches, unit_batch
from doap.objectives.lists import IgnoreTable, check_matches


class FastAPLoss(nn.Module):
    """One minus the mean FastAP of the queries that have a match.

        L = 1 - mean_q FastAP(q),   FastAP(q) = 1/|S⁺| Σ_k h⁺_k H⁺_k / H_k

    with the histograms of `average_precision`, here of squared Euclidean distances between unit vectors, in [0, 4].
    Empty bins add 0. Allocates M x M tensors.

    Args:
        bins: b, the number of bin intervals.
    """

    def __init__(self, bins: int = 10) -> None:
        super().__init__()
        self.bins = bins

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss, a scalar, of (M, d) raw outputs with (M,) integer groups, without the ignored pairs."""
        unit, groups = unit_batch(outputs, groups)
        squared = (2 - 2 * inner_products(unit, unit)).clamp(0, 4)
        others = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
        match = (groups[:, None] == groups[None, :]) & others
        check_matches(match)
        width = 4 / self.bins
        matches = soft_histogram(squared, match.to(unit.dtype), self.bins, width)
        listed = match | ~related_patches(groups, ignore)
        ranked = soft_histogram(squared, listed.to(unit.dtype), self.bins, width).cumsum(1)
        precision = matches.cumsum(1) / torch.where(ranked > 0, ranked, 1)
        has_match = match.any(1)
        return 1 - ((matches * precision).sum(1)[has_match] / match.sum(1)[has_match]).mean()
