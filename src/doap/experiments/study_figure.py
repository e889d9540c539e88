"""Figure of a study: one point per seed, one line per run with its mean, best on top."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from doap.evaluation.harness.figures import CORRECT, NEUTRAL
from doap.evaluation.metrics.significance import LEVEL
from doap.experiments.study_table import RunSummary, measure_label
from doap.files import write_figure


def draw_study(summaries: Sequence[RunSummary], title: str, path: Path) -> None:
    """Draw one panel per measure, with the runs in the order of the first.

    Args:
        summaries: From `summarise_runs`.
        title: Title of the figure.
        path: File to write.
    """
    measures = list(summaries[0].values)
    figure = Figure(figsize=(2.4 + 3.4 * len(measures), 1.7 + 0.34 * len(summaries)), layout="constrained")
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        _draw_measure(axes, summaries, measure)
    names = [f"{summary.run}  {summary.setting}" if summary.setting else summary.run for summary in summaries]
    panels[0].set_yticks(range(len(summaries)), names)
    panels[0].set_ylim(len(summaries) - 0.5, -0.5)
    figure.suptitle(title, fontsize=11)
    figure.supxlabel(f"points: seeds · strokes: means · bars: {LEVEL} % intervals of the means", fontsize=8)
    write_figure(figure, path, dpi=130)


def _draw_measure(axes: Axes, summaries: Sequence[RunSummary], measure: str) -> None:
    best = max(summary.mean(measure) for summary in summaries)
    for line, summary in enumerate(summaries):
        mean = summary.mean(measure)
        colour = CORRECT if mean == best else NEUTRAL
        values = summary.values[measure]
        interval = summary.half_interval(measure)
        axes.errorbar(mean, line, xerr=interval, color=colour, alpha=0.35, linewidth=5, zorder=1)
        axes.scatter(values, [line] * len(values), s=16, color=colour, alpha=0.6, linewidths=0, zorder=2)
        axes.plot(mean, line, "|", color=colour, markersize=15, markeredgewidth=2, zorder=3)
        axes.annotate(
            f"{mean:.2f}",
            (1, line),
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
    axes.set_xlabel(measure_label(measure))
    # Limits from the points, with space for the numbers: intervals of two seeds may be much wider.
    points = [value for summary in summaries for value in summary.values[measure]]
    spread = max(points) - min(points) or 1.0
    axes.set_xlim(min(points) - 0.15 * spread, max(points) + 0.45 * spread)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
