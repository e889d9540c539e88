"""The objective stated slowly: the oracle of its tests."""

import torch
from torch import Tensor

from doap.objectives import IgnoreTable
from doap.types import Kind


def textbook_histograms(
    outputs: Tensor,
    groups: Tensor,
    kind: Kind,
    bins: int,
    ignore: IgnoreTable | Tensor | None,
    spacing: float | None = None,
) -> tuple[Tensor, Tensor]:
    """h⁺ and h with one kernel a pair and a bin, (M, M, b + 1), and nothing clever."""
    if kind == "real":
        unit = torch.nn.functional.normalize(outputs, dim=1)
        squared = 2 - 2 * (unit[:, None] * unit[None]).sum(2)
        same = squared < 1e-14
        distances = torch.where(same, 1, squared).sqrt().masked_fill(same, 0)
        relative = squared / 4
        width = 2 / bins
    else:
        bits = outputs.tanh()
        distances = ((1 - bits[:, None] * bits[None]) / 2).sum(2)
        relative = distances / outputs.shape[1]
        width = outputs.shape[1] / bins
    if spacing is not None:
        distances, width = relative.clamp(0, 1) ** spacing, 1 / bins
    centres = width * torch.arange(bins + 1, dtype=outputs.dtype, device=outputs.device)
    kernel = (1 - (distances[..., None] - centres).abs() / width).relu()
    match = groups[:, None] == groups[None]
    if ignore is None:
        ignore = torch.zeros_like(match)
    elif isinstance(ignore, IgnoreTable):
        ignore = torch.tensor([[bool(ignore.table[a, b]) for b in ignore.labels] for a in ignore.labels])
    ranked = match | ~ignore.to(match.device)
    others = ~torch.eye(len(groups), dtype=torch.bool, device=groups.device)
    return tuple((kernel * (chosen & others)[..., None]).sum(1) for chosen in (match, ranked))


def textbook_average_precision(matches: Tensor, ranked: Tensor) -> Tensor:
    """AP of one list from its two histograms, each (b + 1,): the formula, bin by bin."""
    total, matches_before, ranked_before = matches.new_zeros(()), matches.new_zeros(()), matches.new_zeros(())
    for match, rank in zip(matches, ranked, strict=True):
        matches_now, ranked_now = matches_before + match, ranked_before + rank
        total = total + match * (matches_before + matches_now + 1) / (ranked_before + ranked_now + 1)
        matches_before, ranked_before = matches_now, ranked_now
    return total / matches_now.detach()


def textbook_loss(
    outputs: Tensor,
    groups: Tensor,
    kind: Kind,
    bins: int,
    ignore: IgnoreTable | Tensor | None = None,
    pooled: float = 0.0,
    pools: Tensor | None = None,
    spacing: float | None = None,
) -> Tensor:
    """The whole objective, list by list."""
    matches, ranked = textbook_histograms(outputs, groups, kind, bins, ignore, spacing)
    queries = [i for i in range(len(groups)) if (groups == groups[i]).sum() > 1]
    loss = 1 - torch.stack([textbook_average_precision(matches[i], ranked[i]) for i in queries]).mean()
    if pooled:
        pools = torch.zeros_like(groups) if pools is None else pools
        precisions = [
            textbook_average_precision(matches[pools == pool].sum(0), ranked[pools == pool].sum(0))
            for pool in pools.unique()
            if matches[pools == pool].sum() > 0.5
        ]
        loss = loss + pooled * (1 - torch.stack(precisions).mean())
    return loss


def textbook_matching(
    outputs: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: Tensor, handicap: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The AP of matching and its handicap, pair by pair; `ignore` is an (M, M) mask.

    A given handicap is taken instead of the list's own: so that only what has a gradient moves.
    """
    unit = torch.nn.functional.normalize(outputs, dim=1) if kind == "real" else outputs.tanh()
    reach = 2.0 if kind == "real" else float(outputs.shape[1])

    def distance(i: int, j: int) -> Tensor:
        product = (unit[i] * unit[j]).sum()
        return (2 - 2 * product).sqrt() if kind == "real" else (outputs.shape[1] - product) / 2

    right, wrong = [], []
    for i in range(len(groups)):
        negatives = [distance(i, j) for j in range(len(groups)) if groups[i] != groups[j] and not ignore[i, j]]
        for j in range(len(groups)):
            if i != j and groups[i] == groups[j]:
                right.append(distance(i, j))
                wrong += [min(negatives)] if negatives else []
    lead = (sum(wrong) / max(1, len(wrong)) - sum(right) / len(right)).detach().clamp(min=0)
    used = lead if handicap is None else handicap
    centres = reach / bins * torch.arange(bins + 1, dtype=outputs.dtype)

    def histogram(values: list[Tensor]) -> Tensor:
        kernel = [(1 - (value.clamp(max=reach) - centres).abs() * bins / reach).relu() for value in values]
        return torch.stack([*kernel, torch.zeros_like(centres)]).sum(0)

    matched = histogram([value + used for value in right])
    return textbook_average_precision(matched, matched + histogram(wrong)), lead
