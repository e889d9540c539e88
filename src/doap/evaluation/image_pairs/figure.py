"""The figures of `doap eval pairs`: what came out for each descriptor, and what it matched on a pair."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from doap.evaluation.harness.bars import WHISKERS, colours_of, reach
from doap.evaluation.harness.figures import draw_matches
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.image_pairs.scoring import CORRECT_PIXELS, PIXELS, ImagePair, describe_pair, errors_of, match_all
from doap.evaluation.metrics.significance import summarise
from doap.features import FrameDescriber
from doap.files import write_figure

SHARES = tuple(f"right within {pixels} px" for pixels in PIXELS)


def draw_pairs(result: Result, path: Path) -> None:
    """Mean AP (matching score where there is none) and right geometries as bars, right matches against pixels."""
    measure = "ap" if any(row["ap"] is not None for row in result.scores) else "matching score"
    rows = summarise(result.scores, [measure, *SHARES, "geometry right"])
    colours = colours_of([str(each["name"]) for each in result.methods])
    figure = Figure(figsize=(13, max(3.4, 0.34 * len(rows) + 1.4)), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    label = {"ap": "mAP %", "matching score": "matching score %"}[measure]
    _bars(left, rows, measure, label, colours)
    for row in rows:
        name = str(row["descriptor"])
        values = [np.nan if row[share] is None else float(row[share] or 0) for share in SHARES]
        middle.plot(PIXELS, values, "o-", color=colours[name], linewidth=1.6, markersize=4)
    middle.set_xticks(PIXELS)
    middle.set_ylim(0, 100)
    middle.set_xlabel("within … pixels")
    middle.set_ylabel("mutual matches that are right, %")
    middle.grid(alpha=0.3)
    middle.spines[["top", "right"]].set_visible(False)
    _bars(right, rows, "geometry right", "pairs with the right geometry, %", colours)
    right.set_yticklabels([])
    write_figure(figure, path, dpi=130)


def draw_pair(pair: ImagePair, describer: FrameDescriber, path: Path) -> None:
    """The verified matches of one descriptor: green within 3 pixels of the truth, otherwise red."""
    found = match_all(pair, *describe_pair(pair, describer))
    right = (errors_of(pair, found) <= CORRECT_PIXELS)[found.inliers]
    kept = found.indices[found.inliers]
    title = (
        f"{pair.sequence} {pair.name}, {describer.name}: {len(kept)} verified of {len(found)} mutual matches, "
        f"{int(right.sum())} right within {CORRECT_PIXELS:g} pixels"
    )
    points = pair.first.frames[kept[:, 0], :, 2], pair.second.frames[kept[:, 1], :, 2]
    draw_matches(pair.first.image, pair.second.image, *points, title, path, right)


def _bars(axes: Axes, rows: Sequence[Score], column: str, label: str, colours: dict[str, str]) -> None:
    """Means with intervals, the first row on top; the axis ends where the longest does."""
    shown = rows[::-1]
    names = [str(row["descriptor"]) for row in shown]
    values = np.array([float(row[column] or 0) for row in shown])
    reaches = np.hstack([reach(row, column) for row in shown])
    axes.barh(names, values, color=[colours[name] for name in names])
    axes.errorbar(values, np.arange(len(shown)), xerr=reaches, **WHISKERS)
    ends = values + reaches[1]
    for place, (value, end) in enumerate(zip(values, ends, strict=True)):
        axes.annotate(f"{value:.1f}", (end, place), (5, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xlim(0, 1.15 * max(1.0, float(ends.max())))
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
