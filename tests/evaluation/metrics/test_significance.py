from itertools import product

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

from doap.evaluation.harness.result import Score
from doap.evaluation.metrics import significance
from doap.evaluation.metrics.significance import clusters_of, compare, mean_interval, sign_flip_test, summarise


def interval(values: ArrayLike, clusters: list[str]) -> tuple[float, float]:
    """Return the interval of a mean that has one."""
    low, high = mean_interval(values, clusters)
    assert low is not None
    assert high is not None
    return low, high


def test_the_interval_is_that_of_all_resamples_of_clusters() -> None:
    """Three clusters of unequal size can be sampled in 27 ways; their means have these percentiles."""
    values, clusters = [1, 2, 3, 10, 20, 7], ["a", "a", "a", "b", "b", "c"]
    values_of = {"a": [1, 2, 3], "b": [10, 20], "c": [7]}
    means = [np.mean([v for name in sample for v in values_of[name]]) for sample in product("abc", repeat=3)]
    expected = np.percentile(means, [2.5, 97.5], method="inverted_cdf")  # of all 27 possible samples
    np.testing.assert_allclose(interval(values, clusters), expected)


def test_the_interval_of_single_values_is_scipys() -> None:
    values = np.random.default_rng(0).gamma(2, 10, 40)
    actual = interval(values, [str(k) for k in range(40)])
    expected = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(1)
    ).confidence_interval
    np.testing.assert_allclose(actual, expected, atol=0.25)


def test_values_that_move_together_are_less_sure() -> None:
    values = np.repeat(np.random.default_rng(0).normal(size=8), 5)
    together = interval(values, [f"{k // 5}" for k in range(40)])
    apart = interval(values, [f"{k}" for k in range(40)])
    assert together[1] - together[0] > 1.7 * (apart[1] - apart[0])


@pytest.mark.parametrize("seed", range(4))
def test_p_is_the_share_of_all_signs(seed: int) -> None:
    """Whole numbers, so that many sums tie."""
    random = np.random.default_rng(seed)
    values, clusters = random.integers(-2, 4, 15), [f"{k % 6}" for k in range(15)]
    sums = [sum(v for v, c in zip(values, clusters, strict=True) if c == f"{k}") for k in range(6)]
    reached = [abs(sum(s * v for s, v in zip(signs, sums, strict=True))) for signs in product((1, -1), repeat=6)]
    assert sign_flip_test(values, clusters) == np.mean([r >= abs(sum(sums)) for r in reached])


def test_p_of_single_pairs_is_scipys() -> None:
    random = np.random.default_rng(3)
    a, b = random.normal(0.5, 1, 10), random.normal(0, 1, 10)
    expected = stats.permutation_test((a, b), lambda x, y: np.mean(x - y), permutation_type="samples").pvalue
    assert sign_flip_test(a - b, [str(k) for k in range(10)]) == pytest.approx(expected)


def test_random_signs_come_close_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    values, clusters = np.random.default_rng(1).normal(0.3, 1, 14), [str(k) for k in range(14)]
    exact = sign_flip_test(values, clusters)
    monkeypatch.setattr(significance, "EXACT", 5)
    assert sign_flip_test(values, clusters) == pytest.approx(exact, abs=0.02)
    assert sign_flip_test(np.ones(40), [str(k) for k in range(40)]) == pytest.approx(1 / 10_001)


def test_equal_descriptors_do_not_differ() -> None:
    assert sign_flip_test(np.zeros(9), list("aaabbbccc")) == 1
    assert sign_flip_test([0.1, 0.2, -0.3], list("abc")) == 1  # the sum is 0 but for rounding


def test_chance_rejects_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    names = [f"{k // 3}" for k in range(24)]
    shared = [np.repeat(random.normal(size=8), 3) + 0.3 * random.normal(size=24) for _ in range(300)]
    assert np.mean([sign_flip_test(values, names) < 0.05 for values in shared]) < 0.09


