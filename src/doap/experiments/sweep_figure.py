"""The figure of a sweep: what was measured against the value of a recipe's key."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from doap.evaluation.harness.figures import NEUTRAL
from doap.files import write_figure

SPREAD = 4  # values whose largest is this many times the smallest are drawn evenly by their logarithms


def draw_sweep(
    values: Sequence[object],
    curves: Mapping[str, Sequence[float]],
    labels: tuple[str, str],
    title: str,
    path: Path,
) -> None:
    """Draw the first curve thick, each of its points with its number, and the others thin beside it.

    Args:
        values: of the key, one a run: numbers are drawn on an axis, in their order and joined, anything else side
            by side.
        curves: what was measured, by name, one number a run.
        labels: of the horizontal and the vertical axis.
        title: over the figure.
        path: the picture to write.
    """
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    order, places = _places(axes, values)
    join = all(map(_is_number, values))
    for number, (name, heights) in enumerate(curves.items()):
        ordered = [heights[place] for place in order]
        if number == 0:
            axes.plot(
                places, ordered, "o-" if join else "o", color=NEUTRAL, linewidth=2.2, markersize=7, label=name, zorder=3
            )
            _number(axes, places, ordered)
        else:
            axes.plot(
                places, ordered, ".--" if join else ".", linewidth=1.1, alpha=0.75, label=name, color=f"C{number}"
            )
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title, fontsize=11)
    axes.margins(x=0.08 if join else 0.4, y=0.16)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1:
        axes.legend(frameon=False)
    write_figure(figure, path, dpi=130)


def _places(axes: Axes, values: Sequence[object]) -> tuple[list[int], list[float]]:
    """In which order to draw, and where on the horizontal axis, which gets its ticks."""
    numbers = [float(value) for value in values if _is_number(value)]
    if len(numbers) < len(values):
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        return list(range(len(values))), list(map(float, range(len(values))))
    order = [int(place) for place in np.argsort(numbers, kind="stable")]
    if min(numbers) > 0 and max(numbers) >= SPREAD * min(numbers):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks([numbers[place] for place in order], [f"{values[place]}" for place in order])
    return order, [numbers[place] for place in order]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(axes: Axes, places: Sequence[float], heights: Sequence[float]) -> None:
    for place, height in zip(places, heights, strict=True):
        axes.annotate(
            f"{height:.2f}", (place, height), (0, 9), textcoords="offset points", ha="center", fontsize=9, color=NEUTRAL
        )
