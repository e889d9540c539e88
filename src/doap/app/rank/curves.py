"""Line plots as HTML: the lines are an SVG that stretches with the page, the texts keep their size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from doap.app.rank.list_html import TEMPLATES

COLOURS = ("#2563eb", "#b45309")
MAX_TICKS = 10


@dataclass(frozen=True)
class Line:
    """A line of a plot.

    Attributes:
        name: Name in the legend.
        points: (x, y) of each point, ascending in x.
        dashed: Draw it dashed.
    """

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def render_plot(
    title: str, lines: Sequence[Line], x_label: str, x_limits: tuple[float, float], legend: bool = False
) -> str:
    """Render lines with y in 0..1 as HTML; all texts are escaped.

    Args:
        title: Text above the plot.
        lines: At most two lines.
        x_label: Name of the x axis.
        x_limits: First and last x; ticks are at whole numbers.
        legend: Name the lines above the plot.
    """
    low, high = x_limits[0], max(x_limits[1], x_limits[0] + 1)

    def percent(x: float) -> float:
        return round(100 * (x - low) / (high - low), 2)

    drawn = [
        {
            "name": line.name,
            "colour": colour,
            "dashed": line.dashed,
            "points": " ".join(f"{percent(x)},{round(100 * (1 - y), 2)}" for x, y in line.points),
            "last": line.points[-1][1] if line.points else None,
        }
        for line, colour in zip(lines, COLOURS, strict=False)
    ]
    ticks = [(percent(x), x) for x in whole_ticks(low, high)]
    return TEMPLATES.get_template("plot.html.j2").render(
        title=title, lines=drawn, x_label=x_label, ticks=ticks, legend=legend
    )


def whole_ticks(low: float, high: float) -> list[int]:
    """Return at most ten whole numbers in a range, evenly spaced.

    Example:
        >>> whole_ticks(0, 7), whole_ticks(1, 60)
        ([0, 1, 2, 3, 4, 5, 6, 7], [10, 20, 30, 40, 50, 60])
    """
    span = high - low
    steps = (base * 10**power for power in range(9) for base in (1, 2, 5))
    step = next(step for step in steps if span / step < MAX_TICKS)
    return list(range(math.ceil(low / step) * step, math.floor(high) + 1, step))
