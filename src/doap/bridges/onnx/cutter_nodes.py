"""Nodes that extract patches at frames of an image, as `doap.images.extraction` does.

The number of levels of the pyramid is part of the graph, their sizes are not. All levels lie one after the other in one
array, from which the pixels of every patch are gathered. Positions are relative to the first sample of a patch, so that
float32 is as accurate as OpenCV's extraction; what is computed per frame is float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from doap.images.extraction import MAX_COORDINATE, MIN_SIDE
from doap.images.opencv_extraction import SUPERSAMPLING
from doap.networks.int8.graph_builder import GraphBuilder, Operand

MAX_LEVELS = 12
"""Levels of the pyramid in the graph: all that images with a shorter side of up to 30,720 pixels have."""


@dataclass(frozen=True)
class _Levels:
    """Names of the pixels of all levels, (P,) float32, and tables, (MAX_LEVELS,) int32.

    Attributes:
        pixels: Pixels of all levels.
        starts: Index of the first pixel of each level.
        heights: Rows of each level.
        widths: Columns of each level.
        last: Number of the smallest level to use, a scalar.
    """

    pixels: str
    starts: str
    heights: str
    widths: str
    last: str


@dataclass(frozen=True)
class _Axis:
    """Names of values, (N, 1, 1), that give the positions of samples along x or y.

    Attributes:
        per_column: Step per column of samples.
        per_row: Step per row of samples.
        fraction: Fraction of the position of the first sample.
        origin: Whole part of that position, int32.
        last: Last pixel of the level, int32.
    """

    per_column: str
    per_row: str
    fraction: str
    origin: str
    last: str


def add_cutter(graph: GraphBuilder, image: str, frames: str, size: int, extent: float) -> str:
    """Add the extraction of patches.

    Args:
        graph: Graph to add to.
        image: Name of an (H, W) uint8 image; H and W are known when the graph runs.
        frames: Name of (N, 2, 3) float32 frames.
        size: Side of the patches in pixels.
        extent: Half the side of the patch in units of the frame's scale.

    Returns:
        Name of (N, size, size) float32 patches of whole grey values in 0..255.
    """
    add = graph.add_node
    levels = _add_levels(graph, image)
    numbers, frame_values = _add_frames(graph, frames, levels.last, size, extent)
    start, height, width = (
        _per_patch(graph, add("Gather", [table, numbers])) for table in (levels.starts, levels.heights, levels.widths)
    )
    axes = [_add_axis(graph, axis, frame_values, sides) for axis, sides in enumerate((width, height))]
    samples: list[Operand] = []
    phases = np.arange(SUPERSAMPLING * size, dtype=np.float32).reshape(size, SUPERSAMPLING).T
    for rows in phases:  # one sample per pixel at a time: less memory than all at once
        for columns in phases:
            positions = [_add_positions(graph, axis, columns, rows[:, None]) for axis in axes]
            samples.append(_add_samples(graph, levels.pixels, start, width, positions))
    means = add("Mul", [add("Sum", samples), np.float32(1 / SUPERSAMPLING**2)])
    return add("Clip", [add("Round", [means]), np.float32(0), np.float32(255)])


def _add_frames(graph: GraphBuilder, frames: str, last: str, size: int, extent: float) -> tuple[str, list[str]]:
    """Add what positions in the level of each frame depend on, as `extraction._extract_by_opencv`.

    Returns:
        Names of the level, (N,) int32; and of the steps between samples, (N, 2, 2) float32, the fraction, (N, 2)
        float32, and the whole part, (N, 2) int32, of the position of the first sample.
    """
    add = graph.add_node
    is_finite = add("Less", [add("Abs", [frames]), np.float32(np.inf)])
    finite = add("Where", [is_finite, frames, np.float32(0)])
    finite = add("Clip", [finite, np.float32(-MAX_COORDINATE), np.float32(MAX_COORDINATE)])
    exact = add("Cast", [finite], to=TensorProto.DOUBLE)
    shapes = add("Slice", [exact, np.array([0]), np.array([2]), np.array([2])])
    centres = add("Gather", [exact, np.int64(2)], axis=2)
    numbers = _add_level_numbers(graph, shapes, last, extent / size)
    shrink = add("Unsqueeze", [add("Gather", [0.5 ** np.arange(MAX_LEVELS), numbers]), np.array([1])])
    # The first sample lies at -1 + 1 / fine of the patch's coordinates, and samples are 2 / fine apart.
    fine = SUPERSAMPLING * size
    spacing = add("Mul", [add("Unsqueeze", [shrink, np.array([2])]), np.float64(2 * extent / fine)])
    steps = add("Mul", [shapes, spacing])
    half = add("Mul", [add("ReduceSum", [steps, np.array([2])], keepdims=0), np.float64((fine - 1) / 2)])
    # Pixel centres: x of the image lies at (x + 0.5) / 2^l - 0.5 of level l.
    centres = add("Sub", [add("Mul", [add("Add", [centres, np.float64(0.5)]), shrink]), np.float64(0.5)])
    first = add("Sub", [centres, half])
    whole = add("Floor", [first])
    origin = add("Cast", [whole], to=TensorProto.INT32)
    fraction = add("Cast", [add("Sub", [first, whole])], to=TensorProto.FLOAT)
    return numbers, [add("Cast", [steps], to=TensorProto.FLOAT), fraction, origin]


def _per_patch(graph: GraphBuilder, values: str) -> str:
    """Reshape (N,) to (N, 1, 1)."""
    return graph.add_node("Unsqueeze", [values, np.array([1, 2])])


def _add_levels(graph: GraphBuilder, image: str) -> _Levels:
    """Add the pyramid of an image, low-passed and halved as by `extraction._halve`."""
    add = graph.add_node
    plane = add("Unsqueeze", [add("Cast", [image], to=TensorProto.FLOAT), np.array([0, 1])])
    taps = np.array([1, 3, 3, 1], np.float32) / 8
    kernel = graph.add_constant(np.outer(taps, taps)[None, None])
    flat: list[Operand] = [add("Reshape", [plane, np.array([-1])])]
    for _ in range(MAX_LEVELS - 1):
        # Two pixels after the last one serve sides of both parities: the last of an even side is not read.
        padded = add("Pad", [plane, np.array([0, 0, 1, 1, 0, 0, 2, 2])], mode="edge")
        plane = add("Conv", [padded, kernel], strides=[2, 2])
        flat.append(add("Reshape", [plane, np.array([-1])]))
    factors = 2 ** np.arange(MAX_LEVELS, dtype=np.int32)
    shape = add("Cast", [add("Shape", [image])], to=TensorProto.INT32)
    heights, widths = (
        add("Div", [add("Add", [add("Gather", [shape, np.int64(axis)]), factors - 1]), factors]) for axis in (0, 1)
    )
    areas = add("Mul", [heights, widths])
    starts = add("CumSum", [areas, np.int64(0)], exclusive=1)
    is_halved = add("GreaterOrEqual", [add("Min", [heights, widths]), np.int32(MIN_SIDE)])
    last = add("ReduceSum", [add("Cast", [is_halved], to=TensorProto.INT32), np.array([0])], keepdims=0)
    return _Levels(add("Concat", flat, axis=0), starts, heights, widths, last)


def _add_level_numbers(graph: GraphBuilder, shapes: str, last: str, factor: float) -> str:
    """Add the level of each frame, (N,) int32, of (N, 2, 2) float64 shapes, as `Pyramid.level_numbers`.

    The pixel spacing is `factor` times the sum and difference of the axes of the shape, which are hypotenuses.
    """
    add = graph.add_node
    # Rows of `signs` give a + d, b - c, a - d and b + c of the shape (a, b; c, d).
    signs = np.array([[1, 0, 0, 1], [0, 1, -1, 0], [1, 0, 0, -1], [0, 1, 1, 0]], np.float64)
    entries = add("MatMul", [add("Reshape", [shapes, np.array([0, 4])]), signs.T])
    squares = add("Reshape", [add("Mul", [entries, entries]), np.array([0, 2, 2])])
    hypotenuses = add("Sqrt", [add("ReduceSum", [squares, np.array([2])], keepdims=0)])
    spacing = add("Mul", [add("ReduceSum", [hypotenuses, np.array([1])], keepdims=1), np.float64(factor)])
    # Comparisons with powers of 2 instead of a logarithm, which runtimes round differently.
    reached = add("GreaterOrEqual", [spacing, 2.0 ** np.arange(1, MAX_LEVELS)])
    counts = add("ReduceSum", [add("Cast", [reached], to=TensorProto.INT32), np.array([1])], keepdims=0)
    return add("Min", [counts, last])


def _add_axis(graph: GraphBuilder, axis: int, frames: Sequence[str], sides: str) -> _Axis:
    """Add what `_Axis` holds.

    Args:
        graph: Graph to add to.
        axis: 0 for x, 1 for y.
        frames: Names of steps, fraction and whole part, from `_add_frames`.
        sides: Name of the number of pixels along the axis, (N, 1, 1) int32.
    """
    add = graph.add_node
    steps, fraction, origin = (add("Gather", [values, np.int64(axis)], axis=1) for values in frames)
    per_column, per_row = (add("Gather", [steps, np.int64(index)], axis=1) for index in (0, 1))
    per_column, per_row, fraction, origin = (
        _per_patch(graph, values) for values in (per_column, per_row, fraction, origin)
    )
    return _Axis(per_column, per_row, fraction, origin, last=add("Sub", [sides, np.int32(1)]))


def _add_positions(graph: GraphBuilder, axis: _Axis, columns: Operand, rows: Operand) -> tuple[str, str, str]:
    """Add the positions of samples in columns, (size,), and rows, (size, 1), of all patches along one axis.

    Returns:
        Names of the pixel before and the pixel after each sample, (N, size, size) int32, clamped to the level, and of
        the weight of the latter, float32.
    """
    add = graph.add_node
    along = add("Add", [add("Mul", [axis.per_column, columns]), axis.fraction])
    positions = add("Add", [along, add("Mul", [axis.per_row, rows])])
    whole = add("Floor", [positions])
    before = add("Add", [add("Cast", [whole], to=TensorProto.INT32), axis.origin])
    after = add("Add", [before, np.int32(1)])
    inside = [add("Min", [add("Max", [index, np.int32(0)]), axis.last]) for index in (before, after)]
    return inside[0], inside[1], add("Sub", [positions, whole])


def _add_samples(graph: GraphBuilder, pixels: str, start: str, width: str, axes: list[tuple[str, str, str]]) -> str:
    """Add the bilinear interpolation of samples, (N, size, size) float32."""
    add = graph.add_node
    (left, right, x), (top, bottom, y) = axes
    lines = []
    for row in (top, bottom):
        line = add("Add", [add("Mul", [row, width]), start])
        first, second = (add("Gather", [pixels, add("Add", [line, column])]) for column in (left, right))
        lines.append(_add_blend(graph, first, second, x))
    return _add_blend(graph, lines[0], lines[1], y)


def _add_blend(graph: GraphBuilder, first: str, second: str, weight: str) -> str:
    return graph.add_node("Add", [first, graph.add_node("Mul", [graph.add_node("Sub", [second, first]), weight])])