def test_one_cluster_has_no_interval() -> None:
    assert mean_interval([1, 2, 3], ["a"] * 3) == (None, None)
    (row,) = summarise(rows(("x", "s", "1", 10, 5)), ["ap"])
    assert (row["ap"], row["ap low"], row["ap high"]) == (10, None, None)


def test_values_and_clusters_belong_together() -> None:
    for count in (0, 1):
        with pytest.raises(ValueError, match="one cluster per value"):
            mean_interval([1.0] * count, [])


def rows(*of: tuple[str, str, str, float | None, float]) -> list[Score]:
    return [dict(zip(("descriptor", "sequence", "pair", "ap", "inliers"), row, strict=True)) for row in of]


SCORES = rows(
    ("x", "s", "1", 10, 5), ("y", "s", "1", 30, 5), ("x", "t", "1", None, 7), ("y", "t", "1", None, 9),
    ("x", "t", "2", 20, 6), ("y", "t", "2", 60, 1),
)  # fmt: skip


def test_means_are_over_pairs_that_have_a_value_best_first() -> None:
    best, other = summarise(SCORES, ["ap", "inliers"])
    assert (best["descriptor"], best["ap"], best["inliers"]) == ("y", 45, 5)
    assert (other["descriptor"], other["ap"], other["inliers"]) == ("x", 15, 6)
    assert best["ap low"] == 30
    assert best["ap high"] == 60
    nothing = summarise([{**row, "ap": None} for row in SCORES], ["ap", "inliers"])
    assert [(row["descriptor"], row["ap"], row["ap low"]) for row in nothing] == [("x", None, None), ("y", None, None)]


def test_each_two_are_compared_pair_by_pair() -> None:
    (ap, inliers) = compare(SCORES, ["ap", "inliers"])
    assert (ap["measure"], ap["a"], ap["b"], ap["a - b"], ap["pairs"], ap["clusters"]) == ("ap", "x", "y", -30, 2, 2)
    assert ap["p"] == 0.5  # of four ways to flip two sequences, two are as far from zero
    assert (inliers["a - b"], inliers["pairs"], inliers["clusters"]) == (1, 3, 2)
    assert compare([{**row, "ap": None} for row in SCORES], ["ap"]) == []


def test_sequences_are_resampled_and_pairs_where_there_is_one_sequence() -> None:
    assert clusters_of(SCORES) == ["s", "s", "t", "t", "t", "t"]
    assert clusters_of(SCORES[2:]) == ["1", "1", "2", "2"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    """A comparison with NaN is false, and p would be 0."""
    for function in (mean_interval, sign_flip_test):
        with pytest.raises(ValueError, match="NaN or infinite"):
            function([0.5, value], ["a", "b"])


@pytest.mark.parametrize("count", [9, 40])
def test_the_resamples_are_the_same_for_all_tests_and_made_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    scores: list[Score] = [
        {"descriptor": name, "sequence": f"{k:02}", "pair": "", "ap": float(random.random())}
        for k in range(count)
        for name in ("a", "b", "c", "d")
    ]
    expected = [sums_of_resamples([float(row["ap"] or 0) for row in scores if row["descriptor"] == n]) for n in "abcd"]
    made: list[int] = []
    default_rng = np.random.default_rng

    def counted(seed: int) -> np.random.Generator:
        made.append(seed)
        return default_rng(seed)

    monkeypatch.setattr(np.random, "default_rng", counted)
    for cached in (significance._resample, significance._sample_signs):
        cached.cache_clear()
    rows = summarise(scores, ["ap"])
    compare(scores, ["ap"])
    assert len(made) == (1 if count <= significance.EXACT else 2)
    for row in rows:
        own = expected["abcd".index(str(row["descriptor"]))]
        ends = [float(row[end] or 0) for end in ("ap low", "ap high")]
        np.testing.assert_allclose(ends, np.percentile(own, [2.5, 97.5]))


def sums_of_resamples(values: list[float]) -> list[float]:
    """Return the means of the resamples of single values, drawn one by one."""
    samples = np.random.default_rng(0).integers(0, len(values), (significance.RESAMPLES, len(values)))
    return [float(np.mean([values[k] for k in sample])) for sample in samples]
