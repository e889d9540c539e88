"""Exact metrics: what a descriptor is judged by."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def average_precision(distances: ArrayLike, relevant: ArrayLike, positives: int | None = None) -> float:
    """Average Precision of one ranked list, ties broken fairly.

    AP is the mean, over all positives, of the precision at the rank of each. Items at equal distance
    have no order: the value is the mean over all their orders (McSherry and Najork, ECIR 2008), so that
    a descriptor gains nothing from ties. Without ties this is the textbook formula.

        AP = 1/P Σ_k (n⁺_k/n_k) Σ_{t=N_{k-1}+1}^{N_k} [N⁺_{k-1} + 1 + (t-N_{k-1}-1)(n⁺_k-1)/(n_k-1)] / t

    Args:
        distances: (N,), smaller ranks first.
        relevant: (N,) bool, which items are right; or the chance in [0, 1] that each is, independent of the
            others: AP is then the expected one.
        positives: P, how many right items there are; more than the list holds when some were never
            retrieved. By default those in the list.

    Returns:
        AP in [0, 1]; 0 for a list without a right item.

    Example:
        >>> average_precision([0.1, 0.2, 0.3], [True, False, True])  # (1/1 + 2/3) / 2
        0.8333333333333333
        >>> average_precision([1, 1], [True, False])  # first or second, equally often
        0.75
    """
    distance, _ = _judged("an item", distances, relevant)
    chance = np.asarray(relevant, np.float64)
    found = float(chance.sum())
    total = found if positives is None else positives
    if total < found:
        raise ValueError(f"the list holds {found:g} right items, more than the {total} said to exist")
    if found == 0:
        return 0.0
    order = np.argsort(distance, kind="stable")
    distance, chance = distance[order], chance[order]
    _, start, tie, size = np.unique(distance, return_index=True, return_inverse=True, return_counts=True)
    right_in_tie = np.add.reduceat(chance, start)
    right_pairs = right_in_tie**2 - np.add.reduceat(chance**2, start)  # n⁺(n⁺-1) where all is certain
    right_before = np.concatenate(([0.0], np.cumsum(right_in_tie)[:-1]))
    rank = np.arange(1, len(distance) + 1)
    place = rank - start[tie] - 1  # within its tie, from 0
    expected = right_in_tie * (right_before + 1)
    expected_others = right_pairs / np.maximum(size - 1, 1)
    return float(((expected[tie] + place * expected_others[tie]) / (size[tie] * rank)).sum() / total)


def false_positive_rate_at_recall(distances: ArrayLike, same: ArrayLike, recall: float = 0.95) -> float:
    """Share of the non-matching pairs that pass the threshold which lets a share `recall` of the matching ones pass.

    The threshold is the smallest distance at which the recall is reached; every non-matching pair at or below
    it counts. So ties never help: a descriptor that maps all patches to one point scores 1.

    Args:
        distances: (N,) of the pairs.
        same: (N,) bool, which pairs match; some do, and some do not.
        recall: in (0, 1].

    Returns:
        The rate in [0, 1]; 0 is best.

    Example:
        >>> false_positive_rate_at_recall([0.1, 0.3, 0.2, 0.3, 0.4], [True, True, False, False, False])
        0.6666666666666666
    """
    distance, match = _judged("a pair", distances, same)
    if not 0 < recall <= 1:
        raise ValueError(f"recall is a share in (0, 1], not {recall}")
    if match.all() or not match.any():
        raise ValueError("there must be pairs that match and pairs that do not")
    matching = np.sort(distance[match])
    reached = np.arange(1, len(matching) + 1) / len(matching)
    threshold = matching[np.searchsorted(reached, recall)]
    return float((distance[~match] <= threshold).mean())


def _judged(of_what: str, distances: ArrayLike, verdicts: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(N,) distances and (N,) verdicts as arrays; anything else is refused."""
    distance = np.asarray(distances, dtype=np.float64)
    verdict = np.asarray(verdicts, dtype=bool)
    if distance.ndim != 1 or distance.shape != verdict.shape:
        raise ValueError(f"one distance and one verdict {of_what}, not {distance.shape} and {verdict.shape}")
    if np.isnan(distance).any():
        raise ValueError("a distance is not a number")
    return distance, verdict
