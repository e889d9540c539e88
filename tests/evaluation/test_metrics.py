"""Exact Average Precision: the textbook without ties, the mean over all orders with them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from doap.evaluation.metrics import average_precision


def by_definition(relevant: list[bool], positives: int) -> float:
    """Mean, over the right items, of the precision at the rank of each."""
    hits, total = 0, 0.0
    for rank, right in enumerate(relevant, 1):
        if right:
            hits += 1
            total += hits / rank
    return total / positives


@given(st.lists(st.booleans(), min_size=1, max_size=40).filter(any), st.randoms(use_true_random=False))
def test_equals_scikit_learn_without_ties(relevant: list[bool], random) -> None:  # type: ignore[no-untyped-def]
    distances = random.sample(range(1000), len(relevant))
    expected = average_precision_score(relevant, [-distance for distance in distances])
    assert average_precision(distances, relevant) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6))
def test_ties_are_the_mean_over_all_orders(items: list[tuple[int, bool]]) -> None:
    positives = sum(right for _, right in items)
    if not positives:
        assert average_precision(*zip(*items, strict=True)) == 0
        return
    values = [
        by_definition([right for _, right in order], positives)
        for order in itertools.permutations(items)
        if all(a[0] <= b[0] for a, b in itertools.pairwise(order))
    ]
    distances, relevant = zip(*items, strict=True)
    assert average_precision(distances, relevant) == pytest.approx(np.mean(values), abs=1e-12)


def test_a_constant_descriptor_gains_nothing() -> None:
    relevant = np.arange(1000) < 100
    assert average_precision(np.ones(1000), relevant) < 0.12
    assert average_precision(np.where(relevant, 0, 1), relevant) == 1


def test_what_was_never_retrieved_counts() -> None:
    assert average_precision([0.1, 0.2], [True, False], positives=4) == 0.25
    assert average_precision([], []) == 0
    assert average_precision([1.0], [False], positives=3) == 0


def test_refuses_what_is_no_list() -> None:
    with pytest.raises(ValueError, match="one distance and one verdict"):
        average_precision([1, 2], [True])
    with pytest.raises(ValueError, match="not a number"):
        average_precision([1, float("nan")], [True, False])
    with pytest.raises(ValueError, match="more than the 1 said to exist"):
        average_precision([1, 2], [True, True], positives=1)
