"""Histogram loss: overlap of the similarities of matching and non-matching pairs.

Ustinova and Lempitsky, Learning Deep Embeddings with Histogram Loss, NIPS 2016.
"""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import inner_products, soft_histogram
from doap.objectives.baselines.pairs import related_patches, unit_batch
from doap.objectives.lists import IgnoreTable, check_matches


class HistogramLoss(nn.Module):
    """Probability that a random non-matching pair is at least as similar as a random matching pair.

        L = Σ_k h⁻_k Σ_{l ≤ k} h⁺_l

    h⁺ and h⁻ are soft histograms (triangular kernel) of F(x)ᵀF(x') in [-1, 1] over the matching and non-matching
    pairs of the batch, each divided by its number of pairs. Without a non-match L is 0.

    Args:
        bins: Number of bin intervals.
    """

    def __init__(self, bins: int = 100) -> None:
        super().__init__()
        self.bins = bins

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss, a scalar, of (M, d) raw outputs with (M,) integer groups, without the ignored pairs."""
        unit, groups = unit_batch(outputs, groups)
        first, second = torch.triu_indices(len(unit), len(unit), offset=1, device=unit.device)
        shifted = (1 + inner_products(unit, unit))[first, second].clamp(0, 2)[None]
        match = (groups[first] == groups[second])[None]
        negative = ~related_patches(groups, ignore)[first, second][None]
        check_matches(match)
        matches, others = (
            soft_histogram(shifted, pairs.to(unit.dtype), self.bins, 2 / self.bins)[0] / pairs.sum().clamp(min=1)
            for pairs in (match, negative)
        )
        return (others * matches.cumsum(0)).sum()
