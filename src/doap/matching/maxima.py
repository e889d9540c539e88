"""Maxima of the similarities of two sets over groups of items, without holding all similarities.

An exact search needs few of the N x K similarities. Here each tile of the product is reduced while it is in the cache:

    forward[h, i]  = max of the similarities of item i of the first set and group h of the second
    backward[h, j] = max of the similarities of item j of the second set and group h of the first

One product serves both directions. Groups are consecutive items. The nearest neighbour of an item is in a group whose
maximum equals the item's largest maximum, up to the rounding of the product.

On the CPU, one thread per core computes tiles that fit its cache. On an NVIDIA GPU with Triton, a kernel reduces the
tiles in registers (`triton_maxima`). Elsewhere the tiles are products of PyTorch.
"""

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TypeVar

import torch
from torch import Tensor

from doap import onednn
from doap.devices import uses_triton
from doap.matching.padding import pad_to_multiple

GROUP_SIZE = 128
MAX_GROUP_SIZE = 1024
MAX_ENTRIES = 1 << 24  # of the maxima of one direction, up to the largest groups: 64 MiB
KEPT_ENTRIES = 1 << 22  # of the product of small sets: 16 MiB
CPU_TILE = 512  # rows and columns: 1 MiB, the cache of one core
DEVICE_TILE = 4096
THREAD_TILES = 4  # at least, per thread
BLOCK_TILES = 4  # tiles of one task of a thread
TRIAL_ENTRIES = 1 << 20  # smaller products are not worth a trial
ROUNDING = 2.0**-23  # of one float32 operation; the tensor cores of a GPU truncate

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class GroupMaxima:
    """Largest similarities of each item to the groups of the other set.

    Attributes:
        forward: (groups of the second set, N).
        backward: (groups of the first set, K), or None if it was not requested.
        size: Items per group; the last group can be smaller.
        error: () bound of the rounding error of a similarity.
        similarities: All similarities of small sets on the CPU, (N, K) padded to multiples of `size` with
            -infinity, or None.
    """

    forward: Tensor
    backward: Tensor | None
    size: int
    error: Tensor
    similarities: Tensor | None = None


def vector_maxima(first: Tensor, second: Tensor, largest: float, both: bool) -> GroupMaxima:
    """Compute the maxima of -|a - b|² / 2, in units in which the largest absolute value is between 1/2 and 1.

    Args:
        first: (N, D) of a floating-point type.
        second: (K, D) of the same type and device.
        largest: Largest absolute value in both sets.
        both: Whether to compute the maxima of the second set, too.
    """
    exponent = math.frexp(largest)[1]
    # In float32, the factor must be finite; subnormal vectors are scaled to less than 1/2.
    scale = 2.0 ** -(exponent if first.dtype == torch.float64 else max(exponent, -100))
    a, b = ((x if x.dtype == torch.float64 else x.float()) * scale for x in (first, second))
    low_dtype = torch.float16 if uses_triton(first) else torch.float32
    low_a, low_b = a.to(low_dtype), b.to(low_dtype)
    squares_a, squares_b = _half_squares(a), _half_squares(b)
    error = _error(a.shape[1], (squares_a, squares_b), (_lost(a, low_a), _lost(b, low_b)))
    if uses_triton(first):
        kernels = import_module("doap.matching.triton_maxima")
        forward, backward = kernels.vector_maxima(low_a, low_b, squares_a, squares_b, both)
        return GroupMaxima(forward, backward, kernels.GROUP_SIZE, error)
    if torch.get_float32_matmul_precision() != "highest":  # the product can round its factors to bfloat16
        error = error + 2.0**-6 * (squares_a.amax() * squares_b.amax()).sqrt()
    # The product of these rows is a·b - |a|² / 2 - |b|² / 2.
    left = torch.cat([low_a, -squares_a[:, None], torch.ones_like(squares_a)[:, None]], 1)
    right = torch.cat([low_b, torch.ones_like(squares_b)[:, None], -squares_b[:, None]], 1)
    size = _group_size(len(a), len(b))
    forward, backward, similarities = _product_maxima(left, right, size, both, keep=True)
    return GroupMaxima(forward, backward, size, error, similarities)


