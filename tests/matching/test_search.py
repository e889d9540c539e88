"""Exact search against the definition in float64: ties, copies, types, sizes, devices."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from doap import devices, onednn
from doap.matching import maxima, vectors
from doap.matching.bits import MAX_BITS
from doap.matching.nearest import PairSearch, distinctive_matches, mutual_nearest, nearest, search_matches
from doap.types import Descriptors


def distance_table(first: Descriptors, second: Descriptors) -> NDArray[np.float64]:
    """Compute all distances from their definition, (N, K)."""
    if first.dtype == np.uint8:
        different = np.bitwise_xor(first[:, None], second[None], dtype=np.uint8)
        return np.asarray(np.unpackbits(different, axis=2).sum(2), np.float64)
    return np.asarray(np.sqrt(((first[:, None].astype(np.float64) - second[None].astype(np.float64)) ** 2).sum(2)))


def check(first: Descriptors, second: Descriptors) -> None:
    """Compare every function with the table of distances."""
    table = distance_table(first, second)
    there, back = table.argmin(1), table.argmin(0)
    sorted_table = np.sort(np.concatenate([table, np.full((len(first), 1), np.inf)], 1), 1)
    every = search_matches(first, second, mutual=False)
    assert every.indices.tolist() == [[i, int(j)] for i, j in enumerate(there)]
    np.testing.assert_allclose(every.distances, sorted_table[:, 0], rtol=1e-12, atol=0)
    np.testing.assert_allclose(every.second_distances, sorted_table[:, 1], rtol=1e-12, atol=0)
    mutual = search_matches(first, second)
    kept = np.flatnonzero(back[there] == np.arange(len(first)))
    assert mutual.indices.tolist() == np.stack([kept, there[kept]], 1).tolist()
    np.testing.assert_array_equal(mutual.distances, every.distances[kept])
    np.testing.assert_array_equal(mutual.second_distances, every.second_distances[kept])
    np.testing.assert_array_equal(nearest(first, second)[0], there)
    np.testing.assert_array_equal(mutual_nearest(first, second)[0], mutual.indices)
    distinctive = kept[every.distances[kept] < 0.8 * every.second_distances[kept]] if len(second) > 1 else kept[:0]
    assert distinctive_matches(first, second, 0.8)[:, 0].tolist() == distinctive.tolist()


def noisy_copies(
    random: np.random.Generator, count: int, other: int, dimensions: int
) -> tuple[Descriptors, Descriptors]:
    first = random.normal(size=(count, dimensions)).astype(np.float32)
    second = random.normal(size=(other, dimensions)).astype(np.float32)
    shared = min(count, other) // 2
    second[:shared] = first[:shared] + 0.1 * second[:shared]
    return first, second


@pytest.mark.parametrize(("count", "other"), [(1, 1), (1, 2), (2, 1), (3, 200), (200, 3), (300, 517), (700, 600)])
@pytest.mark.parametrize("dimensions", [1, 7, 64, 129])
def test_vectors(count: int, other: int, dimensions: int) -> None:
    """Not of unit norm. In one dimension almost all similarities differ by rounding only."""
    check(*noisy_copies(np.random.default_rng(count), count, other, dimensions))


@pytest.mark.parametrize(("count", "other"), [(1, 1), (1, 2), (2, 1), (3, 200), (300, 517), (1100, 600)])
@pytest.mark.parametrize("width", [1, 4, 32, 33, 64])
def test_bits(count: int, other: int, width: int) -> None:
    """With many equal distances for 8 and 32 bits."""
    random = np.random.default_rng(count)
    first, second = (random.integers(0, 256, (n, width), dtype=np.uint8) for n in (count, other))
    shared = min(count, other) // 2
    second[:shared] = first[:shared] ^ (random.random((shared, width)) < 0.1)
    check(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.float16, torch.bfloat16])
def test_types_of_products_give_the_same_bits(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    if dtype.is_floating_point and not onednn.multiplies(dtype):
        pytest.skip(f"this CPU does not multiply {dtype}")
    monkeypatch.setattr(maxima, "TRIAL_ENTRIES", 0)
    monkeypatch.setattr(maxima, "_fastest_bit_dtype", lambda _: dtype)
    random = np.random.default_rng(0)
    first, second = (random.integers(0, 256, (n, 32), dtype=np.uint8) for n in (300, 400))
    first[0], second[0], second[1] = 0, 0, 255  # the largest and the smallest product
    check(first, second)


@pytest.mark.parametrize("kept", [0, 1 << 22])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_types_of_vectors(dtype: type, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maxima, "KEPT_ENTRIES", kept)
    first, second = noisy_copies(np.random.default_rng(0), 400, 300, 32)
    for factor in (1, 100):
        check((first * factor).astype(dtype), (second / factor).astype(dtype))


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e30, 1e38])
def test_very_small_and_large_values(scale: float) -> None:
    first, second = noisy_copies(np.random.default_rng(0), 200, 300, 16)
    limit = max(np.abs(first).max(), np.abs(second).max())
    check(
        (first / limit).astype(np.float32) * np.float32(scale), (second / limit).astype(np.float32) * np.float32(scale)
    )


@pytest.mark.parametrize("kept", [0, 1 << 22])
def test_far_from_the_origin(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where float32 products cannot tell any two vectors apart."""
    monkeypatch.setattr(maxima, "KEPT_ENTRIES", kept)
    first, second = noisy_copies(np.random.default_rng(0), 300, 400, 16)
    check(first * np.float32(1e-3) + 100, second * np.float32(1e-3) + 100)


