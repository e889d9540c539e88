from collections.abc import Callable

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from doap.matching import vectors as vectors_module
from doap.matching.nearest import distinctive_matches, mutual_nearest, nearest
from doap.types import Descriptors

Maker = Callable[[int, int], Descriptors]


def vectors(count: int, seed: int) -> Descriptors:
    values = np.random.default_rng(seed).normal(size=(count, 64)).astype(np.float32)
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True))


def exact_vectors(count: int, seed: int) -> Descriptors:
    """Return unit vectors of ±1/8, whose products float32 computes exactly: equal distances are equal."""
    return (np.random.default_rng(seed).choice([-1, 1], (count, 64)) / 8).astype(np.float32)


def bits(count: int, seed: int) -> Descriptors:
    return np.random.default_rng(seed).integers(0, 256, (count, 4), dtype=np.uint8)


def long_bits(count: int, seed: int) -> Descriptors:
    return np.random.default_rng(seed).integers(0, 256, (count, 32), dtype=np.uint8)


def distance_table(queries: Descriptors, database: Descriptors) -> NDArray[np.float64]:
    """Compute all distances from their definition, (N, K)."""
    if queries.dtype == np.uint8:
        different = np.bitwise_xor(queries[:, None], database[None], dtype=np.uint8)
        return np.asarray(np.unpackbits(different, axis=2).sum(2), np.float64)
    return np.asarray(np.sqrt(((queries[:, None].astype(float) - database[None]) ** 2).sum(2)))


def ratio_test(first: Descriptors, second: Descriptors, ratio: float) -> list[list[int]]:
    """Apply Lowe's test and the mutual check from their definitions; of equal distances the first counts."""
    table = distance_table(first, second)
    matches = []
    for i, row in enumerate(table):
        j = int(row.argmin())
        others = np.delete(row, j)
        if len(others) and row[j] < ratio * others.min() and table[:, j].argmin() == i:
            matches.append([i, j])
    return matches


def perturb(descriptors: Descriptors, seed: int) -> Descriptors:
    """Change descriptors a little: unit vectors by noise or two flipped signs, bits by one flipped bit per 4 bytes."""
    random = np.random.default_rng(seed)
    changed = descriptors.copy()
    rows = np.arange(len(changed))
    if changed.dtype == np.uint8:
        for start in range(0, changed.shape[1], 4):
            changed[rows, start + random.integers(0, 4, len(rows))] ^= np.uint8(1) << random.integers(
                0, 8, len(rows), dtype=np.uint8
            )
        return changed
    if np.isin(np.abs(changed), 1 / 8).all():
        for _ in range(2):
            changed[rows, random.integers(0, 64, len(rows))] *= -1
        return changed
    changed += random.normal(0, 0.06, changed.shape).astype(np.float32)
    return np.asarray(changed / np.linalg.norm(changed, axis=1, keepdims=True))


def without_ties(first: Descriptors, second: Descriptors) -> tuple[Descriptors, Descriptors]:
    """Drop the items that have two nearest neighbours, until none has."""
    while True:
        table = distance_table(first, second)
        tied = (table == table.min(1, keepdims=True)).sum(1) > 1, (table == table.min(0)).sum(0) > 1
        if not tied[0].any() and not tied[1].any():
            return first, second
        first, second = first[~tied[0]], second[~tied[1]]


@pytest.mark.parametrize("make", [vectors, bits])
@pytest.mark.parametrize("entries", [1 << 24, 1000])
def test_nearest_is_brute_force(make: Maker, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "CPU_PAIRS", entries)
    queries, database = make(150, 0), make(333, 1)
    indices, distances = nearest(queries, database)
    table = distance_table(queries, database)
    assert indices.tolist() == table.argmin(1).tolist()
    np.testing.assert_allclose(distances, table.min(1), atol=1e-6)


@pytest.mark.parametrize(("make", "norm"), [(vectors, cv2.NORM_L2), (long_bits, cv2.NORM_HAMMING)])
def test_mutual_matches_are_opencvs(make: Maker, norm: int) -> None:
    """On data without ties, which OpenCV breaks in its own way."""
    first, second = make(400, 0), make(440, 1)
    second[:100] = first[50:150] if make is vectors else perturb(first[50:150], 2)
    first, second = without_ties(first, second)
    expected = {(m.queryIdx, m.trainIdx) for m in cv2.BFMatcher(norm, crossCheck=True).match(first, second)}
    assert 90 < len(expected) < min(len(first), len(second)) - 30
    pairs, distances = mutual_nearest(first, second)
    assert {tuple(pair) for pair in pairs.tolist()} == expected
    assert len(pairs) == len(expected)
    np.testing.assert_allclose(distances, distance_table(first, second)[tuple(pairs.T)], atol=1e-6)


