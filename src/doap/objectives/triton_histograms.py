"""The two passes of the fused histograms as Triton kernels, for NVIDIA GPUs and float32 descriptors.

Formulas, arguments and results are those of `tiled_histograms`. Distances stay in registers. Their inner products use
the tensor cores: a float32 descriptor is split into two bfloat16 parts,

    F = high + low + O(2⁻¹⁸)

whose products are exact and are summed in float32.

First pass: a row's count in bin k is summed over a tile, for the bins that the tile's distances fall into, and added
to the row's histogram in fixed point, in units of 2⁻²⁴. Integer addition does not depend on the order, so the result
is deterministic. Second pass: a program computes its rows, and sums its share of the columns in a fixed order.
"""

# Triton compiles these functions as its own language, whose arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from doap.objectives.average_precision import zero_threshold
from doap.objectives.lists import RankedLists

SCALE = 1 << 24  # fixed point: a count of one
TARGET_PROGRAMS = 1024  # enough to fill any GPU: short lists have too few rows
MAX_CHUNK = 256  # dimensions at once: the limit of registers and shared memory


@triton.jit
def _block(base, rows, columns, items, dimensions):
    """Load a block of a matrix of descriptors, 0 outside it."""
    inside = (rows[:, None] < items) & (columns[None, :] < dimensions)
    return tl.load(base + rows[:, None].to(tl.int64) * dimensions + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _split_kernel(values, high, low, count, SIZE: tl.constexpr):
    """Split float32 values into a bfloat16 part and the bfloat16 rest."""
    offsets = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    value = tl.load(values + offsets, mask=offsets < count, other=0.0)
    upper = value.to(tl.bfloat16)
    tl.store(high + offsets, upper, mask=offsets < count)
    tl.store(low + offsets, (value - upper.to(tl.float32)).to(tl.bfloat16), mask=offsets < count)


@triton.jit
def _pairs(
    high, low, groups, labels, table, rows, columns,
    items, dimensions, table_size, half_dimensions, inverse_width, threshold,
    bins: tl.constexpr, REAL: tl.constexpr, IGNORE: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the distance in bin widths of each pair of a tile, whether it is in a list, and whether it matches."""
    products = tl.zeros((ROWS, COLUMNS), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        channels = chunk * CHUNK + tl.arange(0, CHUNK)
        a_high = _block(high, rows, channels, items, dimensions)
        a_low = _block(low, rows, channels, items, dimensions)
        b_high = _block(high, columns, channels, items, dimensions)
        b_low = _block(low, columns, channels, items, dimensions)
        products = tl.dot(a_low, tl.trans(b_low), products)
        products = tl.dot(a_low, tl.trans(b_high), products)
        products = tl.dot(a_high, tl.trans(b_low), products)
        products = tl.dot(a_high, tl.trans(b_high), products)
    if REAL:
        squared = 2.0 - 2.0 * products
        distance = tl.sqrt(tl.where(squared > threshold, squared, 0.0))
    else:
        distance = half_dimensions - 0.5 * products
    position = tl.minimum(tl.maximum(distance * inverse_width, 0.0), bins)
    is_listed = (rows[:, None] != columns[None, :]) & (rows[:, None] < items) & (columns[None, :] < items)
    row_groups = tl.load(groups + rows, mask=rows < items, other=0)
    column_groups = tl.load(groups + columns, mask=columns < items, other=0)
    is_match = row_groups[:, None] == column_groups[None, :]
    if IGNORE:
        row_labels = tl.load(labels + rows, mask=rows < items, other=0)
        column_labels = tl.load(labels + columns, mask=columns < items, other=0)
        ignored = tl.load(table + row_labels[:, None] * table_size + column_labels[None, :])
        is_listed = is_listed & (is_match | (ignored == 0))
    return position, is_listed, is_listed & is_match


@triton.jit
def _may_match(groups, first_row, first_column, items, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return whether a tile can hold a match: groups are sorted, so only where their ranges overlap."""
    last_row = tl.minimum(first_row + ROWS, items) - 1
    last_column = tl.minimum(first_column + COLUMNS, items) - 1
    ahead = tl.load(groups + first_row) > tl.load(groups + last_column)
    behind = tl.load(groups + last_row) < tl.load(groups + first_column)
    return (ahead | behind) == 0


@triton.jit
def _ramp(position, k):
    """Return position - k clamped to [0, 1], in one instruction."""
    k = k.to(tl.float32) + tl.zeros_like(position)
    return tl.inline_asm_elementwise(
        "sub.sat.f32 $0, $1, $2;", "=f,f,f", [position, k], dtype=tl.float32, is_pure=True, pack=1
    )  # fmt: skip


@triton.jit
def _count(histogram, position, selected, rows, first_row, end_row, bins: tl.constexpr, SCALE: tl.constexpr):
    """Add the selected pairs of a tile to the histograms of its rows.

    δ(p, k) = ramp(p, k - 1) - ramp(p, k), and the second ramp is the first of the next bin: one ramp per pair
    and bin.
    """
    lowest = tl.min(tl.min(tl.where(selected, position, bins), 1), 0).to(tl.int32)
    position = tl.where(selected, position, -2.0)  # every ramp is 0 there
    highest = tl.minimum(tl.max(tl.max(position, 1), 0).to(tl.int32) + 1, bins)
    pointers = histogram + (rows - first_row).to(tl.int64) * (bins + 1)
    above = tl.sum(selected.to(tl.float32), axis=1)  # the ramp up to the lowest bin is 1 for every selected pair
    for k in range(lowest, highest + 1):
        above_next = tl.sum(_ramp(position, k), axis=1)
        count = above - above_next
        tl.atomic_add(pointers + k, (count * SCALE).to(tl.int64), mask=(rows < end_row) & (count > 0), sem="relaxed")
        above = above_next


@triton.jit
def _histogram_kernel(
    high, low, groups, labels, table, matches, ranked,
    items, dimensions, first_row, end_row, table_size, half_dimensions, inverse_width, threshold,
    bins: tl.constexpr, REAL: tl.constexpr, IGNORE: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
    SCALE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    start = first_row + tl.program_id(0) * ROWS
    rows = start + tl.arange(0, ROWS)
    for block in range(tl.program_id(1), tl.cdiv(items, COLUMNS), tl.num_programs(1)):
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        position, is_listed, is_match = _pairs(
            high, low, groups, labels, table, rows, columns,
            items, dimensions, table_size, half_dimensions, inverse_width, threshold,
            bins, REAL, IGNORE, CHUNK, CHUNKS, ROWS, COLUMNS,
        )  # fmt: skip
        _count(ranked, position, is_listed, rows, first_row, end_row, bins, SCALE)
        if _may_match(groups, start, block * COLUMNS, items, ROWS, COLUMNS):
            _count(matches, position, is_match, rows, first_row, end_row, bins, SCALE)


@triton.jit
def _slope(steps, indices, lower_bin, selected, bins: tl.constexpr):
    """Load ∂L/∂h_{k+1} - ∂L/∂h_k from the rows `indices` of `steps`, k the lower bin of each pair."""
    return tl.load(steps + indices * bins + tl.minimum(lower_bin, bins - 1), mask=selected, other=0.0)


@triton.jit
def _gradient_kernel(
    high, low, groups, labels, table, match_steps, steps, gradient,
    items, dimensions, first_row, end_row, table_size, half_dimensions, inverse_width, threshold,
    bins: tl.constexpr, REAL: tl.constexpr, IGNORE: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    start = first_row + tl.program_id(0) * ROWS
    rows = start + tl.arange(0, ROWS)
    channels = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    total = tl.zeros((ROWS, CHUNK), tl.float32)
    for block in range(tl.program_id(1), tl.cdiv(items, COLUMNS), tl.num_programs(1)):
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        position, is_listed, is_match = _pairs(
            high, low, groups, labels, table, rows, columns,
            items, dimensions, table_size, half_dimensions, inverse_width, threshold,
            bins, REAL, IGNORE, CHUNK, CHUNKS, ROWS, COLUMNS,
        )  # fmt: skip
        lower_bin = position.to(tl.int32)
        grad_position = _slope(steps, rows[:, None], lower_bin, is_listed, bins)
        grad_position += _slope(steps, columns[None, :], lower_bin, is_listed, bins)
        if _may_match(groups, start, block * COLUMNS, items, ROWS, COLUMNS):
            grad_position += _slope(match_steps, rows[:, None], lower_bin, is_match, bins)
            grad_position += _slope(match_steps, columns[None, :], lower_bin, is_match, bins)
        if REAL:  # ∂D/∂F(x) = -F(x') / D, and 0 at D = 0; D is position / inverse_width
            grad_product = tl.where(position > 0, -grad_position * inverse_width * inverse_width / position, 0.0)
        else:  # ∂D/∂F(x) = -F(x') / 2
            grad_product = -0.5 * inverse_width * grad_position
        grad_high = grad_product.to(tl.bfloat16)
        grad_low = (grad_product - grad_high.to(tl.float32)).to(tl.bfloat16)
        b_high = _block(high, columns, channels, items, dimensions)
        b_low = _block(low, columns, channels, items, dimensions)
        total = tl.dot(grad_low, b_high, total)
        total = tl.dot(grad_high, b_low, total)
        total = tl.dot(grad_high, b_high, total)
    output_rows = tl.program_id(1) * (end_row - first_row) + rows - first_row
    inside = (rows[:, None] < end_row) & (channels[None, :] < dimensions)
    tl.store(gradient + output_rows[:, None].to(tl.int64) * dimensions + channels[None, :], total, mask=inside)


def histograms(descriptors: Tensor, lists: RankedLists) -> tuple[Tensor, Tensor]:
    """Compute h⁺ and h of the queries in `lists.rows` as `tiled_histograms.histograms` does: the first pass."""
    rows, columns = 64, 128
    sums = torch.zeros(2, len(lists.rows), lists.bins + 1, dtype=torch.int64, device=descriptors.device)
    if len(lists.rows):
        row_tiles = _tile_count(len(lists.rows), rows)
        tensors, numbers, constants = _arguments(descriptors, lists)
        _histogram_kernel[row_tiles, _splits(row_tiles, len(descriptors), columns)](
            *tensors, sums[0], sums[1], *numbers, **constants, SCALE=SCALE, ROWS=rows, COLUMNS=columns, num_stages=1
        )
    counts = sums.float().div_(SCALE)
    counts.add_(descriptors.sum(), alpha=0)  # propagates NaN, which integers cannot hold
    matches, ranked = counts
    return matches, ranked


def descriptor_gradient(descriptors: Tensor, lists: RankedLists, grad_matches: Tensor, grad_ranked: Tensor) -> Tensor:
    """Compute the gradient of the descriptors as `tiled_histograms.descriptor_gradient` does: the second pass."""
    rows, columns = 64, 32
    row_tiles = _tile_count(len(lists.rows), rows)
    splits = _splits(row_tiles, len(descriptors), columns)
    gradient = descriptors.new_empty(splits, len(lists.rows), descriptors.shape[1])
    if len(lists.rows):
        tensors, numbers, constants = _arguments(descriptors, lists)
        # Not pipelined (num_stages = 1): the same block is an operand both plain and transposed.
        _gradient_kernel[row_tiles, splits, constants["CHUNKS"]](
            *tensors, grad_matches.diff(dim=1), grad_ranked.diff(dim=1), gradient, *numbers, **constants,
            ROWS=rows, COLUMNS=columns, num_stages=1,
        )  # fmt: skip
    return gradient.sum(0)


def _tile_count(length: int, side: int) -> int:
    return -(-length // side)


def _splits(row_tiles: int, items: int, columns: int) -> int:
    """Return the number of programs that share one row of tiles."""
    return max(1, min(_tile_count(items, columns), TARGET_PROGRAMS // max(row_tiles, 1)))


def _arguments(
    descriptors: Tensor, lists: RankedLists
) -> tuple[list[Tensor], list[int | float], dict[str, int | bool]]:
    """Return the arguments of both kernels: tensors, numbers and compile-time constants."""
    items, dimensions = descriptors.shape
    high, low = torch.empty(2, items, dimensions, dtype=torch.bfloat16, device=descriptors.device)
    _split_kernel[_tile_count(descriptors.numel(), 1024),](descriptors, high, low, descriptors.numel(), SIZE=1024)
    ignore = lists.ignore
    labels, table = (lists.groups, lists.groups) if ignore is None else (ignore.labels, ignore.table.to(torch.uint8))
    chunk = min(MAX_CHUNK, max(16, 1 << (dimensions - 1).bit_length()))
    return (
        [high, low, lists.groups, labels, table],
        [
            *(items, dimensions, lists.rows.start, lists.rows.stop, 0 if ignore is None else len(ignore.table)),
            *(dimensions / 2, 1 / lists.width, zero_threshold(torch.float32)),
        ],
        {
            "bins": lists.bins,
            "REAL": lists.kind == "real",
            "IGNORE": ignore is not None,
            "CHUNK": chunk,
            "CHUNKS": _tile_count(dimensions, chunk),
        },
    )
