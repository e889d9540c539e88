"""Scatter plots as SVG that need no script: every point can be pointed at and has a name for screen readers."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from doap.errors import inflect

WIDTH, HEIGHT = 460, 330
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 16, 46  # margins
LABEL_HEIGHT = 15
LETTER_WIDTH = 6.5
MARK_RADIUS = 5
GAP = 9  # between a point and its label


@dataclass(frozen=True)
class ChartPoint:
    """A point of a plot.

    Attributes:
        name: Label of the point.
        x: Position along the horizontal axis, positive.
        y: Position along the vertical axis.
        is_binary: Drawn as a square instead of a circle.
    """

    name: str
    x: float
    y: float
    is_binary: bool


@dataclass(frozen=True)
class Axis:
    """A horizontal or vertical axis.

    Attributes:
        title: Text at the axis.
        unit: Unit in the text of a point.
        low: Value at the first pixel.
        high: Value at the last pixel.
        start: First pixel.
        end: Last pixel.
        is_logarithmic: Whether equal ratios are equally long.
    """

    title: str
    unit: str
    low: float
    high: float
    start: float
    end: float
    is_logarithmic: bool

    def position(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high, at = (math.log(v) if self.is_logarithmic else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self) -> list[float]:
        """Return the values that are marked."""
        if self.is_logarithmic:
            base = 2.0 if self.high / self.low < 100 else 10.0
            first, last = math.ceil(math.log(self.low, base) - 1e-9), math.floor(math.log(self.high, base) + 1e-9)
            return [base**power for power in range(first, last + 1)]
        step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if (self.high - self.low) / s <= 7)
        return [step * k for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def render_chart(points: Sequence[ChartPoint], title: str, x_title: str, x_unit: str, y_title: str) -> str:
    """Return the SVG of a scatter plot with a logarithmic horizontal axis; a sentence without points."""
    if not points:
        return f"<p>{html.escape(title)}: no model has both values.</p>"
    xs, ys = [point.x for point in points], [point.y for point in points]
    spread = max(max(ys) - min(ys), 1.0)
    x_axis = Axis(x_title, x_unit, min(xs) / 1.7, max(xs) * 1.7, LEFT, WIDTH - RIGHT, True)
    y_axis = Axis(y_title, "", min(ys) - 0.15 * spread, max(ys) + 0.15 * spread, HEIGHT - BOTTOM, TOP, False)
    parts = [_grid(x_axis, y_axis), *_points(points, x_axis, y_axis)]
    label = html.escape(f"{title}: {len(points)} {inflect(len(points), 'model')}")
    return (
        f'<svg class="doap-chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _grid(x_axis: Axis, y_axis: Axis) -> str:
    lines = []
    for value in x_axis.ticks():
        x = x_axis.position(value)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:,.5g}</text>')
    for value in y_axis.ticks():
        y = y_axis.position(value)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    lines.append(
        f'<text class="title" x="{middle_x}" y="{HEIGHT - 8}" text-anchor="middle">{html.escape(x_axis.title)}</text>'
        f'<text class="title" transform="translate(12 {middle_y}) rotate(-90)" text-anchor="middle">'
        f"{html.escape(y_axis.title)}</text>"
    )
    return f'<g aria-hidden="true">{"".join(lines)}</g>'


def _points(points: Sequence[ChartPoint], x_axis: Axis, y_axis: Axis) -> list[str]:
    """Return the marks with their labels: to the right in the left half, to the left in the right half."""
    middle = (LEFT + WIDTH - RIGHT) / 2
    sides: dict[bool, list[ChartPoint]] = {True: [], False: []}
    for point in sorted(points, key=lambda one: -one.y):
        sides[x_axis.position(point.x) < middle].append(point)
    parts = []
    for is_left, group in sides.items():
        heights = _spread([y_axis.position(point.y) for point in group])
        for point, height in zip(group, heights, strict=True):
            gap = _gap(point, points, x_axis, y_axis, height, 1 if is_left else -1)
            parts.append(_point(point, x_axis, y_axis, height, gap))
    return parts


def _gap(
    point: ChartPoint, points: Sequence[ChartPoint], x_axis: Axis, y_axis: Axis, height: float, side: int
) -> float:
    """Return the distance of a label from its mark, to the right if positive: no mark lies under the label."""
    marks = sorted(
        side * (x_axis.position(one.x) - x_axis.position(point.x))
        for one in points
        if abs(y_axis.position(one.y) - height) < LABEL_HEIGHT * 0.8
    )
    gap = float(GAP)
    for mark in marks:  # nearest first
        if gap - GAP < mark < gap + LETTER_WIDTH * len(point.name) + MARK_RADIUS:
            gap = mark + GAP
    return side * gap


def _spread(heights: list[float]) -> list[float]:
    """Move labels apart, from top to bottom, and back up where they would leave the plot."""
    spread: list[float] = []
    for height in heights:
        spread.append(max(height, spread[-1] + LABEL_HEIGHT) if spread else height)
    limit = float(HEIGHT - BOTTOM)
    for index in range(len(spread) - 1, -1, -1):
        spread[index] = min(spread[index], limit)
        limit = spread[index] - LABEL_HEIGHT
    return spread


def _point(point: ChartPoint, x_axis: Axis, y_axis: Axis, label_y: float, gap: float) -> str:
    x, y = x_axis.position(point.x), y_axis.position(point.y)
    text = html.escape(f"{point.name}: {y_axis.title} {point.y:.1f}, {point.x:,.0f} {x_axis.unit}")
    mark = (
        f'<rect class="binary" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"/>'
        if point.is_binary
        else f'<circle class="real" cx="{x:.1f}" cy="{y:.1f}" r="5.5"/>'
    )
    anchor = "start" if gap > 0 else "end"
    leader = f'<line class="leader" x1="{x:.1f}" y1="{y:.1f}" x2="{x + 0.8 * gap:.1f}" y2="{label_y:.1f}"/>'
    anchored = f'x="{x + gap:.1f}" y="{label_y + 4:.1f}" text-anchor="{anchor}"'
    name = f'<text class="name" {anchored}>{html.escape(point.name)}</text>'
    detail = f'<text class="detail" x="{LEFT + 4}" y="{TOP - 3}">{text}</text><title>{text}</title>'
    return f'<g class="point" tabindex="0" role="img" aria-label="{text}">{leader}{mark}{name}{detail}</g>'