@pytest.mark.parametrize("make", [vectors, bits])
def test_mutual_matches_are_one_to_one(make: Maker) -> None:
    """With many ties for bits."""
    first, second = make(200, 0), make(220, 1)
    second[:100] = first[50:150]
    pairs, distances = mutual_nearest(first, second)
    table = distance_table(first, second)
    there, back = table.argmin(1), table.argmin(0)
    assert pairs.tolist() == [[i, j] for i, j in enumerate(there.tolist()) if back[j] == i]
    np.testing.assert_allclose(distances, table[tuple(pairs.T)], atol=1e-6)


@pytest.mark.parametrize("make", [vectors, exact_vectors, bits, long_bits])
@pytest.mark.parametrize("ratio", [0.6, 0.77, 1.0])
def test_distinctive_matches_are_lowes(make: Maker, ratio: float) -> None:
    first, second = make(150, 0), make(170, 1)
    second[20:120] = perturb(first[:100], 2)
    matches = distinctive_matches(first, second, ratio).tolist()
    assert matches == ratio_test(first, second, ratio)
    assert len(matches) > 40


@pytest.mark.parametrize("make", [exact_vectors, bits, long_bits])
def test_equally_near_candidates_are_not_distinctive(make: Maker) -> None:
    """Each item of `first` is there twice, and every fourth of its partners."""
    few = make(40, 0)
    first, partners = np.concatenate([few, few]), perturb(few, 1)
    second = np.concatenate([partners, partners[::4], make(30, 2)])
    for ratio in (0.77, 1.0):
        matches = distinctive_matches(first, second, ratio)
        assert matches.tolist() == ratio_test(first, second, ratio)
        assert len(matches) > 10
        assert (matches[:, 0] < 40).all()  # of equal items in `first`, the first
        assert (matches[:, 0] % 4 != 0).all()


@pytest.mark.parametrize("make", [vectors, bits])
def test_fewer_than_two_candidates_have_no_ratio(make: Maker) -> None:
    for first, second in ((make(5, 0), make(0, 1)), (make(5, 0), make(5, 0)[:1]), (make(0, 0), make(5, 1))):
        assert distinctive_matches(first, second, 0.8).shape == (0, 2)
    assert distinctive_matches(make(5, 0)[:1], make(5, 0), 0.8).tolist() == [[0, 0]]


@pytest.mark.parametrize("make", [vectors, bits])
def test_of_equal_descriptors_the_first_is_taken(make: Maker) -> None:
    few = make(40, 0)
    database = np.tile(few, (25, 1))  # 1,000 items, each 25 times, all over the matrix
    order = np.random.default_rng(3).permutation(len(database))
    shuffled = database[order]
    first = [int(np.flatnonzero((shuffled == q).all(1))[0]) for q in few]
    indices, distances = nearest(few, shuffled)
    assert indices.tolist() == first
    assert distances.tolist() == [0.0] * 40
    pairs, _ = mutual_nearest(shuffled, shuffled)
    assert pairs[:, 0].tolist() == pairs[:, 1].tolist() == sorted(first)


@pytest.mark.parametrize("dimensions", [1, 3, 8, 128])
def test_columns_of_an_array_are_descriptors(dimensions: int) -> None:
    """hloc has one descriptor per column; a single one has another stride than a row."""
    columns = np.random.default_rng(0).normal(size=(dimensions, 5)).astype(np.float32)
    pairs, distances = mutual_nearest(columns[:, 2:3].T, columns.T)
    assert (pairs.tolist(), distances.tolist()) == ([[0, 2]], [0])


def test_constant_descriptors_match_once() -> None:
    flat = np.ones((3000, 64), np.float32) / 8
    pairs, distances = mutual_nearest(flat, flat)
    assert pairs.tolist() == [[0, 0]]
    assert distances.tolist() == [0.0]


def test_rounding_of_large_vectors_does_not_decide() -> None:
    """Far from the origin, float32 products lose the small differences that decide here."""
    base = np.full((1, 64), 30.0, np.float32)
    database = np.repeat(base, 5, 0)
    database[:, 0] += np.array([0.03, 0.01, 0.02, 0.005, 0.04], np.float32)
    assert nearest(base, database)[0].tolist() == [3]


def test_nothing_to_match() -> None:
    pairs, distances = mutual_nearest(vectors(0, 0), vectors(5, 0))
    assert (pairs.shape, distances.shape) == ((0, 2), (0,))


@pytest.mark.parametrize(
    ("queries", "database", "message"),
    [
        (vectors(2, 0), bits(2, 0), "differ"),
        (bits(2, 0), bits(2, 0)[:, :3], "differ"),
        (bits(2, 0), bits(0, 0), "empty"),
    ],
)
def test_what_cannot_be_compared_is_refused(queries: Descriptors, database: Descriptors, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nearest(queries, database)
