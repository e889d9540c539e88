from collections.abc import Callable

import numpy as np
import pytest

from doap.matching.one_to_one import match_one_to_one
from doap.types import Descriptors

Maker = Callable[[np.random.Generator, int], Descriptors]


def slow_matches(first: Descriptors, second: Descriptors) -> list[tuple[int, int, float]]:
    """Match by the definition: sort all pairs by distance, then by index, and take those whose items are free."""
    listed = []
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            if first.dtype == np.uint8:
                distance = float(np.unpackbits(a ^ b).sum())
            else:
                distance = float(np.float32(np.linalg.norm(a.astype(np.float64) - b.astype(np.float64))))
            listed.append((distance, i, j))
    matches: list[tuple[int, int, float]] = []
    used: tuple[set[int], set[int]] = set(), set()
    for distance, i, j in sorted(listed):
        if i not in used[0] and j not in used[1]:
            matches.append((i, j, distance))
            used[0].add(i)
            used[1].add(j)
    return sorted(matches)


def vectors(random: np.random.Generator, count: int) -> Descriptors:
    values = random.normal(size=(count, 8)).astype(np.float32)
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


def bits(random: np.random.Generator, count: int) -> Descriptors:
    """Return descriptors of 16 bits, which have many equal distances."""
    return random.integers(0, 256, (count, 2), dtype=np.uint8)


@pytest.mark.parametrize("make", [vectors, bits])
@pytest.mark.parametrize(("count", "other"), [(40, 40), (25, 60), (60, 25), (1, 30), (30, 1)])
def test_matches_are_those_of_the_definition(
    make: Callable[[np.random.Generator, int], Descriptors], count: int, other: int
) -> None:
    random = np.random.default_rng(count)
    first, second = make(random, count), make(random, other)
    indices, distances = match_one_to_one(first, second)
    expected = slow_matches(first, second)
    assert [tuple(pair) for pair in indices.tolist()] == [match[:2] for match in expected]
    np.testing.assert_allclose(distances, [match[2] for match in expected], rtol=1e-6)
    assert len(indices) == min(count, other)


def test_equal_descriptors_are_matched_in_order() -> None:
    random = np.random.default_rng(0)
    equal = np.repeat(vectors(random, 1), 20, 0)
    indices, distances = match_one_to_one(equal, equal)
    np.testing.assert_array_equal(indices, np.repeat(np.arange(20), 2).reshape(-1, 2))
    np.testing.assert_array_equal(distances, 0)
    copies = np.tile(vectors(random, 7), (3, 1))
    indices, _ = match_one_to_one(copies, copies)
    np.testing.assert_array_equal(indices[:, 0], indices[:, 1])


@pytest.mark.parametrize(("count", "other"), [(0, 5), (5, 0), (0, 0)])
def test_nothing_matches_nothing(count: int, other: int) -> None:
    random = np.random.default_rng(0)
    indices, distances = match_one_to_one(vectors(random, count), vectors(random, other))
    assert indices.shape == (0, 2)
    assert distances.shape == (0,)


@pytest.mark.parametrize("scale", [1e-40, 1e-12, 512, 1e37])
def test_matches_do_not_depend_on_the_scale(scale: float) -> None:
    random = np.random.default_rng(0)
    first, second = ((scale * vectors(random, count)).astype(np.float32) for count in (30, 20))
    second[5] = first[9]
    indices, distances = match_one_to_one(first, second)
    expected = slow_matches(first, second)
    assert indices.tolist() == [[i, j] for i, j, _ in expected]
    np.testing.assert_allclose(distances, [distance for _, _, distance in expected], rtol=1e-4)
    assert [9, 5] in indices.tolist()


def test_reversed_and_equal_descriptors_are_matched() -> None:
    first = vectors(np.random.default_rng(0), 9)
    indices, distances = match_one_to_one(first[::-1], first)
    assert indices.tolist() == [[i, 8 - i] for i in range(9)]
    assert distances.tolist() == [0.0] * 9
    constant = np.zeros((4, 8), np.float32)
    assert match_one_to_one(constant, constant[:3])[0].tolist() == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    bad = np.ones((3, 8), np.float32)
    bad[1, 2] = value
    with pytest.raises(ValueError, match="descriptors hold NaN or infinity"):
        match_one_to_one(np.ones((2, 8), np.float32), bad)
