"""The trade between false positives and recall as the threshold on the distance grows."""

import numpy as np
from numpy.typing import NDArray

Rates = NDArray[np.float64]


def roc(distances: NDArray[np.float64], same: NDArray[np.bool_]) -> tuple[Rates, Rates]:
    """False positive rate and recall at every threshold; pairs at equal distance pass together.

    Args:
        distances: (N,) of the pairs.
        same: (N,) bool, which pairs match; some do, and some do not.

    Returns:
        (T,) rates and (T,) recalls, both growing from 0 to 1.
    """
    order = np.argsort(distances, kind="stable")
    last_of_tie = np.append(np.flatnonzero(np.diff(distances[order])), len(order) - 1)
    right = np.cumsum(same[order])[last_of_tie]
    wrong = last_of_tie + 1 - right
    return np.insert(wrong / wrong[-1], 0, 0.0), np.insert(right / right[-1], 0, 0.0)


def roc_area(rates: Rates, recalls: Rates) -> float:
    """Area under the curve: how often a matching pair is nearer than another one, ties counting half."""
    return float((np.diff(rates) * (recalls[1:] + recalls[:-1]) / 2).sum())


def recalls_at(rates: Rates, recalls: Rates, wanted: Rates) -> Rates:
    """The best recall at a false positive rate of at most each of (K,) wanted ones."""
    return recalls[np.searchsorted(rates, wanted, side="right") - 1]
