"""Exact metrics against the textbook, with ties and without."""

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from doap.evaluation.metrics.average_precision import average_precision, false_positive_rate_at_recall


def by_definition(relevant: list[bool], positives: int) -> float:
    """Compute the mean, over the relevant items, of the precision at the rank of each."""
    hits, total = 0, 0.0
    for rank, is_relevant in enumerate(relevant, 1):
        if is_relevant:
            hits += 1
            total += hits / rank
    return total / positives


@given(st.lists(st.booleans(), min_size=1, max_size=40).filter(any), st.randoms(use_true_random=False))
def test_equals_scikit_learn_without_ties(relevant: list[bool], random: Random) -> None:
    distances = random.sample(range(1000), len(relevant))
    expected = average_precision_score(relevant, [-distance for distance in distances])
    assert average_precision(distances, relevant) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6))
def test_ties_are_the_mean_over_all_orders(items: list[tuple[int, bool]]) -> None:
    distances, relevant = zip(*items, strict=True)
    positives = sum(relevant)
    if not positives:
        assert average_precision(distances, relevant) == 0
        return
    values = [
        by_definition([is_relevant for _, is_relevant in order], positives)
        for order in itertools.permutations(items)
        if all(a[0] <= b[0] for a, b in itertools.pairwise(order))
    ]
    assert average_precision(distances, relevant) == pytest.approx(np.mean(values), abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 0.25, 0.5, 1])), min_size=1, max_size=5))
def test_probabilities_give_the_mean_over_all_outcomes(items: list[tuple[int, float]]) -> None:
    distances, probabilities = zip(*items, strict=True)
    expected = 0.0
    for outcome in itertools.product([False, True], repeat=len(items)):
        weight = np.prod([p if hit else 1 - p for p, hit in zip(probabilities, outcome, strict=True)])
        expected += weight * average_precision(distances, outcome, positives=7)
    assert average_precision(distances, probabilities, positives=7) == pytest.approx(expected, abs=1e-12)


def test_a_constant_descriptor_gains_nothing() -> None:
    relevant = np.arange(1000) < 100
    assert average_precision(np.ones(1000), relevant) < 0.12
    assert average_precision(np.where(relevant, 0, 1), relevant) == 1


def test_what_was_never_retrieved_counts() -> None:
    assert average_precision([0.1, 0.2], [True, False], positives=4) == 0.25
    assert average_precision([], []) == 0
    assert average_precision([1.0], [False], positives=3) == 0


def test_refuses_what_is_no_list() -> None:
    with pytest.raises(ValueError, match="one distance and one label per"):
        average_precision([1, 2], [True])
    with pytest.raises(ValueError, match="not a number"):
        average_precision([1, float("nan")], [True, False])
    with pytest.raises(ValueError, match="more than positives=1"):
        average_precision([1, 2], [True, True], positives=1)
    for probability in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"relevant must be in 0\.\.1"):
            average_precision([1, 2], [1.0, probability])


@pytest.mark.parametrize("levels", [(5e-324, 1e-323, 1.5e-323), (-np.inf, 0.0, np.inf), (1e308, 1.7e308, np.inf)])
def test_only_the_order_of_distances_matters(levels: tuple[float, ...]) -> None:
    random = np.random.default_rng(0)
    ranks, relevant = random.integers(0, 3, 40), random.random(40) < 0.3
    distances = np.array(levels)[ranks]
    assert average_precision(distances, relevant) == average_precision(ranks, relevant)
    assert false_positive_rate_at_recall(distances, relevant) == false_positive_rate_at_recall(ranks, relevant)
    assert average_precision(np.where(distances == 0, -0.0, distances), relevant) == average_precision(ranks, relevant)


def try_every_threshold(distances: list[float], same: list[bool], recall: float) -> float:
    """Return the rate at the smallest threshold that reaches the recall."""
    matching = [distance for distance, match in zip(distances, same, strict=True) if match]
    others = [distance for distance, match in zip(distances, same, strict=True) if not match]
    for threshold in sorted(distances):
        if sum(distance <= threshold for distance in matching) / len(matching) >= recall:
            return sum(distance <= threshold for distance in others) / len(others)
    raise AssertionError


@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=80).filter(
        lambda items: 0 < sum(match for _, match in items) < len(items)
    ),
    st.sampled_from([0.05, 0.5, 0.8, 0.95, 1.0]),
)
def test_false_positives_are_those_of_the_best_threshold(items: list[tuple[int, bool]], recall: float) -> None:
    distances, same = zip(*items, strict=True)
    expected = try_every_threshold(list(distances), list(same), recall)
    assert false_positive_rate_at_recall(distances, same, recall) == expected


def test_false_positives_by_hand() -> None:
    # Of 20 matches at 1..20, 95 % are the 19 up to 19; of the five others, 18.5 and 19 pass, 19.01 does not.
    distances = [*range(1, 21), 18.5, 19, 19.01, 20, 50]
    same = [True] * 20 + [False] * 5
    assert false_positive_rate_at_recall(distances, same) == 2 / 5
    assert false_positive_rate_at_recall(distances, same, recall=1) == 4 / 5
    # 57 of 60 are exactly 95 %, whatever 0.95 * 60 rounds to.
    assert false_positive_rate_at_recall([*range(60), 56.5], [True] * 60 + [False]) == 0
    # Two of two: 95 % of two matches are both.
    assert false_positive_rate_at_recall([0, 9, 8], [True, True, False]) == 1


def test_ties_gain_no_true_negative() -> None:
    assert false_positive_rate_at_recall(np.zeros(10), np.arange(10) < 5) == 1
    assert false_positive_rate_at_recall([0, 0, 1, 1, 1], [True, True, True, False, False], recall=0.6) == 0
    assert false_positive_rate_at_recall([0, 0, 1, 1, 1], [True, True, True, False, False]) == 1


@pytest.mark.parametrize(
    ("distances", "same", "recall", "message"),
    [
        ([1, 2], [True], 0.95, "one distance and one label per"),
        ([1, float("nan")], [True, False], 0.95, "not a number"),
        ([1, 2], [True, True], 0.95, "pairs that do not"),
        ([1, 2], [False, False], 0.95, "pairs that match"),
        ([1, 2], [True, False], 0.0, r"recall must be in \(0, 1\]"),
        ([1, 2], [True, False], 95.0, r"recall must be in \(0, 1\]"),
    ],
)
def test_refuses_what_is_no_test(distances: list[float], same: list[bool], recall: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        false_positive_rate_at_recall(distances, same, recall)
