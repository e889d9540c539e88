"""The two metrics of the official Python code of HPatches, ties and trapezoids and all; beside them, see `metrics`."""

import numpy as np
from numpy.typing import NDArray


def official_average_precision(
    distances: NDArray[np.generic], right: NDArray[np.bool_], positives: int | None = None
) -> float:
    """The area under the precision-recall curve by the trapezoid rule, from the point (recall 0, precision 1).

    Equally far items stay in the order in which they are given. Recall grows at right items alone, so that with the
    j-th of them at rank r_j

        AP = 1/P Σ_j [(j-1)/(r_j-1) + j/r_j] / 2,    where 0/0 is 1.

    Args:
        distances: (N,), smaller ranks first.
        right: (N,) bool.
        positives: P, if some were never retrieved; by default the right items of the list.
    """
    rank = 1 + np.flatnonzero(right[np.argsort(distances, kind="stable")])
    found = np.arange(1, len(rank) + 1)
    total = len(rank) if positives is None else positives
    return float(step_precision(found, rank).sum() / max(total, 1))


def step_precision(found: NDArray[np.integer], rank: NDArray[np.integer]) -> NDArray[np.float64]:
    """The mean of the precision at a right item and just before it.

    Args:
        found: j, how many right items there are up to this one, itself among them.
        rank: of the item, from 1; of the same shape.
    """
    first = rank == 1
    before = np.where(first, 1, (found - 1) / np.where(first, 1, rank - 1))
    return np.asarray((before + found / rank) / 2)


def official_roc_area(distances: NDArray[np.generic], right: NDArray[np.bool_]) -> float:
    """The area under the ROC curve that takes one item after the other.

    Equally far items stay in the order in which they are given, as the curve then takes them.

    Args:
        distances: (N,), smaller ranks first.
        right: (N,) bool; some are, and some are not.
    """
    ordered = right[np.argsort(distances, kind="stable")]
    found = np.cumsum(ordered)
    return float(found[~ordered].sum() / (float(found[-1]) * (len(ordered) - found[-1])))
