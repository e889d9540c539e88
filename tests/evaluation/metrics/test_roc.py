"""The curve against every threshold tried by hand, and its area against scikit-learn's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from doap.evaluation.metrics.official import official_roc_area
from doap.evaluation.metrics.roc import recalls_at, roc, roc_area


def some_pairs(seed: int, values: int) -> tuple[np.ndarray, np.ndarray]:
    """Return distances of few different values, so that most are ties."""
    random = np.random.default_rng(seed)
    same = random.random(60) < 0.4
    same[:2] = True, False
    return random.integers(0, values, 60) + 2.0 * ~same, same


@pytest.mark.parametrize("values", [1, 3, 8, 10_000])
@pytest.mark.parametrize("seed", range(4))
def test_every_threshold_is_a_point(seed: int, values: int) -> None:
    distances, same = some_pairs(seed, values)
    rates, recalls = roc(distances, same)
    thresholds = [-1.0, *sorted(set(distances.tolist()))]
    expected = [((distances[~same] <= t).mean(), (distances[same] <= t).mean()) for t in thresholds]
    np.testing.assert_allclose(np.stack([rates, recalls], 1), expected, atol=1e-15)
    assert roc_area(rates, recalls) == pytest.approx(roc_auc_score(same, -distances), abs=1e-12)


@pytest.mark.parametrize("values", [3, 10_000])
def test_the_recall_at_a_rate_is_the_best_within_it(values: int) -> None:
    distances, same = some_pairs(0, values)
    max_rates = np.array([0.0, 0.01, 0.2, 0.5, 1.0])
    actual = recalls_at(*roc(distances, same), max_rates)
    for rate, recall in zip(max_rates, actual, strict=True):
        passing = [t for t in [-1.0, *distances] if (distances[~same] <= t).mean() <= rate]
        assert recall == max((distances[same] <= t).mean() for t in passing)


def test_a_descriptor_that_maps_all_to_one_point_is_worth_nothing() -> None:
    rates, recalls = roc(np.zeros(10), np.arange(10) < 5)
    assert (rates.tolist(), recalls.tolist()) == ([0, 1], [0, 1])
    assert roc_area(rates, recalls) == 0.5
    assert recalls_at(rates, recalls, np.array([0.5])).tolist() == [0]


@pytest.mark.parametrize("levels", [(5e-324, 1e-323, 1.5e-323), (-np.inf, 0.0, np.inf), (1e308, 1.7e308, np.inf)])
def test_only_the_order_of_distances_matters(levels: tuple[float, ...]) -> None:
    ranks, same = np.random.default_rng(0).integers(0, 3, 40), np.arange(40) < 15
    actual, expected = roc(np.array(levels)[ranks], same), roc(ranks.astype(np.float64), same)
    np.testing.assert_array_equal(actual, expected)
    assert official_roc_area(np.array(levels)[ranks], same) == official_roc_area(ranks, same)


@pytest.mark.parametrize("measure", [roc, official_roc_area])
@pytest.mark.parametrize(
    ("distances", "same", "message"),
    [
        ([], [], "needs pairs that match and pairs that do not"),
        ([1.0, 2.0], [True, True], "needs pairs that match and pairs that do not"),
        ([1.0, np.nan], [True, False], "not a number"),
        ([1.0, 2.0], [True], "one distance and one label per pair"),
    ],
)
def test_refuses_what_is_no_test(
    measure: Callable[[Any, Any], object], distances: list[float], same: list[bool], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        measure(np.array(distances), np.array(same, bool))
