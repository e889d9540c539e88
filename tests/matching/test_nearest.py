import cv2
import numpy as np
import pytest

from doap.matching import nearest as module
from doap.matching.nearest import mutual_nearest, nearest


def vectors(count: int, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=(count, 64)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def bits(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 4), dtype=np.uint8)


def brute_force(queries: np.ndarray, database: np.ndarray) -> tuple[list[int], list[float]]:
    if queries.dtype == np.uint8:
        table = np.unpackbits(queries[:, None] ^ database[None], axis=2).sum(2).astype(float)
    else:
        table = np.sqrt(((queries[:, None].astype(float) - database[None]) ** 2).sum(2))
    return table.argmin(1).tolist(), table.min(1).tolist()


@pytest.mark.parametrize("make", [vectors, bits])
@pytest.mark.parametrize("rows", [1 << 24, 1000])
def test_nearest_is_brute_force(make, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(module, "ENTRIES_AT_ONCE", rows)
    queries, database = make(150, 0), make(333, 1)
    indices, distances = nearest(queries, database)
    expected, expected_distances = brute_force(queries, database)
    assert indices.tolist() == expected
    np.testing.assert_allclose(distances, expected_distances, atol=1e-6)


@pytest.mark.parametrize("make", [vectors, bits])
def test_mutual_matches_are_opencvs(make) -> None:  # type: ignore[no-untyped-def]
    first, second = make(200, 0), make(220, 1)
    second[:100] = first[50:150]
    norm = cv2.NORM_HAMMING if make is bits else cv2.NORM_L2
    pairs, _ = mutual_nearest(first, second)
    if make is vectors:  # bits have ties, which OpenCV breaks its own way
        expected = {(m.queryIdx, m.trainIdx) for m in cv2.BFMatcher(norm, crossCheck=True).match(first, second)}
        assert {tuple(p) for p in pairs.tolist()} == expected
    assert {(50 + i, i) for i in range(100)} <= {tuple(p) for p in pairs.tolist()} or make is bits
    assert len({a for a, _ in pairs.tolist()}) == len({b for _, b in pairs.tolist()}) == len(pairs)


@pytest.mark.parametrize("make", [vectors, bits])
def test_of_equal_descriptors_the_first_is_taken(make) -> None:  # type: ignore[no-untyped-def]
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


def test_constant_descriptors_match_once() -> None:
    flat = np.ones((3000, 64), np.float32) / 8
    pairs, distances = mutual_nearest(flat, flat)
    assert pairs.tolist() == [[0, 0]]
    assert distances.tolist() == [0.0]


def test_rounding_of_large_vectors_does_not_decide() -> None:
    """Far from the origin, float32 products lose the small differences that decide here."""
    base = np.full((1, 64), 30.0, np.float32)
    database = np.repeat(base, 5, 0)
    database[:, 0] += np.float32([0.03, 0.01, 0.02, 0.005, 0.04])
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
def test_what_cannot_be_compared_is_refused(queries: np.ndarray, database: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nearest(queries, database)
