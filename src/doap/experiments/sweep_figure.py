"""Figure of a sweep: measures against the value of a recipe key."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from doap.evaluation.harness.figures import NEUTRAL
from doap.experiments.series import RunRow
from doap.experiments.sweep import format_value
from doap.experiments.sweep_metrics import Metric
from doap.files import write_figure
from doap.training.recipes.recipe import Recipe

LOG_RATIO = 4  # the axis is logarithmic from this ratio of the largest value to the smallest


def draw_rows(key: str, rows: Sequence[RunRow], metric: Metric, title: str, path: Path) -> None:
    """Draw the rows of `run_sweep`: the metric, or its mean over several tests and that of each.

    Args:
        key: Recipe key that varies.
        rows: Rows of the runs.
        metric: What the runs were measured by.
        title: Title of the figure.
        path: File to write.
    """
    prefix = f"{metric.column} "
    tests = [column.removeprefix(prefix) for column in rows[0] if column.startswith(prefix)]
    columns = {"mean" if tests else metric.label: metric.column}
    if len(tests) > 1:
        columns |= {test: prefix + test for test in tests}
    curves = {name: [metric.factor * row[column] for row in rows] for name, column in columns.items()}
    description = Recipe.model_fields[key].description
    where = f" on {tests[0]}" if len(tests) == 1 else ""
    labels = (
        f"{key} ({description})" if description else key,
        f"{metric.label}{where} ({metric.better} is better)",
    )
    draw_sweep([row[key] for row in rows], curves, labels, title, path)


def draw_sweep(
    values: Sequence[object],
    curves: Mapping[str, Sequence[float]],
    labels: tuple[str, str],
    title: str,
    path: Path,
) -> None:
    """Draw the first curve with annotated points, and the others thinner.

    Args:
        values: Value of the key in each run. Numbers are placed on a numeric axis, sorted and connected; other values
            side by side.
        curves: Measures by name, one number per run.
        labels: Labels of the horizontal and the vertical axis.
        title: Title of the figure.
        path: File to write.
    """
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    order, positions = _place_values(axes, values)
    is_connected = all(map(_is_number, values))
    for index, (name, heights) in enumerate(curves.items()):
        ordered = [heights[run] for run in order]
        if index == 0:
            style = "o-" if is_connected else "o"
            axes.plot(positions, ordered, style, color=NEUTRAL, linewidth=2.2, markersize=7, label=name, zorder=3)
            _annotate(axes, positions, ordered)
        else:
            style = ".--" if is_connected else "."
            axes.plot(positions, ordered, style, linewidth=1.1, alpha=0.75, label=name, color=f"C{index}")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title, fontsize=11)
    axes.margins(x=0.08 if is_connected else 0.4, y=0.16)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1:
        axes.legend(frameon=False)
    write_figure(figure, path, dpi=130)


def _place_values(axes: Axes, values: Sequence[object]) -> tuple[list[int], list[float]]:
    """Set the ticks of the horizontal axis; return the order of the runs and their positions on it."""
    numbers = [float(value) for value in values if _is_number(value)]
    if len(numbers) < len(values):
        axes.set_xticks(range(len(values)), [format_value(value) for value in values])
        return list(range(len(values))), list(map(float, range(len(values))))
    order = [int(run) for run in np.argsort(numbers, kind="stable")]
    if min(numbers) > 0 and max(numbers) >= LOG_RATIO * min(numbers):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks([numbers[run] for run in order], [f"{values[run]}" for run in order])
    return order, [numbers[run] for run in order]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _annotate(axes: Axes, positions: Sequence[float], heights: Sequence[float]) -> None:
    for position, height in zip(positions, heights, strict=True):
        axes.annotate(
            f"{height:.2f}",
            (position, height),
            (0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=NEUTRAL,
        )
