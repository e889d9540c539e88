"""The official arithmetic against curves drawn point by point."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doap.evaluation.metrics.official import official_average_precision, official_roc_area
from support.slow_hpatches import slow_precision, slow_roc

ITEMS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40).filter(
    lambda items: 0 < sum(relevant for _, relevant in items) < len(items)
)


@given(ITEMS, st.integers(0, 5))
def test_precision_is_the_area_under_the_curve(items: list[tuple[int, bool]], never_found: int) -> None:
    far, relevant = (np.array(column) for column in zip(*items, strict=True))
    assert official_average_precision(far, relevant) == pytest.approx(
        slow_precision(far.tolist(), relevant.tolist()), abs=1e-12
    )
    positives = int(relevant.sum()) + never_found
    expected = slow_precision(far.tolist(), relevant.tolist(), positives)
    assert official_average_precision(far, relevant, positives) == pytest.approx(expected, abs=1e-12)


@given(ITEMS)
def test_roc_is_the_area_under_the_curve(items: list[tuple[int, bool]]) -> None:
    far, relevant = (np.array(column) for column in zip(*items, strict=True))
    assert official_roc_area(far, relevant) == pytest.approx(slow_roc(far.tolist(), relevant.tolist()), abs=1e-12)


def test_by_hand() -> None:
    # Relevant at ranks 1 and 3 of 3: [(1 + 1)/2 + (1/2 + 2/3)/2] / 2.
    far, relevant = np.array([1, 2, 3]), np.array([True, False, True])
    assert official_average_precision(far, relevant) == pytest.approx((1 + 7 / 12) / 2)
    assert official_average_precision(far, relevant, 4) == pytest.approx((1 + 7 / 12) / 4)
    assert official_average_precision(far, np.zeros(3, bool), 4) == 0
    assert official_roc_area(far, relevant) == 0.5


def test_ties_stay_as_they_are_given() -> None:
    first, last = np.array([True, False, False]), np.array([False, False, True])
    assert official_average_precision(np.zeros(3), first) == 1
    assert official_average_precision(np.zeros(3), last) == pytest.approx((0 + 1 / 3) / 2)
    assert (official_roc_area(np.zeros(3), first), official_roc_area(np.zeros(3), last)) == (1, 0)
