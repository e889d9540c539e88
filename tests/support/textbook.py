"""Reference implementations of the objective, written directly from the formulas: the oracles of its tests."""

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
    bin_power: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute h⁺ and h from one kernel value per pair and bin, an (M, M, b + 1) tensor."""
    if kind == "real":
        unit = torch.nn.functional.normalize(outputs, dim=1)
        squared = 2 - 2 * (unit[:, None] * unit[None]).sum(2)
        is_zero = squared < 1e-14
        distances = torch.where(is_zero, 1, squared).sqrt().masked_fill(is_zero, 0)
        relative = squared / 4
        width = 2 / bins
    else:
        bits = outputs.tanh()
        distances = ((1 - bits[:, None] * bits[None]) / 2).sum(2)
        relative = distances / outputs.shape[1]
        width = outputs.shape[1] / bins
    if bin_power is not None:
        distances, width = relative.clamp(0, 1) ** bin_power, 1 / bins
    centres = width * torch.arange(bins + 1, dtype=outputs.dtype, device=outputs.device)
    kernel = (1 - (distances[..., None] - centres).abs() / width).relu()
    match = groups[:, None] == groups[None]
    if ignore is None:
        ignore = torch.zeros_like(match)
    elif isinstance(ignore, IgnoreTable):
        ignore = torch.tensor([[bool(ignore.table[a, b]) for b in ignore.labels] for a in ignore.labels])
    ranked = match | ~ignore.to(match.device)
    others = ~torch.eye(len(groups), dtype=torch.bool, device=groups.device)
    return (kernel * (match & others)[..., None]).sum(1), (kernel * (ranked & others)[..., None]).sum(1)


def textbook_average_precision(matches: Tensor, ranked: Tensor) -> Tensor:
    """Compute the AP of one list from its two histograms, each (b + 1,): the formula, bin by bin."""
    total, matches_before, ranked_before = matches.new_zeros(()), matches.new_zeros(()), matches.new_zeros(())
    for h_match, h in zip(matches, ranked, strict=True):
        matches_until, ranked_until = matches_before + h_match, ranked_before + h
        total = total + h_match * (matches_before + matches_until + 1) / (ranked_before + ranked_until + 1)
        matches_before, ranked_before = matches_until, ranked_until
    precision: Tensor = total / matches_before.detach()
    return precision


def textbook_loss(
    outputs: Tensor,
    groups: Tensor,
    kind: Kind,
    bins: int,
    ignore: IgnoreTable | Tensor | None = None,
    pooled_weight: float = 0.0,
    pools: Tensor | None = None,
    bin_power: float | None = None,
) -> Tensor:
    """Compute the objective without the matching list, list by list."""
    matches, ranked = textbook_histograms(outputs, groups, kind, bins, ignore, bin_power)
    queries = [i for i in range(len(groups)) if (groups == groups[i]).sum() > 1]
    loss = 1 - torch.stack([textbook_average_precision(matches[i], ranked[i]) for i in queries]).mean()
    if pooled_weight:
        pools = torch.zeros_like(groups) if pools is None else pools
        precisions = [
            textbook_average_precision(matches[pools == pool].sum(0), ranked[pools == pool].sum(0))
            for pool in set(pools.tolist())
            if matches[pools == pool].sum() > 0.5
        ]
        loss = loss + pooled_weight * (1 - torch.stack(precisions).mean())
    return loss


def textbook_matching(
    outputs: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: Tensor, margin: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the AP of the matching list and its margin, pair by pair.

    Args:
        outputs: (M, d) raw activations.
        groups: (M,) integers.
        kind: "real" or "binary".
        bins: b, the number of bin intervals.
        ignore: (M, M) bool mask.
        margin: replaces the margin of the list, to keep it constant in finite differences.
    """
    unit = torch.nn.functional.normalize(outputs, dim=1) if kind == "real" else outputs.tanh()
    largest = 2.0 if kind == "real" else float(outputs.shape[1])

    def distance(i: int, j: int) -> Tensor:
        product = (unit[i] * unit[j]).sum()
        return (2 - 2 * product).sqrt() if kind == "real" else (outputs.shape[1] - product) / 2

    correct, wrong = [], []
    for i in range(len(groups)):
        negatives = [distance(i, j) for j in range(len(groups)) if groups[i] != groups[j] and not ignore[i, j]]
        for j in range(len(groups)):
            if i != j and groups[i] == groups[j]:
                correct.append(distance(i, j))
                wrong += [min(negatives)] if negatives else []
    zero = outputs.new_zeros(())
    mean_wrong, mean_correct = sum(wrong, zero) / max(1, len(wrong)), sum(correct, zero) / len(correct)
    own_margin = (mean_wrong - mean_correct).detach().clamp(min=0)
    centres = largest / bins * torch.arange(bins + 1, dtype=outputs.dtype)

    def histogram(values: list[Tensor]) -> Tensor:
        kernel = [(1 - (value.clamp(max=largest) - centres).abs() * bins / largest).relu() for value in values]
        return torch.stack([*kernel, torch.zeros_like(centres)]).sum(0)

    used_margin = own_margin if margin is None else margin
    matched = histogram([value + used_margin for value in correct])
    return textbook_average_precision(matched, matched + histogram(wrong)), own_margin
