"""Blurs, extrema and their refinement as Triton kernels, for NVIDIA GPUs.

Formulas are those of `scale_space` and `extrema`, with one launch per blur along an axis, one per octave for the
extrema, and one for the refinement of all. Numbers and addresses are not specialised: a kernel would be compiled again
for images whose sides are multiples of 16.
"""

# Triton compiles these functions as its own language, whose arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_HEIGHT, TILE_WIDTH = 16, 64
REFINEMENT_BLOCK = 128  # candidates
TABLES = 256  # of image sizes that are kept


@triton.jit(
    do_not_specialize=["source_stride", "target_stride", "height", "width"],
    do_not_specialize_on_alignment=["source", "target"],
)
def _blur_kernel(
    source, target, taps, source_stride, target_stride, height, width,
    VERTICAL: tl.constexpr, RADIUS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Blur a tile of an image along one axis; the border is reflected without repeating the last pixel."""
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    y = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    image = tl.program_id(2).to(tl.int64)
    inside = (y < height) & (x < width)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for tap in tl.static_range(2 * RADIUS + 1):
        if VERTICAL:
            # Twice, because the radius can exceed the side of the smallest octaves.
            row = height - 1 - tl.abs(height - 1 - tl.abs(y + (tap - RADIUS)))
            offset = tl.abs(row) * width + x
        else:
            column = width - 1 - tl.abs(width - 1 - tl.abs(x + (tap - RADIUS)))
            offset = y * width + tl.abs(column)
        total += tl.load(taps + tap) * tl.load(source + image * source_stride + offset, mask=inside, other=0.0)
    tl.store(target + image * target_stride + y * width + x, total, mask=inside)


@triton.jit(do_not_specialize=["height", "width"], do_not_specialize_on_alignment=["levels", "mask"])
def _candidates_kernel(
    levels, mask, height, width, threshold,
    BORDER: tl.constexpr, LAYERS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Mark the differences of levels not below (or not above) their 26 neighbours in a tile, for all layers."""
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    y = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    image = tl.program_id(2).to(tl.int64)
    plane = height * width
    inner_height = height - 2 * BORDER
    inner_width = width - 2 * BORDER
    inside = (y < inner_height) & (x < inner_width)
    pixel = levels + image * (LAYERS + 3) * plane + (y + BORDER) * width + (x + BORDER)
    for layer in range(LAYERS):
        here = pixel + (layer + 1) * plane
        centre = tl.load(here + plane, mask=inside, other=0.0) - tl.load(here, mask=inside, other=0.0)
        low = centre
        high = centre
        for step in tl.static_range(27):
            near = here + (step // 9 - 1) * plane + (step // 3 % 3 - 1) * width + (step % 3 - 1)
            value = tl.load(near + plane, mask=inside, other=0.0) - tl.load(near, mask=inside, other=0.0)
            low = tl.minimum(low, value)
            high = tl.maximum(high, value)
        is_extremum = ((centre > threshold) & (centre >= high)) | ((centre < -threshold) & (centre <= low))
        target = (image * LAYERS + layer) * inner_height * inner_width + y * inner_width + x
        tl.store(mask + target, is_extremum.to(tl.uint8), mask=inside)


@triton.jit
def _difference(pixel, plane, active):
    """Return the difference of a level and the one above it."""
    return tl.load(pixel + plane, mask=active, other=0.0) - tl.load(pixel, mask=active, other=0.0)


@triton.jit
def _mixed(pixel, first, second, plane, active):
    """Return the second derivative along two steps."""
    same = _difference(pixel + first + second, plane, active) + _difference(pixel - first - second, plane, active)
    crossed = _difference(pixel + first - second, plane, active) + _difference(pixel - first + second, plane, active)
    return (same - crossed) / 4


@triton.jit
def _fit(here, width, plane, active):
    """Fit a quadratic to the differences around pixels.

    Returns the offset of its extremum in x, y and layer, its value, and the second derivatives xx, yy and xy.
    """
    centre = _difference(here, plane, active)
    right, left = _difference(here + 1, plane, active), _difference(here - 1, plane, active)
    down, up = _difference(here + width, plane, active), _difference(here - width, plane, active)
    above, below = _difference(here + plane, plane, active), _difference(here - plane, plane, active)
    gx, gy, gs = (right - left) / 2, (down - up) / 2, (above - below) / 2
    xx, yy, ss = right + left - 2 * centre, down + up - 2 * centre, above + below - 2 * centre
    xy = _mixed(here, 1, width, plane, active)
    xs = _mixed(here, 1, plane, plane, active)
    ys = _mixed(here, width, plane, plane, active)
    # Cramer's rule with the adjugate of the symmetric matrix of second derivatives.
    axx, ayy, ass = yy * ss - ys * ys, xx * ss - xs * xs, xx * yy - xy * xy
    axy, axs, ays = ys * xs - xy * ss, xy * ys - yy * xs, xs * xy - ys * xx
    determinant = xx * axx + xy * axy + xs * axs
    singular = determinant == 0
    divisor = tl.where(singular, 1.0, -determinant)
    dx = tl.where(singular, 0.0, (axx * gx + axy * gy + axs * gs) / divisor)
    dy = tl.where(singular, 0.0, (axy * gx + ayy * gy + ays * gs) / divisor)
    ds = tl.where(singular, 0.0, (axs * gx + ays * gy + ass * gs) / divisor)
    return dx, dy, ds, centre + (gx * dx + gy * dy + gs * ds) / 2, xx, yy, xy


@triton.jit
def _is_near(dx, dy, ds):
    """Return whether offsets are below half a pixel and layer."""
    return (tl.abs(dx) < 0.5) & (tl.abs(dy) < 0.5) & (tl.abs(ds) < 0.5)


@triton.jit
def _round(values):
    """Round to the nearest integer, halves to even: the sum has no fractional digits."""
    bounded = tl.minimum(tl.maximum(values, -1e6), 1e6)
    return ((bounded + 12582912.0) - 12582912.0).to(tl.int64)


@triton.jit(do_not_specialize=["count"])
def _refine_kernel(
    levels, candidates, table, addresses, positions, values, count, contrast, edge,
    OCTAVES: tl.constexpr, LAYERS: tl.constexpr, BORDER: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Move candidates to the nearest pixel of their extremum, and drop those that do not converge, weak and edges."""
    item = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    active = item < count
    index = tl.load(candidates + item, mask=active, other=0)
    octave = tl.zeros((BLOCK,), tl.int64)
    for number in tl.static_range(1, OCTAVES):
        octave += (index >= tl.load(table + 4 * number)).to(tl.int64)
    index -= tl.load(table + 4 * octave)
    start = tl.load(table + 4 * octave + 1)
    height = tl.load(table + 4 * octave + 2)
    width = tl.load(table + 4 * octave + 3)
    plane = height * width
    x = BORDER + index % (width - 2 * BORDER)
    index = index // (width - 2 * BORDER)
    y = BORDER + index % (height - 2 * BORDER)
    index = index // (height - 2 * BORDER)
    layer = 1 + index % LAYERS
    image = index // LAYERS
    inside = active
    for _step in range(STEPS - 1):
        here = levels + start + ((image * (LAYERS + 3) + layer) * height + y) * width + x
        dx, dy, ds, _value, _xx, _yy, _xy = _fit(here, width, plane, active)
        moving = inside & (_is_near(dx, dy, ds) == 0)
        new_x = x + tl.where(moving, _round(dx), 0)
        new_y = y + tl.where(moving, _round(dy), 0)
        new_layer = layer + tl.where(moving, _round(ds), 0)
        inside = inside & (new_x >= BORDER) & (new_x < width - BORDER) & (new_layer >= 1) & (new_layer <= LAYERS)
        inside = inside & (new_y >= BORDER) & (new_y < height - BORDER)
        x = tl.where(inside, new_x, x)
        y = tl.where(inside, new_y, y)
        layer = tl.where(inside, new_layer, layer)
    address = start + ((image * (LAYERS + 3) + layer) * height + y) * width + x
    dx, dy, ds, value, xx, yy, xy = _fit(levels + address, width, plane, active)
    response = tl.abs(value) / 255
    trace = xx + yy
    determinant = xx * yy - xy * xy
    keep = inside & _is_near(dx, dy, ds) & (response * LAYERS >= contrast)
    keep = keep & (determinant > 0) & (trace * trace * edge < (edge + 1) * (edge + 1) * determinant)
    tl.store(addresses + item, tl.where(keep, address, -1), mask=active)
    tl.store(positions + 5 * item, octave, mask=active)
    tl.store(positions + 5 * item + 1, image, mask=active)
    tl.store(positions + 5 * item + 2, x, mask=active)
    tl.store(positions + 5 * item + 3, y, mask=active)
    tl.store(positions + 5 * item + 4, layer, mask=active)
    tl.store(values + 4 * item, dx, mask=active)
    tl.store(values + 4 * item + 1, dy, mask=active)
    tl.store(values + 4 * item + 2, ds, mask=active)
    tl.store(values + 4 * item + 3, response, mask=active)


def blur(source: Tensor, taps: Tensor, target: Tensor) -> None:
    """Blur (B, h, w) with contiguous images by (2 radius + 1,) taps along both axes; sides are above radius / 1.5."""
    count, height, width = source.shape
    between = torch.empty(source.shape, dtype=torch.float32, device=source.device)
    grid = triton.cdiv(width, TILE_WIDTH), triton.cdiv(height, TILE_HEIGHT), count
    with torch.cuda.device_of(source):
        for first, second, is_vertical in ((source, between, True), (between, target, False)):
            _blur_kernel[grid](
                first, second, taps, first.stride(0), second.stride(0), height, width, VERTICAL=is_vertical,
                RADIUS=len(taps) // 2, ROWS=TILE_HEIGHT, COLUMNS=TILE_WIDTH, num_warps=4,
            )  # fmt: skip


def find_extrema(
    octaves: list[Tensor], flat: Tensor, layers: int, border: int, steps: int, thresholds: tuple[float, float, float]
) -> tuple[Tensor, Tensor]:
    """Find and refine the extrema of the differences of Gaussian levels, one per pixel.

    Args:
        octaves: (B, layers + 3, h, w) levels per octave, contiguous one after another in `flat`.
        flat: All levels.
        layers: Layers in which extrema are found.
        border: Pixels at the border without extrema.
        steps: Steps of the refinement.
        thresholds: Of the difference at a candidate, of the contrast, and of the edges.

    Returns:
        places: (N, 5) integers: octave, image, x, y and layer, in the order of the pixels in memory.
        values: (N, 4) offset in x, y and layer, and response.
    """
    candidate_threshold, *final_thresholds = thresholds
    shapes = tuple((levels.shape[0], levels.shape[2], levels.shape[3]) for levels in octaves)
    table, sizes = _table(shapes, layers, border, flat.device)
    mask = torch.empty(sum(sizes), dtype=torch.uint8, device=flat.device)
    with torch.cuda.device_of(flat):
        for levels, part in zip(octaves, torch.split(mask, sizes), strict=True):
            count, _, height, width = levels.shape
            rows, columns = height - 2 * border, width - 2 * border
            grid = triton.cdiv(columns, TILE_WIDTH), triton.cdiv(rows, TILE_HEIGHT), count
            _candidates_kernel[grid](
                levels, part, height, width, candidate_threshold,
                BORDER=border, LAYERS=layers, ROWS=TILE_HEIGHT, COLUMNS=TILE_WIDTH, num_warps=8,
            )  # fmt: skip
        candidates = mask.nonzero()[:, 0]
        addresses = torch.empty_like(candidates)
        positions = candidates.new_empty(len(candidates), 5)
        values = flat.new_empty(len(candidates), 4)
        if len(candidates):
            _refine_kernel[(triton.cdiv(len(candidates), REFINEMENT_BLOCK),)](
                flat, candidates, table, addresses, positions, values, len(candidates), *final_thresholds,
                OCTAVES=len(octaves), LAYERS=layers, BORDER=border, STEPS=steps, BLOCK=REFINEMENT_BLOCK,
            )  # fmt: skip
    addresses, order = addresses.sort(stable=True)
    is_first = addresses >= 0
    is_first[1:] &= addresses[1:] != addresses[:-1]
    kept = order[is_first]
    return positions[kept], values[kept]


@lru_cache(TABLES)
def _table(
    shapes: tuple[tuple[int, int, int], ...], layers: int, border: int, device: torch.device
) -> tuple[Tensor, list[int]]:
    """Return start in the mask, start in the levels, height and width per octave, (O, 4), and the sizes of masks."""
    sizes = [count * layers * (height - 2 * border) * (width - 2 * border) for count, height, width in shapes]
    volumes = [count * (layers + 3) * height * width for count, height, width in shapes]
    rows = [
        [sum(sizes[:octave]), sum(volumes[:octave]), height, width] for octave, (_, height, width) in enumerate(shapes)
    ]
    return torch.tensor(rows, dtype=torch.int64).view(-1, 4).to(device), sizes
