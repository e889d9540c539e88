"""The two passes over all pairs as Triton kernels, for NVIDIA GPUs; arguments and results as in `tiles`.

Distances never leave the registers. Their inner products come from the tensor cores: a float32 descriptor is
split into two bfloat16 parts, F = high + low + O(2⁻¹⁸), whose products are exact and summed in float32.

First pass: a row's count in bin k is summed over a tile, for the bins that the tile's distances reach, and is
added to the row's histogram as a whole number of 2⁻²⁴ths. Whole numbers do not care in
which order they are added, so the result is the same every time. Second pass: a program owns its rows, and
sums a part of the columns in a fixed order.
"""

# Triton reads these functions as its own language, in which arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from doap.objectives.average_precision import same_below
from doap.objectives.lists import Lists

ONE = 1 << 24  # a count of one in a histogram of whole numbers
PROGRAMS = 1024  # enough to fill any GPU: rows alone are too few in a short list
LARGEST_CHUNK = 256  # dimensions at once: what registers and shared memory hold


@triton.jit
def _block(base, rows, columns, items, dimensions):
    """Rows of a matrix of descriptors, 0 outside it."""
    inside = (rows[:, None] < items) & (columns[None, :] < dimensions)
    return tl.load(base + rows[:, None].to(tl.int64) * dimensions + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _split_kernel(values, high, low, count, SIZE: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    value = tl.load(values + place, mask=place < count, other=0.0)
    upper = value.to(tl.bfloat16)
    tl.store(high + place, upper, mask=place < count)
    tl.store(low + place, (value - upper.to(tl.float32)).to(tl.bfloat16), mask=place < count)


@triton.jit
def _pairs(
    high, low, groups, labels, table, rows, columns, items, dimensions, table_size, half_reach, per_width, same,
    bins: tl.constexpr, REAL: tl.constexpr, IGNORE: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Of each pair of a tile: its distance in bin widths, whether it is in a list, whether it matches."""
    products = tl.zeros((ROWS, COLUMNS), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        part = chunk * CHUNK + tl.arange(0, CHUNK)
        a_high, a_low = _block(high, rows, part, items, dimensions), _block(low, rows, part, items, dimensions)
        b_high, b_low = _block(high, columns, part, items, dimensions), _block(low, columns, part, items, dimensions)
        products = tl.dot(a_low, tl.trans(b_low), products)
        products = tl.dot(a_low, tl.trans(b_high), products)
        products = tl.dot(a_high, tl.trans(b_low), products)
        products = tl.dot(a_high, tl.trans(b_high), products)
    if REAL:
        squared = 2.0 - 2.0 * products
        distance = tl.sqrt(tl.where(squared > same, squared, 0.0))
    else:
        distance = half_reach - 0.5 * products
    position = tl.minimum(tl.maximum(distance * per_width, 0.0), bins)
    listed = (rows[:, None] != columns[None, :]) & (rows[:, None] < items) & (columns[None, :] < items)
    of_rows = tl.load(groups + rows, mask=rows < items, other=0)
    of_columns = tl.load(groups + columns, mask=columns < items, other=0)
    match = of_rows[:, None] == of_columns[None, :]
    if IGNORE:
        row_labels = tl.load(labels + rows, mask=rows < items, other=0)
        column_labels = tl.load(labels + columns, mask=columns < items, other=0)
        ignored = tl.load(table + row_labels[:, None] * table_size + column_labels[None, :])
        listed = listed & (match | (ignored == 0))
    return position, listed, listed & match


@triton.jit
def _may_match(groups, first_row, first_column, items, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Whether a tile can hold a match: groups are sorted, so only where their ranges meet."""
    last_row = tl.minimum(first_row + ROWS, items) - 1
    last_column = tl.minimum(first_column + COLUMNS, items) - 1
    ahead = tl.load(groups + first_row) > tl.load(groups + last_column)
    behind = tl.load(groups + last_row) < tl.load(groups + first_column)
    return (ahead | behind) == 0


@triton.jit
def _ramp(position, k):
    """(position - k) clamped to [0, 1], in one instruction."""
    k = k.to(tl.float32) + tl.zeros_like(position)
    return tl.inline_asm_elementwise(
        "sub.sat.f32 $0, $1, $2;", "=f,f,f", [position, k], dtype=tl.float32, is_pure=True, pack=1
    )  # fmt: skip


@triton.jit
def _count(histogram, position, chosen, rows, first_row, end_row, bins: tl.constexpr, ONE: tl.constexpr):
    """Add the chosen pairs of a tile to the histograms of its rows.

    δ(p, k) is the difference of two ramps, from k - 1 to k and from k to k + 1, and the second is the first of
    the next bin: one ramp a pair and a bin.
    """
    lowest = tl.min(tl.min(tl.where(chosen, position, bins), 1), 0).to(tl.int32)
    position = tl.where(chosen, position, -2.0)  # under every ramp
    highest = tl.minimum(tl.max(tl.max(position, 1), 0).to(tl.int32) + 1, bins)
    place = histogram + (rows - first_row).to(tl.int64) * (bins + 1)
    above = tl.sum(chosen.to(tl.float32), axis=1)  # no pair is under the ramp that ends at the lowest
    for k in range(lowest, highest + 1):
        above_next = tl.sum(_ramp(position, k), axis=1)
        count = above - above_next
        tl.atomic_add(place + k, (count * ONE).to(tl.int64), mask=(rows < end_row) & (count > 0), sem="relaxed")
        above = above_next


@triton.jit
def _histogram_kernel(
    high, low, groups, labels, table, matches, ranked,
    items, dimensions, first_row, end_row, table_size, half_reach, per_width, same,
    bins: tl.constexpr, REAL: tl.constexpr, IGNORE: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
    ONE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    start = first_row + tl.program_id(0) * ROWS
    rows = start + tl.arange(0, ROWS)
    for block in range(tl.program_id(1), tl.cdiv(items, COLUMNS), tl.num_programs(1)):
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        position, listed, match = _pairs(
            high, low, groups, labels, table, rows, columns, items, dimensions, table_size, half_reach, per_width,
            same, bins, REAL, IGNORE, CHUNK, CHUNKS, ROWS, COLUMNS,
        )  # fmt: skip
        _count(ranked, position, listed, rows, first_row, end_row, bins, ONE)
        if _may_match(groups, start, block * COLUMNS, items, ROWS, COLUMNS):
            _count(matches, position, match, rows, first_row, end_row, bins, ONE)


@triton.jit
def _slope(steps, lines, below, chosen, bins: tl.constexpr):
    """∂L/∂h_{k+1} - ∂L/∂h_k in the histograms of `lines`, for the bin k below each pair."""
    return tl.load(steps + lines * bins + tl.minimum(below, bins - 1), mask=chosen, other=0.0)


@triton.jit
def _gradient_kernel(
    high, low, groups, labels, table, match_steps, steps, gradient,
    items, dimensions, first_row, end_row, table_size, half_reach, per_width, same,
    bins: tl.constexpr, REAL: tl.constexpr, IGNORE: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    start = first_row + tl.program_id(0) * ROWS
    rows = start + tl.arange(0, ROWS)
    part = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    total = tl.zeros((ROWS, CHUNK), tl.float32)
    for block in range(tl.program_id(1), tl.cdiv(items, COLUMNS), tl.num_programs(1)):
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        position, listed, match = _pairs(
            high, low, groups, labels, table, rows, columns, items, dimensions, table_size, half_reach, per_width,
            same, bins, REAL, IGNORE, CHUNK, CHUNKS, ROWS, COLUMNS,
        )  # fmt: skip
        below = position.to(tl.int32)
        by_position = _slope(steps, rows[:, None], below, listed, bins)
        by_position += _slope(steps, columns[None, :], below, listed, bins)
        if _may_match(groups, start, block * COLUMNS, items, ROWS, COLUMNS):
            by_position += _slope(match_steps, rows[:, None], below, match, bins)
            by_position += _slope(match_steps, columns[None, :], below, match, bins)
        if REAL:  # ∂D/∂F(x) = -F(x') / D, and 0 at D = 0; D is position / per_width
            by_product = tl.where(position > 0, -by_position * per_width * per_width / position, 0.0)
        else:  # ∂D/∂F(x) = -F(x') / 2
            by_product = -0.5 * per_width * by_position
        by_high = by_product.to(tl.bfloat16)
        by_low = (by_product - by_high.to(tl.float32)).to(tl.bfloat16)
        b_high, b_low = _block(high, columns, part, items, dimensions), _block(low, columns, part, items, dimensions)
        total = tl.dot(by_low, b_high, total)
        total = tl.dot(by_high, b_low, total)
        total = tl.dot(by_high, b_high, total)
    line = tl.program_id(1) * (end_row - first_row) + rows - first_row
    inside = (rows[:, None] < end_row) & (part[None, :] < dimensions)
    tl.store(gradient + line[:, None].to(tl.int64) * dimensions + part[None, :], total, mask=inside)


def histograms(descriptors: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
    """First pass: h⁺ and h of the queries in `lists.rows`, for float32 descriptors; see `tiles.histograms`."""
    rows, columns = 64, 128
    sums = torch.zeros(2, len(lists.rows), lists.bins + 1, dtype=torch.int64, device=descriptors.device)
    if len(lists.rows):
        lines = _tiles(len(lists.rows), rows)
        tensors, numbers, constants = _arguments(descriptors, lists)
        _histogram_kernel[lines, _splits(lines, len(descriptors), columns)](
            *tensors, sums[0], sums[1], *numbers, **constants, ONE=ONE, ROWS=rows, COLUMNS=columns, num_stages=1
        )
    counts = sums.float().div_(ONE)
    counts.add_(descriptors.sum(), alpha=0)  # what is not a number among the descriptors, whole numbers would hide
    matches, ranked = counts
    return matches, ranked


def descriptor_gradient(descriptors: Tensor, lists: Lists, by_matches: Tensor, by_ranked: Tensor) -> Tensor:
    """Second pass: the gradient by the descriptors in `lists.rows`; see `tiles.descriptor_gradient`."""
    rows, columns = 64, 32
    lines = _tiles(len(lists.rows), rows)
    splits = _splits(lines, len(descriptors), columns)
    gradient = descriptors.new_empty(splits, len(lists.rows), descriptors.shape[1])
    if len(lists.rows):
        tensors, numbers, constants = _arguments(descriptors, lists)
        # Not pipelined (num_stages = 1): the same block is an operand both as it is and transposed.
        _gradient_kernel[lines, splits, constants["CHUNKS"]](
            *tensors, by_matches.diff(dim=1), by_ranked.diff(dim=1), gradient, *numbers, **constants,
            ROWS=rows, COLUMNS=columns, num_stages=1,
        )  # fmt: skip
    return gradient.sum(0)


def _tiles(length: int, side: int) -> int:
    return -(-length // side)


def _splits(lines: int, items: int, columns: int) -> int:
    """How many programs share a line of tiles."""
    return max(1, min(_tiles(items, columns), PROGRAMS // max(lines, 1)))


def _arguments(descriptors: Tensor, lists: Lists) -> tuple[list[Tensor], list[int | float], dict[str, int | bool]]:
    """What both kernels take: tensors, numbers, and what they are compiled for."""
    items, dimensions = descriptors.shape
    high, low = torch.empty(2, items, dimensions, dtype=torch.bfloat16, device=descriptors.device)
    _split_kernel[_tiles(descriptors.numel(), 1024),](descriptors, high, low, descriptors.numel(), SIZE=1024)
    ignore = lists.ignore
    labels, table = (lists.groups, lists.groups) if ignore is None else (ignore.labels, ignore.table.to(torch.uint8))
    chunk = min(LARGEST_CHUNK, max(16, 1 << (dimensions - 1).bit_length()))
    return (
        [high, low, lists.groups, labels, table],
        [
            *(items, dimensions, lists.rows.start, lists.rows.stop, 0 if ignore is None else len(ignore.table)),
            *(dimensions / 2, 1 / lists.width, same_below(torch.float32)),
        ],
        {
            "bins": lists.bins,
            "REAL": lists.kind == "real",
            "IGNORE": ignore is not None,
            "CHUNK": chunk,
            "CHUNKS": _tiles(dimensions, chunk),
        },
    )
