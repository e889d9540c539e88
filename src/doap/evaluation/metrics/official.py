"""The metrics of the official Python code of HPatches, with its treatment of ties and its trapezoid rule.

The exact metrics are in `average_precision` and `roc`.
"""

import numpy as np
from numpy.typing import NDArray

from doap.evaluation.metrics.average_precision import check_list, check_pairs


def official_average_precision(
    distances: NDArray[np.generic], relevant: NDArray[np.bool_], positives: int | None = None
) -> float:
    """Compute the area under the precision-recall curve by the trapezoid rule, from the point (recall 0, precision 1).

    Items at equal distance stay in the given order. Recall increases only at relevant items, so that with the j-th of
    them at rank r_j

        AP = 1/P Σ_j [(j-1)/(r_j-1) + j/r_j] / 2,    where 0/0 is 1.

    Args:
        distances: (N,), smaller ranks first.
        relevant: (N,) bool.
        positives: P, if some were never retrieved; by default the number of relevant items in the list.
    """
    check_list("item", distances, relevant)
    rank = 1 + np.flatnonzero(relevant[np.argsort(distances, kind="stable")])
    count = np.arange(1, len(rank) + 1)
    total = len(rank) if positives is None else positives
    return float(step_precision(count, rank).sum() / max(total, 1))


def step_precision(count: NDArray[np.integer], rank: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the mean of the precision at a relevant item and just before it.

    Args:
        count: j, the number of relevant items up to and including this one.
        rank: Rank of the item, from 1; of the same shape.
    """
    is_first = rank == 1
    before = np.where(is_first, 1, (count - 1) / np.where(is_first, 1, rank - 1))
    return np.asarray((before + count / rank) / 2)


def official_roc_area(distances: NDArray[np.generic], relevant: NDArray[np.bool_]) -> float:
    """Compute the area under the ROC curve that adds one item after the other.

    Items at equal distance stay in the given order, and the curve adds them in that order.

    Args:
        distances: (N,), smaller ranks first.
        relevant: (N,) bool; both values must occur.
    """
    check_pairs(distances, relevant)
    ordered = relevant[np.argsort(distances, kind="stable")]
    count = np.cumsum(ordered)
    return float(count[~ordered].sum() / (float(count[-1]) * (len(ordered) - count[-1])))
