"""Exact AP of many lists at once, by sorting: what validation measures while a training runs."""

import torch
from torch import Tensor


def exact_average_precisions(distances: Tensor, relevant: Tensor, listed: Tensor) -> Tensor:
    """Average Precision of each query, ties broken fairly: the mean over all orders of items at equal distance.

        AP = 1/P Σ_k (n⁺_k/n_k) Σ_{t=N_{k-1}+1}^{N_k} [N⁺_{k-1} + 1 + (t-N_{k-1}-1)(n⁺_k-1)/(n_k-1)] / t

    over the distinct distances k; n_k items have the k-th, n⁺_k of them relevant, and capitals are cumulative.

    Args:
        distances: (Q, N), smaller ranks first.
        relevant: (Q, N) bool, which items are right.
        listed: (Q, N) bool, which items are in the list at all.

    Returns:
        (Q,) float64; not a number for a query without a right item.
    """
    order = distances.masked_fill(~listed, torch.inf).argsort(dim=1, stable=True)
    distance = distances.masked_fill(~listed, torch.inf).gather(1, order)
    right = (relevant & listed).gather(1, order).double()
    rank = torch.arange(1, distance.shape[1] + 1, device=distance.device)
    opens = torch.ones_like(distance, dtype=torch.bool)
    opens[:, 1:] = distance[:, 1:] != distance[:, :-1]
    closes = opens.roll(-1, 1)
    closes[:, -1] = True
    before = torch.where(opens, rank - 1, 0).cummax(1).values  # N_{k-1}
    until = torch.where(closes, rank, rank[-1]).flip(1).cummin(1).values.flip(1)  # N_k
    found = torch.cat([right.new_zeros(len(right), 1), right.cumsum(1)], 1)
    found_before, found_until = found.gather(1, before), found.gather(1, until)
    size, right_in_tie = until - before, found_until - found_before
    others = (rank - before - 1) * (right_in_tie - 1) / (size - 1).clamp(min=1)
    precision_if_right = (found_before + 1 + others) / rank
    total = (right_in_tie / size * precision_if_right * distance.isfinite()).sum(1)
    return total / right.sum(1)
