"""How sure a difference is: intervals by resampling, and a paired test by flipping signs.

Pairs of images of one sequence show the same scene and go up and down together. What is resampled or flipped is
therefore the sequence, as a whole; the pairs themselves only where there is one sequence.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap.evaluation.harness.result import Score

RESAMPLES = 10_000
LEVEL = 95  # percent
EXACT = 16  # up to 65,536 ways to flip are all tried
RULE = (
    f"sequences, or pairs where there is one sequence, are resampled {RESAMPLES:,} times for {LEVEL} % intervals, and "
    "flipped for two-sided p-values, which are not corrected for their number"
)
TOLERANCE = 1e-9  # relative; sums of the same numbers in another order are equal


def mean_interval(values: ArrayLike, clusters: Sequence[str], seed: int = 0) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of a mean by bootstrap: clusters are drawn with replacement, 10,000 times.

    One cluster says nothing of how much others would differ: it has no interval.

    Args:
        values: (N,), at least one.
        clusters: (N,) which values belong together.
        seed: of the drawing.
    """
    sums, counts = _by_cluster(np.asarray(values, np.float64), clusters)
    if len(sums) == 1:
        return None, None
    draws = np.random.default_rng(seed).integers(0, len(sums), (RESAMPLES, len(sums)))
    means = sums[draws].sum(1) / counts[draws].sum(1)
    low, high = np.percentile(means, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)


def sign_flip_test(differences: ArrayLike, clusters: Sequence[str], seed: int = 0) -> float:
    """Two-sided p-value of paired differences: how often chance alone makes the mean as far from zero.

    If two descriptors are equally good, the sign of each cluster's difference is a coin's. All 2ⁿ signs are tried for
    up to 16 clusters, otherwise 10,000 random ones.

    Args:
        differences: (N,) of the pairs of values.
        clusters: (N,) which belong together; all of one change sign together.
        seed: of the random signs.
    """
    sums, _ = _by_cluster(np.asarray(differences, np.float64), clusters)
    count = len(sums)
    reached = abs(sums.sum()) - TOLERANCE * np.abs(sums).sum()
    if count <= EXACT:
        signs = 1 - 2 * (np.arange(1 << count)[:, None] >> np.arange(count) & 1)
        return float((np.abs(signs @ sums) >= reached).mean())
    signs = 1 - 2 * np.random.default_rng(seed).integers(0, 2, (RESAMPLES, count))
    # The signs that were observed are one of the random ones, so that p is never 0.
    return float((1 + (np.abs(signs @ sums) >= reached).sum()) / (1 + RESAMPLES))


def clusters_of(scores: Sequence[Score]) -> list[str]:
    """What is resampled as a whole, a name a row: the sequences, or the pairs if all are of one sequence."""
    sequences = [str(row["sequence"]) for row in scores]
    return sequences if len(set(sequences)) > 1 else [str(row["pair"]) for row in scores]


def summarise(scores: Sequence[Score], columns: Sequence[str]) -> list[Score]:
    """A row a descriptor, best first by the first column that has values: means over pairs, with their intervals.

    Returns:
        Rows with the keys "descriptor" and for each column its name, "… low" and "… high"; None where no pair has a
        value.
    """
    rows: list[Score] = []
    for name in dict.fromkeys(str(row["descriptor"]) for row in scores):
        summary: Score = {"descriptor": name}
        for column in columns:
            own = [row for row in scores if row["descriptor"] == name and row[column] is not None]
            values = _values(own, column)
            low, high = mean_interval(values, clusters_of(own)) if own else (None, None)
            summary |= {column: float(values.mean()) if own else None, f"{column} low": low, f"{column} high": high}
        rows.append(summary)
    leading = next((column for column in columns if any(row[column] is not None for row in rows)), columns[0])
    return sorted(rows, key=lambda row: -float(row[leading] or 0))


def compare(scores: Sequence[Score], columns: Sequence[str]) -> list[Score]:
    """Every two descriptors on every column, on the pairs where both have a value: the mean of a minus b, with p.

    The p-values are of single tests, not corrected for their number.
    """
    names = list(dict.fromkeys(str(row["descriptor"]) for row in scores))
    rows: list[Score] = []
    for column in columns:
        for a, b in combinations(names, 2):
            kept = [
                (one, other)
                for one, other in zip(*(_of(scores, name) for name in (a, b)), strict=True)
                if one[column] is not None and other[column] is not None
            ]
            if not kept:
                continue
            clusters = clusters_of([one for one, _ in kept])
            apart = _values([one for one, _ in kept], column) - _values([other for _, other in kept], column)
            low, high = mean_interval(apart, clusters)
            rows.append(
                {
                    "measure": column,
                    "a": a,
                    "b": b,
                    "a - b": float(apart.mean()),
                    "low": low,
                    "high": high,
                    "p": sign_flip_test(apart, clusters),
                    "pairs": len(apart),
                    "clusters": len(set(clusters)),
                }
            )
    return rows


def _of(scores: Sequence[Score], name: str) -> list[Score]:
    return [row for row in scores if row["descriptor"] == name]


def _values(rows: Sequence[Score], column: str) -> NDArray[np.float64]:
    return np.array([row[column] for row in rows], np.float64)


def _by_cluster(values: NDArray[np.float64], clusters: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sum and count of each cluster's values."""
    if len(values) != len(clusters) or not len(values):
        raise ValueError(f"a cluster a value, and at least one; not {len(clusters)} and {len(values)}")
    _, place = np.unique(np.asarray(clusters), return_inverse=True)
    return np.bincount(place, weights=values).astype(np.float64), np.bincount(place).astype(np.int64)
