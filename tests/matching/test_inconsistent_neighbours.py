"""First geometrically inconsistent neighbours and distinct matches, against loops."""

import numpy as np
import pytest
import torch

from doap.matching import inconsistent_neighbours
from doap.matching.inconsistent_neighbours import distinct_matches, inconsistent_neighbour_distances
from doap.types import Descriptors

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_consistent_neighbours_do_not_count(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inconsistent_neighbours, "BLOCK", 200)  # several blocks
    random = np.random.default_rng(0)
    first: Descriptors
    second: Descriptors
    if kind == "real":
        first, second = (random.normal(size=(n, 16)).astype(np.float32) for n in (30, 40))
        table = np.linalg.norm(first[:, None].astype(float) - second[None], axis=2)
    else:
        first, second = (random.integers(0, 256, (n, 4), dtype=np.uint8) for n in (30, 40))
        table = np.unpackbits(first[:, None] ^ second[None], axis=2).sum(2).astype(float)
    points = random.uniform(0, 30, (40, 2))
    indices = np.stack([np.arange(30), table.argmin(1)], 1)
    expected = [
        min(table[i, k] for k in range(40) if np.hypot(*(points[k] - points[j])) > 10) for i, j in indices.tolist()
    ]
    result = inconsistent_neighbour_distances(first, second, indices, points, 10, CPU)
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_without_an_inconsistent_neighbour_the_distance_is_infinite() -> None:
    vectors = np.eye(3, dtype=np.float32)
    indices = np.array([[0, 0]])
    assert inconsistent_neighbour_distances(vectors, vectors, indices, np.zeros((3, 2)), 5, CPU).tolist() == [np.inf]
    assert inconsistent_neighbour_distances(vectors, vectors, indices[:0], np.zeros((3, 2)), 5, CPU).shape == (0,)


def test_matches_of_the_same_two_points_are_one() -> None:
    first = np.array([[10, 10], [11.5, 11], [10.4, 10.3], [50, 50], [90, 20]])
    second = np.array([[60, 60], [61.5, 61], [80, 80], [60.3, 60], [20, 20]])
    order = np.array([1, 0, 2, 3, 4])
    # 0 repeats 1. 2 and 3 share no end with 1 but for two pixels: both are kept if 0 is gone.
    assert distinct_matches(first, second, order, both=3, either=1).tolist() == [1, 2, 3, 4]
    # With 0 first, 1 repeats it, 2 has its first end and 3 its second.
    assert distinct_matches(first, second, np.arange(5), both=3, either=1).tolist() == [0, 4]
    assert distinct_matches(first, second, np.array([4, 3]), both=3, either=1).tolist() == [3, 4]
    assert distinct_matches(first[:0], second[:0], np.zeros(0, np.int64), both=3, either=1).shape == (0,)
