"""Descriptors as hloc compares them, against Hamming distances."""

import numpy as np
import pytest
import torch

from doap.bridges.hloc import bit_value, to_hloc
from doap.errors import DoapError


@pytest.mark.parametrize("bits", [8, 64, 128, 256, 384, 512, 1000, 1024])
def test_bits_rank_as_hamming_exactly(bits: int) -> None:
    rng = np.random.default_rng(bits)
    first, second = (rng.integers(0, 256, (count, bits // 8), dtype=np.uint8) for count in (50, 400))
    a, b = (torch.from_numpy(to_hloc(one, "float16")).float() for one in (first, second))
    distances = np.unpackbits(first[:, None] ^ second, axis=2).sum(2, dtype=np.int64)
    for similarities in (torch.einsum("dn,dm->nm", a, b), (a[:, :, None] * b[:, None]).flip(0).sum(0)):
        expected = (bits - 2 * distances) * bit_value(bits) ** 2
        np.testing.assert_array_equal(similarities.numpy(), expected.astype(np.float32))
        assert len(np.unique(similarities)) == len(np.unique(distances))
    assert 0.992 < np.linalg.norm(a[:, 0]) <= 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["highest", "high"])  # float32, TensorFloat32
def test_sums_are_exact_on_a_gpu(precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    rng = np.random.default_rng(0)
    try:
        torch.set_float32_matmul_precision(precision)
        for bits in (128, 256, 512):
            rows = rng.integers(0, 256, (300, bits // 8), dtype=np.uint8)
            values = torch.from_numpy(to_hloc(rows, "float16")).float()
            actual = torch.einsum("dn,dm->nm", values.cuda(), values.cuda())
            assert torch.equal(actual.cpu().double(), values.double().T @ values.double())
    finally:
        torch.set_float32_matmul_precision(before)


def test_real_valued_descriptors_are_transposed() -> None:
    vectors = np.eye(4, 6, dtype=np.float32)
    np.testing.assert_array_equal(to_hloc(vectors), vectors.T)
    assert to_hloc(vectors, "float16").dtype == np.float16
    with pytest.raises(DoapError, match="precision uint8: unknown; choose one of "):
        to_hloc(vectors, "uint8")  # type: ignore[arg-type]
