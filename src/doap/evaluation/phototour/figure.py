"""ROC curves of Phototour: one panel per scene, one curve per descriptor."""

from pathlib import Path
from typing import cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from doap.evaluation.harness.result import Result
from doap.files import write_figure

COLOURS = 10
STYLES = ("-", "--", ":", "-.")  # distinguish descriptors that share a colour
MIN_RATE, MIN_RECALL = 0.01, 60  # lower ends of the axes, in percent


def draw_phototour(result: Result, path: Path) -> None:
    """Draw recall against the false positive rate, on a logarithmic axis; a dot marks FPR95.

    Args:
        result: Result of `Phototour`.
        path: File to write.
    """
    scenes = list(dict.fromkeys(str(score["test"]) for score in result.scores))
    tested = {score["descriptor"] for score in result.scores}
    names = [model["name"] for model in result.methods if model["name"] in tested]
    figure = Figure(figsize=(4.2 * len(scenes) + 0.6, 4.4 + 0.22 * -(-len(names) // 4)), layout="constrained")
    panels = figure.subplots(1, len(scenes), sharey=True, squeeze=False)[0]
    for axes, scene in zip(panels, scenes, strict=True):
        _draw_scene(axes, result, scene, names)
    panels[0].set_ylabel("recall of matching pairs, %")
    lines = {text: line for axes in panels for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend([lines[name] for name in names], names, loc="outside lower center", ncols=4, frameon=False)
    write_figure(figure, path, dpi=130)


def _draw_scene(axes: Axes, result: Result, scene: str, names: list[str]) -> None:
    for curve in (curve for curve in result.curves if curve["test"] == scene):
        index = names.index(curve["descriptor"])
        colour, style = f"C{index % COLOURS}", STYLES[index // COLOURS % len(STYLES)]
        rates, recalls = ([100 * rate for rate in curve[axis]] for axis in ("false positive rate", "recall"))
        axes.plot(rates, recalls, color=colour, linestyle=style, linewidth=1.6, label=curve["descriptor"])
    for score in (score for score in result.scores if score["test"] == scene):
        colour = f"C{names.index(str(score['descriptor'])) % COLOURS}"
        axes.plot([max(cast(float, score["fpr95"]), MIN_RATE)], [95], "o", color=colour, markersize=5)
    axes.axhline(95, color="#888888", linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(MIN_RATE, 100)
    axes.set_ylim(MIN_RECALL, 100.5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_title(f"tested on {scene}", fontsize=11)
    axes.set_xlabel("false positive rate, %")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
