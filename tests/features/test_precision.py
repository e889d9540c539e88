"""Unit vectors in fewer bytes come back close to what they were; bits are not touched."""

import numpy as np
import pytest
from numpy.typing import NDArray

from doap import DoapError
from doap.choices import StoredPrecision
from doap.features.precision import decode, encode


def unit_vectors(count: int, seed: int = 0) -> NDArray[np.float32]:
    values = np.random.default_rng(seed).normal(size=(count, 128))
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize(
    ("precision", "size", "error"), [("float32", 4, 0.0), ("float16", 2, 5e-4), ("uint8", 1, 0.02)]
)
def test_vectors_are_unit_vectors_again_and_near(precision: StoredPrecision, size: int, error: float) -> None:
    vectors = unit_vectors(500)
    stored, step = encode(vectors, precision)
    assert stored.nbytes == 500 * 128 * size
    decoded = decode(stored, step)
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(decoded, axis=1), 1, atol=1e-6)
    assert np.linalg.norm(decoded - vectors, axis=1).max() <= error


def test_bytes_are_symmetric_around_128_and_use_their_whole_range() -> None:
    vectors = unit_vectors(500)
    (positive, step), (negative, _) = encode(vectors, "uint8"), encode(-vectors, "uint8")
    np.testing.assert_array_equal(positive.astype(int) - 128, 128 - negative.astype(int))
    assert max(positive.max() - 128, 128 - positive.min()) == 127
    assert step == pytest.approx(np.abs(vectors).max() / 127)
    # Without clipping, no value moves by more than half a step.
    assert np.abs((positive.astype(np.float64) - 128) * step - vectors).max() <= step / 2 + 1e-7


@pytest.mark.parametrize("precision", ["float16", "uint8"])
def test_no_vectors_and_zero_vectors_survive(precision: StoredPrecision) -> None:
    assert decode(*encode(unit_vectors(0), precision)).shape == (0, 128)
    assert not decode(*encode(np.zeros((3, 128), np.float32), precision)).any()


def test_bits_are_stored_as_they_are() -> None:
    bits = np.random.default_rng(0).integers(0, 256, (9, 32), dtype=np.uint8)
    np.testing.assert_array_equal(encode(bits, "float32")[0], bits)
    with pytest.raises(DoapError, match="binary descriptors are stored as they are; float16 is for real-valued"):
        encode(bits, "float16")


def test_unknown_precisions_are_refused() -> None:
    with pytest.raises(DoapError, match="precision int4: unknown; choose one of float32, float16, uint8"):
        encode(np.ones((1, 4), np.float32), "int4")  # type: ignore[arg-type]