@pytest.mark.parametrize("kept", [0, 1 << 22])
def test_copies(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies in both sets, zeros of both signs, and vectors that differ in a sign only."""
    monkeypatch.setattr(maxima, "KEPT_ENTRIES", kept)
    random = np.random.default_rng(0)
    signs = random.choice([-1.0, 1.0], (60, 20)).astype(np.float32)
    signs[:5] = 0
    signs[3] *= -1
    check(signs[random.integers(0, 60, 700)], signs[random.integers(10, 60, 500)])
    check(np.ones((300, 4), np.float32), np.ones((200, 4), np.float32))
    check(np.zeros((3, 4), np.float32), signs[5:, :4])


def test_copies_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of copies cost as much as one: the products of each group are compared once."""
    compared: list[int] = []
    original = vectors._Direction._candidates

    def count(
        self: vectors._Direction, items: Tensor, groups: Tensor, excluded: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        compared.append(len(items))
        return original(self, items, groups, excluded)

    monkeypatch.setattr(vectors._Direction, "_candidates", count)
    few = np.random.default_rng(0).normal(size=(10, 8)).astype(np.float32)
    pairs, _ = mutual_nearest(np.tile(few, (900, 1)), np.tile(few, (800, 1)))
    assert pairs.tolist() == [[i, i] for i in range(10)]
    assert sum(compared) == 20


small_vectors = st.integers(1, 40).flatmap(
    lambda count: st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=count, max_size=count)
)


@settings(max_examples=60, deadline=None)
@given(small_vectors, small_vectors, st.booleans())
def test_ties_of_small_integers(first: list[list[int]], second: list[list[int]], as_bits: bool) -> None:
    """Integers, whose distances are exact: equal where they are equal by the definition."""
    dtype = np.uint8 if as_bits else np.float32
    check(np.array(first, np.int8).astype(dtype), np.array(second, np.int8).astype(dtype))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("group", [128, 1024])
def test_tiles_and_threads_change_nothing(threads: int, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several tiles and tasks; the number of threads of the caller is restored."""
    monkeypatch.setattr(maxima, "GROUP_SIZE", group)
    monkeypatch.setattr(maxima, "CPU_TILE", 128)
    monkeypatch.setattr(vectors, "CPU_PAIRS", 100)
    monkeypatch.setattr(vectors, "DIFFERENCES", 50)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(*noisy_copies(np.random.default_rng(0), 1300, 700, 16))
        check(*(np.random.default_rng(1).integers(0, 256, (n, 8), dtype=np.uint8) for n in (1300, 700)))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_tensors_give_tensors() -> None:
    first, second = noisy_copies(np.random.default_rng(0), 50, 60, 8)
    arrays = search_matches(first, second)
    tensors = search_matches(torch.from_numpy(first).requires_grad_(), torch.from_numpy(second))
    assert isinstance(arrays.indices, np.ndarray)
    assert [x.dtype.name for x in vars(arrays).values()] == ["int64", "float64", "float64"]
    for a, b in zip(vars(arrays).values(), vars(tensors).values(), strict=True):
        assert isinstance(b, Tensor)
        np.testing.assert_array_equal(a, b.numpy())


def test_modes_of_the_caller_change_nothing() -> None:
    """Autocast, inference mode and reduced precision of products."""
    first, second = noisy_copies(np.random.default_rng(0), 600, 700, 32)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        check(first, second)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        check(first, second)
    finally:
        torch.set_float32_matmul_precision(before)


def test_views_and_read_only_arrays_are_accepted(recwarn: pytest.WarningsRecorder) -> None:
    first, second = noisy_copies(np.random.default_rng(0), 90, 60, 8)
    first.flags.writeable = False
    check(first[::-3], second[:, ::-1])
    assert not recwarn.list


@pytest.mark.parametrize("make", [lambda n: np.zeros((n, 4), np.float32), lambda n: np.zeros((n, 4), np.uint8)])
@pytest.mark.parametrize(("count", "other"), [(0, 5), (5, 0), (0, 0)])
def test_nothing_to_search(make: Callable[[int], Descriptors], count: int, other: int) -> None:
    for mutual in (False, True):
        pairs: PairSearch[Descriptors] = search_matches(make(count), make(other), mutual)
        assert (pairs.indices.shape, pairs.distances.shape, pairs.second_distances.shape) == ((0, 2), (0,), (0,))
    assert distinctive_matches(make(count), make(other), 0.8).shape == (0, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_values_that_are_not_finite_are_refused(value: float, dtype: type) -> None:
    descriptors: Descriptors = np.ones((5, 4), dtype)
    bad = descriptors.copy()
    bad[3, 2] = value
    for first, second, name in ((bad, descriptors, "first"), (descriptors, bad, "second")):
        with pytest.raises(ValueError, match=f"descriptor 3 of the {name} set holds NaN or infinity"):
            search_matches(first, second)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (np.ones((2, 3), np.float32), np.ones((2, 3), np.float16), "differ"),
        (np.ones((2, 3), np.float32), np.ones((2, 4), np.float32), "differ"),
        (np.ones(3, np.float32), np.ones(3, np.float32), "differ"),
        (np.ones((2, 3), np.int32), np.ones((2, 3), np.int32), "floating-point"),
        (np.ones((2, 0), np.float32), np.ones((3, 0), np.float32), "0 dimensions"),
        (np.ones((2, 0), np.uint8), np.ones((3, 0), np.uint8), "0 dimensions"),
        (np.full((2, 3), 1e200), np.ones((2, 3)), r"largest value is 1e\+200; scale"),
        (np.full((2, 3), 1e-200), np.zeros((2, 3)), "largest value is 1e-200; scale"),
    ],
)
def test_descriptors_that_cannot_be_compared_are_refused(first: Descriptors, second: Descriptors, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search_matches(first, second)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("scale", ["denormal", "smallest", "largest"])
def test_the_whole_range_of_a_type_is_searched(dtype: type, scale: str) -> None:
    limits = np.finfo(dtype)
    factor = {"denormal": 64 * limits.smallest_subnormal, "smallest": limits.tiny, "largest": limits.max / 8}[scale]
    random = np.random.default_rng(0)
    first: Descriptors = (random.normal(size=(40, 5)).clip(-7, 7) * float(factor)).astype(dtype)
    second: Descriptors = (random.normal(size=(30, 5)).clip(-7, 7) * float(factor)).astype(dtype)
    second[7] = second[3]  # the first of equal items is found
    distances = np.linalg.norm(first[:, None].astype(np.float64) - second.astype(np.float64), axis=2)
    pairs: PairSearch[Descriptors] = search_matches(first, second, mutual=False)
    np.testing.assert_array_equal(pairs.indices[:, 1], distances.argmin(1))
    np.testing.assert_allclose(pairs.distances, distances.min(1), rtol=1e-12)
    np.testing.assert_allclose(pairs.second_distances, np.sort(distances, 1)[:, 1], rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_reversed_arrays_are_searched(dtype: type) -> None:
    descriptors: Descriptors = np.random.default_rng(0).integers(0, 256, (20, 4)).astype(dtype)
    pairs: PairSearch[Descriptors] = search_matches(descriptors[::-1, ::-1], descriptors[:, ::-1])
    np.testing.assert_array_equal(pairs.indices, np.stack([np.arange(20), np.arange(20)[::-1]], 1))


def test_faiss_finds_the_same() -> None:
    """On bits and vectors without equal distances."""
    faiss = pytest.importorskip("faiss")
    random = np.random.default_rng(0)
    first, second = noisy_copies(random, 700, 900, 32)
    index = faiss.IndexFlatL2(32)
    index.add(second)
    squared, expected = index.search(first, 2)
    pairs = search_matches(first, second, mutual=False)
    np.testing.assert_array_equal(pairs.indices[:, 1], expected[:, 0])
    np.testing.assert_allclose(pairs.distances, np.sqrt(squared[:, 0]), rtol=1e-3)
    np.testing.assert_allclose(pairs.second_distances, np.sqrt(squared[:, 1]), rtol=1e-3)
    packed, database = (random.integers(0, 256, (n, 32), dtype=np.uint8) for n in (700, 900))
    binary = faiss.IndexBinaryFlat(256)
    binary.add(database)
    hamming, _ = binary.search(packed, 2)
    bits = search_matches(packed, database, mutual=False)
    np.testing.assert_array_equal(np.stack([bits.distances, bits.second_distances], 1), hamming)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
@pytest.mark.parametrize("with_triton", [True, False])
@pytest.mark.parametrize("dimensions", [8, 64, 77, 128, 256, 520])
def test_gpu_results_are_the_cpus(dimensions: int, with_triton: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For vectors, copies of vectors, float16, and bits with many ties."""
    if not with_triton:
        monkeypatch.setattr(devices, "HAS_TRITON", False)
    random = np.random.default_rng(dimensions)
    first, second = noisy_copies(random, 900, 1100, dimensions)
    repeated = first[random.integers(0, 50, 700)], first[random.integers(0, 50, 900)]
    half = first.astype(np.float16), second.astype(np.float16)
    bits = tuple(random.integers(0, 256, (n, -(-dimensions // 8)), dtype=np.uint8) for n in (900, 1100))
    for a, b in ((first, second), repeated, half, bits):
        for mutual in (True, False):
            expected = search_matches(a, b, mutual)
            result = search_matches(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), mutual)
            for x, y in zip(vars(expected).values(), vars(result).values(), strict=True):
                np.testing.assert_array_equal(x, y.cpu().numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.uint8])
def test_tensors_need_not_be_contiguous(dtype: torch.dtype) -> None:
    first, second = ((100 * torch.rand(32, count)).to(dtype).T for count in (100, 90))
    for actual, expected in zip(nearest(first, second), nearest(first.contiguous(), second.contiguous()), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("exponent", [-90, -52, -40, 90])
def test_the_scale_of_float64_does_not_matter(exponent: int) -> None:
    for seed in range(3):
        random = np.random.default_rng(seed)
        first, second = (random.normal(size=(257, 2)) for _ in range(2))
        check(first * 10.0**exponent, second * 10.0**exponent)


def test_bit_strings_that_are_too_long_are_refused() -> None:
    longest = np.zeros((1, MAX_BITS // 8), np.uint8)
    assert nearest(longest, ~longest)[1].tolist() == [MAX_BITS]
    assert search_matches(longest, ~longest).second_distances.tolist() == [np.inf]
    long = np.zeros((3, MAX_BITS // 8 + 1), np.uint8)
    with pytest.raises(ValueError, match=r"^bit strings have 16,384 bits, at most 16,376 can be compared$"):
        nearest(long, long)


def test_a_failed_trial_leaves_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of threads that are started later."""

    def fail(*_: object) -> float:
        raise MemoryError

    monkeypatch.setattr(maxima, "_trial_seconds", fail)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(MemoryError):
            maxima._fastest_bit_dtype(24)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)
