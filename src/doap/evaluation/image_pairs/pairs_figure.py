"""Figure of matching on own pairs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from doap.evaluation.harness.bars import WHISKERS, colours_of, interval_errors
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.image_pairs.scoring import PIXELS
from doap.evaluation.metrics.significance import summarise
from doap.files import write_figure

RATES = tuple(f"correct within {pixels} px" for pixels in PIXELS)


def draw_pairs(result: Result, path: Path) -> None:
    """Draw mean AP and correct geometries as bars, and correct matches against their threshold in pixels.

    The matching score replaces AP if no pair has a homography.
    """
    measure = "ap" if any(row["ap"] is not None for row in result.scores) else "matching score"
    rows = summarise(result.scores, [measure, *RATES, "geometry correct"])
    colours = colours_of([str(method["name"]) for method in result.methods])
    figure = Figure(figsize=(13, max(3.4, 0.34 * len(rows) + 1.4)), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    label = {"ap": "mAP %", "matching score": "matching score %"}[measure]
    _bars(left, rows, measure, label, colours)
    for row in rows:
        name = str(row["descriptor"])
        values = [np.nan if row[rate] is None else float(row[rate] or 0) for rate in RATES]
        middle.plot(PIXELS, values, "o-", color=colours[name], linewidth=1.6, markersize=4)
    middle.set_xticks(PIXELS)
    middle.set_ylim(0, 100)
    middle.set_xlabel("within … pixels")
    middle.set_ylabel("correct mutual matches, %")
    middle.grid(alpha=0.3)
    middle.spines[["top", "right"]].set_visible(False)
    _bars(right, rows, "geometry correct", "pairs with a correct geometry, %", colours)
    right.set_yticklabels([])
    write_figure(figure, path, dpi=130)


def _bars(axes: Axes, rows: Sequence[Score], column: str, label: str, colours: dict[str, str]) -> None:
    """Draw means with intervals as horizontal bars, the first row on top."""
    bottom_up = rows[::-1]
    names = [str(row["descriptor"]) for row in bottom_up]
    values = np.array([float(row[column] or 0) for row in bottom_up])
    errors = np.hstack([interval_errors(row, column) for row in bottom_up])
    axes.barh(names, values, color=[colours[name] for name in names])
    axes.errorbar(values, np.arange(len(bottom_up)), xerr=errors, **WHISKERS)
    ends = values + errors[1]
    for y, (value, end) in enumerate(zip(values, ends, strict=True)):
        axes.annotate(f"{value:.1f}", (end, y), (5, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xlim(0, 1.15 * max(1.0, float(ends.max())))
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
