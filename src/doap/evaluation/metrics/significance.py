"""Significance of differences: bootstrap intervals of means, and a paired test by sign flips.

Image pairs of one sequence show the same scene and are not independent. Whole sequences are therefore resampled or
flipped, and single pairs only if there is one sequence.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from doap.evaluation.harness.result import Score

RESAMPLES = 10_000
LEVEL = 95  # percent
EXACT = 16  # clusters up to which all 2ⁿ sign flips, 65,536, are tried
RULE = (
    f"sequences, or pairs where there is one sequence, are resampled {RESAMPLES:,} times for {LEVEL} % intervals, and "
    "flipped for two-sided p-values, which are not corrected for their number"
)
TOLERANCE = 1e-9  # relative; sums of the same numbers in another order are equal


def mean_interval(values: ArrayLike, clusters: Sequence[str], seed: int = 0) -> tuple[float, float] | tuple[None, None]:
    """Compute the 95 % bootstrap interval of a mean: clusters are resampled with replacement, 10,000 times.

    A single cluster has no interval, since it does not show how much others would differ.

    Args:
        values: (N,), at least one.
        clusters: (N,) cluster of each value.
        seed: Seed of the resampling.
    """
    sums, counts = _by_cluster(np.asarray(values, np.float64), clusters)
    if len(sums) == 1:
        return None, None
    totals, sizes = (_resample(len(sums), seed) @ np.stack([sums, counts], 1)).T
    means = totals / sizes
    low, high = np.percentile(means, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)


def sign_flip_test(differences: ArrayLike, clusters: Sequence[str], seed: int = 0) -> float:
    """Compute the two-sided p-value of paired differences: how often chance moves the mean as far from zero.

    If two descriptors are equally good, the difference of each cluster is positive or negative with equal probability.
    All 2ⁿ signs are tried for up to 16 clusters, otherwise 10,000 random ones.

    Args:
        differences: (N,) differences of the paired values.
        clusters: (N,) cluster of each; all of one cluster change sign together.
        seed: Seed of the random signs.
    """
    sums, _ = _by_cluster(np.asarray(differences, np.float64), clusters)
    count = len(sums)
    observed = abs(sums.sum()) - TOLERANCE * np.abs(sums).sum()
    reached = np.abs((_all_signs(count) if count <= EXACT else _sample_signs(count, seed)) @ sums) >= observed
    if count <= EXACT:
        return float(reached.mean())
    # The observed signs count as one of the random ones, so that p is never 0.
    return float((1 + reached.sum()) / (1 + RESAMPLES))


def clusters_of(scores: Sequence[Score]) -> list[str]:
    """Return the cluster of each row: its sequence, or its pair if all rows are of one sequence."""
    sequences = [str(row["sequence"]) for row in scores]
    return sequences if len(set(sequences)) > 1 else [str(row["pair"]) for row in scores]


def summarise(scores: Sequence[Score], columns: Sequence[str]) -> list[Score]:
    """Average scores over pairs, one row per descriptor, best first by the first column that has values.

    Returns:
        Rows with the key "descriptor" and for each column its name, "… low" and "… high"; None if no pair has a value.
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
    """Test every two descriptors on every column, on the pairs where both have a value.

    Returns:
        Rows with the mean of a - b, its interval, and p. The p-values are of single tests, not corrected for their
        number.
    """
    names = list(dict.fromkeys(str(row["descriptor"]) for row in scores))
    return [
        row
        for column in columns
        for a, b in combinations(names, 2)
        if (row := _compare_two(scores, column, a, b)) is not None
    ]


def _compare_two(scores: Sequence[Score], column: str, a: str, b: str) -> Score | None:
    """Return the row of two descriptors, or None if they have no pair in common."""
    both = [
        (row_a, row_b)
        for row_a, row_b in zip(*([row for row in scores if row["descriptor"] == n] for n in (a, b)), strict=True)
        if row_a[column] is not None and row_b[column] is not None
    ]
    if not both:
        return None
    rows_a, rows_b = [row for row, _ in both], [row for _, row in both]
    clusters = clusters_of(rows_a)
    differences = _values(rows_a, column) - _values(rows_b, column)
    low, high = mean_interval(differences, clusters)
    return {
        "measure": column,
        "a": a,
        "b": b,
        "a - b": float(differences.mean()),
        "low": low,
        "high": high,
        "p": sign_flip_test(differences, clusters),
        "pairs": len(differences),
        "clusters": len(set(clusters)),
    }


# The same for all descriptors and measures of a result.
@lru_cache(1)
def _resample(clusters: int, seed: int) -> NDArray[np.uint16]:
    """Return how often each resample, (10,000, clusters), has each cluster."""
    samples = np.random.default_rng(seed).integers(0, clusters, (RESAMPLES, clusters))
    samples += clusters * np.arange(RESAMPLES)[:, None]
    return np.bincount(samples.ravel(), minlength=samples.size).reshape(samples.shape).astype(np.uint16)


@lru_cache(1)
def _all_signs(clusters: int) -> NDArray[np.int8]:
    """Return all signs of clusters, (2ⁿ, clusters)."""
    return (1 - 2 * (np.arange(1 << clusters)[:, None] >> np.arange(clusters) & 1)).astype(np.int8)


@lru_cache(1)
def _sample_signs(clusters: int, seed: int) -> NDArray[np.int8]:
    """Return random signs of clusters, (10,000, clusters)."""
    return (1 - 2 * np.random.default_rng(seed).integers(0, 2, (RESAMPLES, clusters))).astype(np.int8)


def _values(rows: Sequence[Score], column: str) -> NDArray[np.float64]:
    return np.array([row[column] for row in rows], np.float64)


def _by_cluster(values: NDArray[np.float64], clusters: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the sum and the number of each cluster's values."""
    if len(values) != len(clusters) or not len(values):
        raise ValueError(f"needs one cluster per value, and at least one; not {len(clusters)} and {len(values)}")
    if not np.isfinite(values).all():
        raise ValueError("a value is NaN or infinite")
    _, index = np.unique(np.asarray(clusters), return_inverse=True)
    return np.bincount(index, weights=values).astype(np.float64), np.bincount(index).astype(np.int64)
