"""The figure of a study: every seed a point, every run a line with its mean, best on top."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from doap.evaluation.harness.figures import NEUTRAL, CORRECT
from doap.evaluation.metrics.significance import LEVEL
from doap.experiments.study_table import Standing, label
from doap.files import write_figure


def draw_study(found: Sequence[Standing], title: str, path: Path) -> None:
    """Draw what was measured, a panel a measure, runs in the order of the first.

    Args:
        found: from `standings`.
        title: over the figure.
        path: the picture to write.
    """
    measures = list(found[0].values)
    figure = Figure(figsize=(2.4 + 3.4 * len(measures), 1.7 + 0.34 * len(found)), layout="constrained")
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        best = max(standing.mean(measure) for standing in found)
        for place, standing in enumerate(found):
            mean = standing.mean(measure)
            colour = CORRECT if mean == best else NEUTRAL
            values = standing.values[measure]
            axes.errorbar(mean, place, xerr=standing.reach(measure), color=colour, alpha=0.35, linewidth=5, zorder=1)
            axes.scatter(values, [place] * len(values), s=16, color=colour, alpha=0.6, linewidths=0, zorder=2)
            axes.plot(mean, place, "|", color=colour, markersize=15, markeredgewidth=2, zorder=3)
            axes.annotate(
                f"{mean:.2f}",
                (1, place),
                (-4, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=9,
                color=colour,
                fontweight="bold" if mean == best else "normal",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )
        axes.set_xlabel(label(measure))
        # By the points alone, with room for the numbers: intervals of two seeds would go beyond all there is.
        points = [value for standing in found for value in standing.values[measure]]
        spread = max(points) - min(points) or 1.0
        axes.set_xlim(min(points) - 0.15 * spread, max(points) + 0.45 * spread)
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    names = [f"{each.run}  {each.tried}" if each.tried else each.run for each in found]
    panels[0].set_yticks(range(len(found)), names)
    panels[0].set_ylim(len(found) - 0.5, -0.5)
    figure.suptitle(title, fontsize=11)
    figure.supxlabel(f"points: seeds · strokes: means · bars: {LEVEL} % intervals of the means", fontsize=8)
    write_figure(figure, path, dpi=130)
