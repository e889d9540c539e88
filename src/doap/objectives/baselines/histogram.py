"""Histogram loss: similarities of matches and of others, kept apart (Ustinova and Lempitsky, NIPS 2016)."""

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import inner_products, soft_histogram
from doap.objectives.baselines.pairs import related_patches, unit_batch
from doap.objectives.lists import IgnoreTable, check_matches


class HistogramLoss(nn.Module):
    """How likely a random non-matching pair is as similar as a random matching pair, or more.

        L = Σ_k h⁻_k Σ_{l ≤ k} h⁺_l

    h⁺ and h⁻ are the soft histograms, by the triangular kernel, of F(x)ᵀF(x') over the batch's matching and
    non-matching pairs, on nodes from -1 to 1, each divided by its number of pairs. Without a non-match L is 0.

    Args:
        bins: intervals between the nodes.
    """

    def __init__(self, bins: int = 100) -> None:
        super().__init__()
        self.bins = bins

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss of (M, d) raw outputs with (M,) integer groups, and pairs to leave out, a scalar."""
        unit, groups = unit_batch(outputs, groups)
        first, second = torch.triu_indices(len(unit), len(unit), offset=1, device=unit.device)
        from_least = (1 + inner_products(unit, unit))[first, second].clamp(0, 2)[None]
        match = (groups[first] == groups[second])[None]
        negative = ~related_patches(groups, ignore)[first, second][None]
        check_matches(match)
        matches, others = (
            soft_histogram(from_least, chosen.to(unit.dtype), self.bins, 2 / self.bins)[0] / chosen.sum().clamp(min=1)
            for chosen in (match, negative)
        )
        return (others * matches.cumsum(0)).sum()
