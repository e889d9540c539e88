"""Distances against scipy; equal descriptors are equally far, wherever they stand in a matrix."""

import numpy as np
import pytest
import torch

from doap.evaluation.hpatches.distances import (
    pair_distances,
    squared_distances,
    tie_ranks,
    to_device,
    to_vectors,
    tolerance,
)
from support.slow_hpatches import KINDS, distances, some_codes


@pytest.mark.parametrize("kind", KINDS)
def test_all_with_all_and_pair_by_pair(kind: str) -> None:
    made = some_codes(kind, 200)
    codes = to_device(made, "cpu")
    expected = distances(made, made) ** 2 * (4 if kind == "bits" else 1)  # of bits as ±1
    vectors = to_vectors(codes)
    np.testing.assert_allclose(squared_distances(vectors, vectors), expected, atol=1e-12)
    first, second = np.random.default_rng(1).integers(0, 200, (2, 500))
    np.testing.assert_allclose(pair_distances(codes, first, second), expected[first, second], atol=1e-12)


def test_pairs_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = torch.from_numpy(some_codes("vectors", 60))
    first, second = np.random.default_rng(1).integers(0, 60, (2, 100))
    whole = pair_distances(codes, first, second)
    monkeypatch.setattr("doap.evaluation.hpatches.distances.CHUNK_SIZE", 7)
    torch.testing.assert_close(pair_distances(codes, first, second), whole, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_ranks_of_a_matrix_product_are_those_of_differences(kind: str) -> None:
    made = some_codes(kind, 300)
    codes = torch.from_numpy(made)
    vectors = to_vectors(codes)
    actual = tie_ranks(squared_distances(vectors[:20], vectors).flatten(), tolerance(codes))
    exact = np.unique(distances(made[:20], made).round(11), return_inverse=True)[1].ravel()
    np.testing.assert_array_equal(actual, exact)
    assert actual.max() < len(actual) // 2  # there were ties to keep


def test_vectors_that_differ_in_the_last_digit_are_apart() -> None:
    vectors = torch.nn.functional.normalize(torch.randn(2, 24), dim=1)
    other = vectors[:1].clone()
    other[0, 0] = torch.nextafter(other[0, 0], torch.tensor(2.0))
    codes = torch.cat([vectors[1:2], vectors[:1], other])
    far = pair_distances(codes, np.array([0, 0]), np.array([1, 2]))
    assert len(set(tie_ranks(far, tolerance(codes)))) == 2


@pytest.mark.parametrize("factor", [1e-25, 1e25])
def test_the_tolerance_of_long_and_short_vectors_is_relative(factor: float) -> None:
    codes = torch.from_numpy(some_codes("vectors", 60))
    scaled = (codes.double() * factor).float()
    assert tolerance(scaled) == pytest.approx(factor**2 * tolerance(codes), rel=1e-6)