def bit_maxima(first: Tensor, second: Tensor, both: bool) -> GroupMaxima:
    """Compute the maxima of the products of bits as ±1, which are exact.

    Args:
        first: (N, bits) values ±1 of the type `bit_dtype`.
        second: (K, bits) values ±1 of the same type and device.
        both: Whether to compute the maxima of the second set, too.
    """
    error = torch.zeros((), device=first.device)
    if uses_triton(first):
        kernels = import_module("doap.matching.triton_maxima")
        forward, backward = kernels.bit_maxima(first, second, both)
        return GroupMaxima(forward, backward, kernels.GROUP_SIZE, error)
    size = _group_size(len(first), len(second))
    forward, backward, _ = _product_maxima(first, second, size, both, keep=False)
    return GroupMaxima(forward, backward, size, error)


def bit_dtype(first: Tensor, second: Tensor) -> torch.dtype:
    """Return the type in which the device multiplies packed bits as ±1 fastest. All types give the same integers."""
    if uses_triton(first):
        return torch.int8
    if first.device.type != "cpu":
        return torch.float32
    if len(first) * len(second) < TRIAL_ENTRIES:
        return torch.float32
    return _fastest_bit_dtype(8 * first.shape[1])


def multiply(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Return a·bᵀ, in int32 for int8 and else in the type of the factors."""
    if a.dtype == torch.int8:
        return torch._int_mm(a, b.T) if out is None else torch._int_mm(a, b.T, out=out)
    return torch.mm(a, b.T, out=out)


def product_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of the products of `multiply`."""
    return torch.int32 if dtype == torch.int8 else dtype


def second_largest(maxima: Tensor) -> Tensor:
    """Return the second largest maximum of each item, (N,): below every similarity if there is one group."""
    lowest = -math.inf if maxima.is_floating_point() else torch.iinfo(maxima.dtype).min
    return maxima.scatter(0, maxima.argmax(0, keepdim=True), lowest).amax(0)


def group_runs(groups: Tensor) -> Iterator[tuple[int, slice]]:
    """Yield each group of an ascending sequence of groups, and where it is in the sequence."""
    numbers, counts = torch.unique_consecutive(groups, return_counts=True)
    start = 0
    for group, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        yield group, slice(start, start + count)
        start += count


@cache
def _fastest_bit_dtype(bits: int) -> torch.dtype:
    """Time one tile in each type that represents all products of ±1 exactly, on one core."""
    exact = [torch.float32, torch.int8]
    if bits <= 2048 and onednn.multiplies(torch.float16):
        exact.append(torch.float16)
    if bits <= 256 and onednn.multiplies(torch.bfloat16):
        exact.append(torch.bfloat16)
    threads = torch.get_num_threads()
    try:
        with (
            warnings.catch_warnings(),
            ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            warnings.simplefilter("ignore", UserWarning)  # torch's, of types that the CPU does not multiply itself
            seconds = list(pool.map(lambda dtype: _trial_seconds(dtype, bits, CPU_TILE // 4), exact))
            # Some types are multiplied by a plain loop here, which would take long.
            exact = [dtype for dtype, trial in zip(exact, seconds, strict=True) if trial < 4 * min(seconds)]
            seconds = list(pool.map(lambda dtype: _trial_seconds(dtype, bits, CPU_TILE), exact))
    finally:
        torch.set_num_threads(threads)  # also the default of threads started later
    return exact[seconds.index(min(seconds))]


def _trial_seconds(dtype: torch.dtype, bits: int, count: int) -> float:
    """Return the shortest time of a small product with its maxima, infinity if the type is not supported here."""
    rows = torch.ones(count, bits, dtype=dtype)
    times = []
    try:
        for _ in range(4):
            start = time.perf_counter()
            _product_maxima(rows, rows, GROUP_SIZE, both=True, keep=False)
            times.append(time.perf_counter() - start)
    except RuntimeError:
        return math.inf
    return min(times[1:])


def _half_squares(values: Tensor) -> Tensor:
    """Return half the squared norms, (N,) float32."""
    return values.square().sum(1).float() / 2


def _lost(values: Tensor, rounded: Tensor) -> Tensor:
    """Return the largest norm of the differences of vectors and their rounded values."""
    if rounded is values:
        return values.new_zeros(())
    return (values - rounded).square().sum(1).amax().sqrt()


def _error(dimensions: int, half_squares: tuple[Tensor, Tensor], lost: tuple[Tensor, Tensor]) -> Tensor:
    """Bound the error of a similarity of vectors that were rounded, which `lost` the parts of these norms.

    A sum of D products in float32 has an error of at most D roundings, in any order.
    """
    norm_a, norm_b = ((2 * x.amax()).sqrt() for x in half_squares)
    error = norm_a * lost[1] + norm_b * lost[0] + lost[0] * lost[1]
    return (error + (dimensions + 8) * ROUNDING * (norm_a + norm_b).square()).float()


def _group_size(rows: int, columns: int) -> int:
    """Return the number of items per group: more for large sets, to bound the memory of the maxima."""
    size = GROUP_SIZE
    while rows * columns > MAX_ENTRIES * size and size < MAX_GROUP_SIZE:
        size *= 2
    return size


def _product_maxima(
    a: Tensor, b: Tensor, size: int, both: bool, keep: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute the maxima of a·bᵀ over groups of rows of the other matrix, tile by tile; `keep` the products if few."""
    count, other_count = len(a), len(b)
    a, b = pad_to_multiple(a, size), pad_to_multiple(b, size)
    dtype, on_cpu = product_dtype(a.dtype), a.device.type == "cpu"
    forward = torch.empty(len(b) // size, len(a), dtype=dtype, device=a.device)
    backward = torch.empty(len(a) // size, len(b), dtype=dtype, device=a.device) if both else None
    keep = keep and on_cpu and len(a) * len(b) <= KEPT_ENTRIES
    kept = torch.empty(len(a), len(b), dtype=dtype) if keep else None
    tile = max(size, _cpu_tile(len(a), len(b)) if on_cpu else DEVICE_TILE)
    buffers = threading.local()

    def reduce_block(start: tuple[int, int]) -> None:
        rows = slice(start[0], min(start[0] + tile, len(a)))
        height = rows.stop - rows.start
        if kept is None and not hasattr(buffers, "products"):
            buffers.products = torch.empty(tile * tile, dtype=dtype, device=a.device)
        for column in range(start[1], min(start[1] + BLOCK_TILES * tile, len(b)), tile):
            columns = slice(column, min(column + tile, len(b)))
            width = columns.stop - columns.start
            products = buffers.products[: height * width].view(height, width) if kept is None else kept[rows, columns]
            multiply(a[rows], b[columns], out=products)
            row_maxima = products.view(height, -1, size).amax(2)
            forward[columns.start // size : columns.stop // size, rows] = row_maxima.T
            if backward is not None:
                groups = slice(rows.start // size, rows.stop // size)
                torch.amax(products.view(-1, size, width), 1, out=backward[groups, columns])

    blocks = [(i, j) for i in range(0, len(a), tile) for j in range(0, len(b), BLOCK_TILES * tile)]
    parallel_map(reduce_block, blocks, a.device)
    if kept is not None:
        kept[count:], kept[:, other_count:] = -math.inf, -math.inf
    return forward[:, :count], None if backward is None else backward[:, :other_count], kept


def _cpu_tile(rows: int, columns: int) -> int:
    """Return the side of a tile: larger for more threads, of which one at a time runs Python between two tiles."""
    threads = torch.get_num_threads()
    tile = CPU_TILE
    while threads * CPU_TILE**2 > tile**2 and rows * columns >= THREAD_TILES * threads * (2 * tile) ** 2:
        tile *= 2
    return tile


def parallel_map(function: Callable[[Task], Result], tasks: Sequence[Task], device: torch.device) -> list[Result]:
    """Call a function for each task: on the CPU in as many threads as PyTorch uses, each with one thread of its own."""
    threads = torch.get_num_threads()
    workers = min(threads, len(tasks) // 2) if device.type == "cpu" else 1
    if workers <= 1:
        return [function(task) for task in tasks]
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(function, tasks))
    finally:
        torch.set_num_threads(threads)  # also the default of threads started later
