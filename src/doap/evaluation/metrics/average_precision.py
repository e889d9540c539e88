"""Exact metrics of one ranked list or of pairs."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def average_precision(distances: ArrayLike, relevant: ArrayLike, positives: int | None = None) -> float:
    """Compute the tie-aware Average Precision of one ranked list.

    AP is the mean, over all positives, of the precision at the rank of each. Items at equal distance have no order:
    the value is the mean over all their orders (McSherry and Najork, ECIR 2008), so that a descriptor gains nothing
    from ties. Without ties this is the textbook formula.

        AP = 1/P Σ_k (n⁺_k/n_k) Σ_{t=N_{k-1}+1}^{N_k} [N⁺_{k-1} + 1 + (t-N_{k-1}-1)(n⁺_k-1)/(n_k-1)] / t

    Args:
        distances: (N,), smaller ranks first.
        relevant: (N,) bool, which items are relevant; or the probability in [0, 1] that each is, independently of the
            others, in which case the expected AP is returned.
        positives: P, the number of relevant items; larger than in the list if some were never retrieved. By default
            the number in the list.

    Returns:
        AP in [0, 1]; 0 for a list without a relevant item.

    Example:
        >>> average_precision([0.1, 0.2, 0.3], [True, False, True])  # (1/1 + 2/3) / 2
        0.8333333333333333
        >>> average_precision([1, 1], [True, False])  # first or second with equal probability
        0.75
    """
    distance, _ = check_list("item", distances, relevant)
    probability = np.asarray(relevant, np.float64)
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError("the probability that an item is relevant must be in 0..1")
    listed = float(probability.sum())
    total = listed if positives is None else positives
    if total < listed:
        raise ValueError(f"the list holds {listed:g} relevant items, more than positives={total}")
    if listed == 0:
        return 0.0
    order = np.argsort(distance, kind="stable")
    distance, probability = distance[order], probability[order]
    _, start, tie, size = np.unique(distance, return_index=True, return_inverse=True, return_counts=True)
    relevant_in_tie = np.add.reduceat(probability, start)
    relevant_pairs = relevant_in_tie**2 - np.add.reduceat(probability**2, start)  # n⁺(n⁺-1) if all is certain
    relevant_before = np.concatenate(([0.0], np.cumsum(relevant_in_tie)[:-1]))
    rank = np.arange(1, len(distance) + 1)
    index_in_tie = rank - start[tie] - 1
    expected = relevant_in_tie * (relevant_before + 1)
    expected_others = relevant_pairs / np.maximum(size - 1, 1)
    return float(((expected[tie] + index_in_tie * expected_others[tie]) / (size[tie] * rank)).sum() / total)


def false_positive_rate_at_recall(distances: ArrayLike, same: ArrayLike, recall: float = 0.95) -> float:
    """Compute the false positive rate at the threshold that accepts a share `recall` of the matching pairs.

    The threshold is the smallest distance at which the recall is reached; every non-matching pair at or below it is a
    false positive. Ties therefore never help: a constant descriptor scores 1.

    Args:
        distances: (N,) distances of the pairs.
        same: (N,) bool, which pairs match; both kinds must occur.
        recall: Recall in (0, 1].

    Returns:
        Rate in [0, 1]; 0 is best.

    Example:
        >>> false_positive_rate_at_recall([0.1, 0.3, 0.2, 0.3, 0.4], [True, True, False, False, False])
        0.6666666666666666
    """
    distance, match = check_pairs(distances, same)
    if not 0 < recall <= 1:
        raise ValueError(f"recall must be in (0, 1], not {recall}")
    matching = np.sort(distance[match])
    reached = np.arange(1, len(matching) + 1) / len(matching)
    threshold = matching[np.searchsorted(reached, recall)]
    return float((distance[~match] <= threshold).mean())


def check_pairs(distances: ArrayLike, same: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return (N,) distances and (N,) labels of pairs as arrays; raise ValueError as `check_list`, or for one label."""
    distance, match = check_list("pair", distances, same)
    if match.all() or not match.any():
        raise ValueError("needs pairs that match and pairs that do not")
    return distance, match


def check_list(item: str, distances: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return (N,) distances and (N,) labels as arrays; raise ValueError for other shapes or NaN."""
    distance = np.asarray(distances, dtype=np.float64)
    label = np.asarray(labels, dtype=bool)
    if distance.ndim != 1 or distance.shape != label.shape:
        raise ValueError(f"needs one distance and one label per {item}, not {distance.shape} and {label.shape}")
    if np.isnan(distance).any():
        raise ValueError("a distance is not a number")
    return distance, label
