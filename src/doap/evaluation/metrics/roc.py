"""The ROC curve of a threshold on the distance."""

import numpy as np
from numpy.typing import NDArray

from doap.evaluation.metrics.average_precision import check_pairs

Rates = NDArray[np.float64]


def roc(distances: NDArray[np.float64], same: NDArray[np.bool_]) -> tuple[Rates, Rates]:
    """Compute false positive rate and recall at every threshold; pairs at equal distance pass together.

    Args:
        distances: (N,) distances of the pairs.
        same: (N,) bool, which pairs match; both kinds must occur.

    Returns:
        (T,) rates and (T,) recalls, both increasing from 0 to 1.

    Raises:
        ValueError: If a distance is NaN, or one of the kinds does not occur.
    """
    distances, same = check_pairs(distances, same)
    order = np.argsort(distances, kind="stable")
    ordered = distances[order]
    last_of_tie = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(order) - 1)
    matching = np.cumsum(same[order])[last_of_tie]
    others = last_of_tie + 1 - matching
    return np.insert(others / others[-1], 0, 0.0), np.insert(matching / matching[-1], 0, 0.0)


def roc_area(rates: Rates, recalls: Rates) -> float:
    """Compute the area under the curve: how often a matching pair is nearer than another one, ties counting half."""
    return float((np.diff(rates) * (recalls[1:] + recalls[:-1]) / 2).sum())


def recalls_at(rates: Rates, recalls: Rates, max_rates: Rates) -> Rates:
    """Return the best recall at a false positive rate of at most each of the (K,) `max_rates`."""
    return recalls[np.searchsorted(rates, max_rates, side="right") - 1]
