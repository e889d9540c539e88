"""The ranked list of one query."""

from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from doap.app.rank.ranking import RankedList, expected_precisions, rank_items


def orders(distances: list[float]) -> list[list[int]]:
    """Return all orders of the items that sort their distances."""
    return [list(p) for p in permutations(range(len(distances))) if sorted(distances) == [distances[i] for i in p]]


def precisions_of(correct: list[bool]) -> list[float]:
    return [sum(correct[:k]) / k for k in range(1, len(correct) + 1)]


CASES = [
    ([1.0, 2.0, 3.0, 4.0], [False, True, False, True]),
    ([1.0, 1.0, 1.0, 2.0], [True, False, False, True]),
    ([1.0, 2.0, 2.0, 2.0, 3.0], [False, True, True, False, False]),
    ([5.0, 5.0, 5.0], [False, True, False]),
]


@pytest.mark.parametrize(("distances", "correct"), CASES)
def test_precision_and_ap_are_means_over_all_orders_of_ties(distances: list[float], correct: list[bool]) -> None:
    lists = [[correct[i] for i in order] for order in orders(distances)]
    expected = np.mean([precisions_of(labels) for labels in lists], axis=0)
    aps = [
        sum(p for p, label in zip(precisions_of(labels), labels, strict=True) if label) / sum(labels)
        for labels in lists
    ]
    ranked = RankedList(np.array(distances), np.arange(len(distances)), np.array(correct), None)
    np.testing.assert_allclose(ranked.precisions, expected)
    assert ranked.average_precision == pytest.approx(np.mean(aps))
    firsts = [labels.index(True) + 1 for labels in lists]
    assert ranked.first_correct == (min(firsts), max(firsts))


def test_hamming_distances_of_packed_bits() -> None:
    rng = np.random.default_rng(0)
    query, items = rng.integers(0, 256, 4, np.uint8), rng.integers(0, 256, (50, 4), np.uint8)
    ranked = rank_items(query, items, None)
    texts = ["".join(f"{byte:08b}" for byte in row) for row in (query, *items)]
    expected = [sum(a != b for a, b in zip(texts[0], text, strict=True)) for text in texts[1:]]
    assert ranked.bits == 32
    assert [expected[i] for i in ranked.items] == ranked.distances.tolist() == sorted(expected)
    first, last = ranked.rank_range(10)
    assert [i + 1 for i, d in enumerate(ranked.distances) if d == ranked.distances[10]] == list(range(first, last + 1))


def test_euclidean_distances_of_vectors() -> None:
    items = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    correct: NDArray[np.bool_] = np.arange(20) == 7
    ranked = rank_items(items[7], items, correct)
    assert ranked.bits is None
    assert ranked.items[0] == 7
    assert ranked.distances[0] == 0
    assert ranked.average_precision == 1
    assert ranked.distances[-1] == pytest.approx(max(float(np.sqrt(((row - items[7]) ** 2).sum())) for row in items))


def test_without_a_correct_item_there_is_no_ap() -> None:
    items = np.eye(3, dtype=np.float32)
    for correct in (None, np.zeros(3, bool)):
        ranked = rank_items(items[0], items, correct)
        assert ranked.average_precision is None
        assert ranked.first_correct is None
        assert ranked.positives == 0


def test_precisions_of_an_empty_list() -> None:
    assert expected_precisions(np.zeros(0), np.zeros(0, bool)).shape == (0,)
