"""Maxima over groups and similarities of selected groups as Triton kernels, for NVIDIA GPUs.

Formulas and results are those of `maxima`, `vectors` and `bits`. Products use the tensor cores, of float16 vectors
summed in float32 and of int8 bits ±1 summed in int32, and stay in registers: a tile of 128 x 128 is reduced to its
row and column maxima.
"""

# Triton compiles these functions as its own language, whose arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from doap.matching.padding import pad_to_multiple

GROUP_SIZE = 128
MIN_CHUNK = 32  # dimensions of one instruction
CHUNK_BYTES = 256  # of a row: the limit of shared memory
COLUMN_BLOCKS = 64  # tiles that one program computes


@triton.jit
def _maxima_kernel(
    first, second, first_squares, second_squares, forward, backward, rows_total, columns_total,
    DIMENSIONS: tl.constexpr, CHUNK: tl.constexpr, SIZE: tl.constexpr, BLOCKS: tl.constexpr,
    TOTAL: tl.constexpr, REAL: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """Compute the maxima of one group of rows and up to BLOCKS groups of columns."""
    row_group = tl.program_id(0)
    groups = columns_total // SIZE
    rows = row_group * SIZE + tl.arange(0, SIZE)
    row_offsets = rows[:, None].to(tl.int64) * DIMENSIONS
    if REAL:
        row_squares = tl.load(first_squares + rows)
    row_stride = tl.zeros((SIZE,), tl.int64) + rows_total
    start = tl.program_id(1) * BLOCKS
    channels = tl.arange(0, CHUNK)
    if DIMENSIONS == CHUNK:
        a = tl.load(first + row_offsets + channels[None, :])
    for group in range(start, tl.minimum(start + BLOCKS, groups)):
        columns = group * SIZE + tl.arange(0, SIZE)
        column_offsets = columns[None, :].to(tl.int64) * DIMENSIONS + channels[:, None]
        if DIMENSIONS == CHUNK:
            products = tl.dot(a, tl.load(second + column_offsets), out_dtype=TOTAL)
        else:
            products = tl.zeros((SIZE, SIZE), TOTAL)
            for chunk in range(0, DIMENSIONS, CHUNK):
                part = tl.load(first + row_offsets + chunk + channels[None, :])
                products = tl.dot(part, tl.load(second + column_offsets + chunk), products, out_dtype=TOTAL)
        if REAL:
            products -= row_squares[:, None] + tl.load(second_squares + columns)[None, :]
        tl.store(forward + group * row_stride + rows, tl.max(products, 1))
        if BOTH:
            tl.store(backward + row_group.to(tl.int64) * columns_total + columns, tl.max(products, 0))


@triton.jit
def _scores_kernel(
    own, other, items, groups, scores, count, dimensions,
    CHUNK: tl.constexpr, SIZE: tl.constexpr, TOTAL: tl.constexpr, REAL: tl.constexpr, OUTSIDE: tl.constexpr,
):  # fmt: skip
    """Compare one item with the items of one group: -|a - b|² / 2 in float64, or the product of bits."""
    pair = tl.program_id(0).to(tl.int64)
    item = tl.load(items + pair)
    columns = tl.load(groups + pair) * SIZE + tl.arange(0, SIZE)
    inside = columns < count
    total = tl.zeros((SIZE,), TOTAL)
    for start in range(0, dimensions, CHUNK):
        channels = start + tl.arange(0, CHUNK)
        a = tl.load(own + item * dimensions + channels, mask=channels < dimensions, other=0)
        mask = inside[:, None] & (channels[None, :] < dimensions)
        b = tl.load(other + columns[:, None] * dimensions + channels[None, :], mask=mask, other=0)
        if REAL:
            difference = a.to(tl.float64)[None, :] - b.to(tl.float64)
            total += tl.sum(difference * difference, 1)
        else:
            total += tl.sum(a.to(tl.int32)[None, :] * b.to(tl.int32), 1)
    pointers = scores + pair * SIZE + tl.arange(0, SIZE)
    if REAL:
        tl.store(pointers, tl.where(inside, -0.5 * total, float("-inf")))
    else:
        tl.store(pointers, tl.where(inside, total, OUTSIDE))


def vector_maxima(
    first: Tensor, second: Tensor, first_squares: Tensor, second_squares: Tensor, both: bool
) -> tuple[Tensor, Tensor | None]:
    """Compute the maxima of -|a - b|² / 2 from float16 vectors and half their squared norms in float32."""
    squares = (pad_to_multiple(x[:, None], GROUP_SIZE) for x in (first_squares, second_squares))
    return _maxima(first, second, tuple(squares), both)


def bit_maxima(first: Tensor, second: Tensor, both: bool) -> tuple[Tensor, Tensor | None]:
    """Compute the maxima of the products of int8 values ±1."""
    return _maxima(first, second, None, both)


def vector_scores(own: Tensor, other: Tensor, items: Tensor, groups: Tensor) -> Tensor:
    """Compare vectors with the vectors of a group each: -|a - b|² / 2, (M, size) float64, -infinity outside."""
    scores = torch.empty(len(items), GROUP_SIZE, dtype=torch.float64, device=own.device)
    return _scores(own, other, items, groups, scores, 0)


def bit_scores(own: Tensor, other: Tensor, items: Tensor, groups: Tensor, outside: int) -> Tensor:
    """Multiply items ±1 with the items of a group each: (M, size) int32, the value `outside` where there is none."""
    scores = torch.empty(len(items), GROUP_SIZE, dtype=torch.int32, device=own.device)
    return _scores(own, other, items, groups, scores, outside)


def _maxima(
    first: Tensor, second: Tensor, squares: tuple[Tensor, ...] | None, both: bool
) -> tuple[Tensor, Tensor | None]:
    counts = len(first), len(second)
    missing = -first.shape[1] % MIN_CHUNK
    a, b = (pad_to_multiple(torch.nn.functional.pad(x, (0, missing)), GROUP_SIZE).contiguous() for x in (first, second))
    dtype = torch.int32 if squares is None else torch.float32
    forward = torch.empty(len(b) // GROUP_SIZE, len(a), dtype=dtype, device=a.device)
    backward = torch.empty(len(a) // GROUP_SIZE, len(b), dtype=dtype, device=a.device) if both else None
    grid = len(a) // GROUP_SIZE, triton.cdiv(len(b), GROUP_SIZE * COLUMN_BLOCKS)
    chunk = math.gcd(a.shape[1], CHUNK_BYTES // a.element_size())
    with torch.cuda.device_of(a):
        _maxima_kernel[grid](
            a, b, *(squares or (a, b)), forward, forward if backward is None else backward, len(a), len(b),
            DIMENSIONS=a.shape[1], CHUNK=chunk, SIZE=GROUP_SIZE, BLOCKS=COLUMN_BLOCKS,
            TOTAL=tl.int32 if squares is None else tl.float32, REAL=squares is not None, BOTH=both,
            num_warps=4, num_stages=2,
        )  # fmt: skip
    return forward[:, : counts[0]], None if backward is None else backward[:, : counts[1]]


def _scores(own: Tensor, other: Tensor, items: Tensor, groups: Tensor, scores: Tensor, outside: int) -> Tensor:
    is_real = scores.dtype == torch.float64
    with torch.cuda.device_of(own):
        _scores_kernel[(len(items),)](
            own.contiguous(), other.contiguous(), items, groups, scores, len(other), own.shape[1], CHUNK=MIN_CHUNK,
            SIZE=GROUP_SIZE, TOTAL=tl.float64 if is_real else tl.int32, REAL=is_real, OUTSIDE=outside,
        )  # fmt: skip
    return scores
