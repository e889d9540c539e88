"""The figure of the paper: one panel per task, one bar per descriptor, and a mark for each condition."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from doap.evaluation.harness.bars import colours_of
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.training_sets import mark_note, marked_name
from doap.evaluation.hpatches.tables import HEADLINES, NOISE_COLUMNS, Conditions, mean_score
from doap.files import write_figure

TITLES = {"verification": "patch verification", "matching": "image matching", "retrieval": "patch retrieval"}
NOISE_COLOURS = dict(zip(NOISE_COLUMNS, ("#1a7a37", "#6a3d9a", "#d7191c"), strict=True))
MARKS = {"intra": "o", "inter": "D", "illumination": "D", "viewpoint": "*", "all": "o"}
TIE_AWARE = "|"


def draw_hpatches(result: Result, path: Path) -> None:
    """Draw the means by the official rule as bars with their values; the tick on each is the tie-aware mean.

    Marks are coloured by noise and shaped by condition: negatives in verification, kind of sequence in matching.

    Args:
        result: Result of `HPatches`.
        path: File to write.
    """
    tasks = [task for task in TITLES if any(score["task"] == task for score in result.scores)]
    names = list(dict.fromkeys(str(score["descriptor"]) for score in result.scores))
    colours = colours_of(names)
    longest = max(map(len, names))
    size = ((3.4 + 0.075 * longest) * len(tasks), 0.34 * len(names) + 1.75)
    figure = Figure(figsize=size, layout="constrained")
    for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        _draw_task(axes, result, task, names, colours)
    marks = [_mark("s", colour, noise) for noise, colour in NOISE_COLOURS.items()]
    figure.legend(
        handles=[*marks, _mark(TIE_AWARE, "black", "mean, tie-aware")],
        loc="outside upper center",
        ncols=4,
        frameon=False,
        handletextpad=0.1,
        columnspacing=1.2,
    )
    if note := mark_note(result, len(result.settings.get("sequences", ()))):
        figure.supxlabel(note, fontsize="medium")
    write_figure(figure, path)


def _draw_task(axes: Axes, result: Result, task: str, names: list[str], colours: dict[str, str]) -> None:
    """Draw one panel, the best descriptor on top."""
    means = {name: mean_score(result, _headline(task, name, "official")) or 0.0 for name in names}
    order = sorted(names, key=lambda name: means[name])
    axes.barh(
        range(len(order)),
        [means[name] for name in order],
        color=[to_rgba(colours[name], 0.35) for name in order],  # pale, so that the marks stand out
        edgecolor="black",
        linewidth=0.8,
        height=0.74,
    )
    conditions = _conditions(result, task)
    for y, name in enumerate(order):
        axes.text(102, y, f"{means[name]:.2f}", va="center")
        _draw_marks(axes, result, task, name, conditions, y)
    axes.set_yticks(range(len(order)), [marked_name(result, name) for name in order])
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"{TITLES[task]} mAP %")
    axes.tick_params(length=0)
    axes.grid(axis="x", linestyle="dashed", alpha=0.5)
    axes.set_axisbelow(True)
    explained = [condition for condition in conditions if condition not in ("", "all")]
    if explained:
        axes.legend(
            handles=[_mark(MARKS[condition], "black", condition) for condition in explained],
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=2,
            frameon=False,
            handletextpad=0.1,
            columnspacing=1.0,
        )


def _draw_marks(axes: Axes, result: Result, task: str, name: str, conditions: list[str], y: int) -> None:
    """Draw the marks of one descriptor: each condition at each noise, and the tie-aware mean."""
    for condition in conditions:
        selected: Conditions = {"condition": condition} if condition else {}
        mark = MARKS.get(condition, "o")
        for noise, colour in NOISE_COLOURS.items():
            value = mean_score(result, _headline(task, name, "official"), NOISE_COLUMNS[noise], selected)
            axes.plot(value or 0.0, y, mark, color=colour, markersize=7 if mark == "*" else 4.5, alpha=0.85)
    mean = mean_score(result, _headline(task, name, "tie-aware")) or 0.0
    axes.plot(mean, y, TIE_AWARE, color="black", markersize=15, markeredgewidth=1.6)


def _headline(task: str, name: str, rule: str) -> Conditions:
    return {**HEADLINES[task], "descriptor": name, "rule": rule}


def _conditions(result: Result, task: str) -> list[str]:
    """Return the conditions that the marks of a task distinguish; [""] if there are none."""
    names = {str(score["condition"] or "") for score in result.scores if score["task"] == task}
    return [condition for condition in MARKS if condition in names - {"all"}] or sorted(names)


def _mark(shape: str, colour: str, label: str) -> Line2D:
    edge = 1.6 if shape == TIE_AWARE else 1.0
    return Line2D([], [], color=colour, marker=shape, linestyle="none", markersize=7, markeredgewidth=edge, label=label)
