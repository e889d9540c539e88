"""Exact Average Precision of many lists at once, by sorting: the metric of validation during training.

    AP = 1/P Σ_k (n⁺_k/n_k) Σ_{t=N_{k-1}+1}^{N_k} [N⁺_{k-1} + 1 + (t-N_{k-1}-1)(n⁺_k-1)/(n_k-1)] / t

k runs over the distinct distances; n_k items have the k-th, n⁺_k of them relevant, and N_k, N⁺_k are cumulative.
P is the number of relevant items. This is the mean of AP over all orders of the items at equal distance.
"""

import torch
from torch import Tensor


def exact_average_precisions(distances: Tensor, relevant: Tensor, listed: Tensor) -> Tensor:
    """Return the tie-aware Average Precision of each query: the mean over all orders of items at equal distance.

    Args:
        distances: (Q, N), smaller ranks first; finite.
        relevant: (Q, N) bool, which items are correct.
        listed: (Q, N) bool, which items are in the list.

    Returns:
        (Q,) float64; NaN for a query without a correct item.
    """
    order = distances.masked_fill(~listed, torch.inf).argsort(dim=1, stable=True)
    distance = distances.masked_fill(~listed, torch.inf).gather(1, order)
    correct = (relevant & listed).gather(1, order).double()
    rank = torch.arange(1, distance.shape[1] + 1, device=distance.device)
    is_first_of_tie = torch.ones_like(distance, dtype=torch.bool)
    is_first_of_tie[:, 1:] = distance[:, 1:] != distance[:, :-1]
    is_last_of_tie = is_first_of_tie.roll(-1, 1)
    is_last_of_tie[:, -1] = True
    count_before = torch.where(is_first_of_tie, rank - 1, 0).cummax(1).values  # N_{k-1}
    count_until = torch.where(is_last_of_tie, rank, rank[-1]).flip(1).cummin(1).values.flip(1)  # N_k
    cumulative = torch.cat([correct.new_zeros(len(correct), 1), correct.cumsum(1)], 1)
    correct_before, correct_until = cumulative.gather(1, count_before), cumulative.gather(1, count_until)  # N⁺
    tie_size, correct_in_tie = count_until - count_before, correct_until - correct_before  # n_k, n⁺_k
    correct_ahead_in_tie = (rank - count_before - 1) * (correct_in_tie - 1) / (tie_size - 1).clamp(min=1)
    precision_if_correct = (correct_before + 1 + correct_ahead_in_tie) / rank
    total = (correct_in_tie / tie_size * precision_if_correct * distance.isfinite()).sum(1)
    return total / correct.sum(1)
