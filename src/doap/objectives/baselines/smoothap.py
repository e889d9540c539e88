"""Smooth-AP: Average Precision with ranks relaxed by sigmoids.

Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020.
"""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import inner_products
from doap.objectives.baselines.pairs import related_patches, unit_batch
from doap.objectives.lists import IgnoreTable, check_matches


class SmoothAPLoss(nn.Module):
    """One minus the mean Smooth-AP of the queries that have a match.

        L = 1 - mean_q SmoothAP(q)
        SmoothAP(q) = 1/|S⁺| Σ_{i ∈ S⁺} (1 + Σ_{j ∈ S⁺, j≠i} σ_ij) / (1 + Σ_{j ∈ S⁺ ∪ S⁻, j≠i} σ_ij)
        σ_ij = 1 / (1 + exp((s_i - s_j) / τ))

    where s_j is the inner product of the unit vectors of q and j. The query is in neither set. Allocates M numbers
    per matching pair: O(M²) in total for small groups, O(M³) if all patches are one group.

    Args:
        temperature: τ.
    """

    def __init__(self, temperature: float = 0.01) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss, a scalar, of (M, d) raw outputs with (M,) integer groups, without the ignored pairs."""
        unit, groups = unit_batch(outputs, groups)
        similarity = inner_products(unit, unit)
        others = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
        match = (groups[:, None] == groups[None, :]) & others
        check_matches(match)
        query, item = match.nonzero(as_tuple=True)
        before = ((similarity[query] - similarity[query, item][:, None]) / self.temperature).sigmoid()
        listed = match | ~related_patches(groups, ignore)
        before = before * (listed[query] & others[item])
        precision = (1 + (before * match[query]).sum(1)) / (1 + before.sum(1))
        sizes = match.sum(1)
        return 1 - (precision / sizes[query]).sum() / (sizes > 0).sum()
