"""Figure of the Oxford benchmark, as in the paper: one group of bars per sequence, and one of the means."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from doap.evaluation.harness.bars import WHISKERS, colours_of, interval_errors
from doap.evaluation.harness.result import Result
from doap.evaluation.image_pairs.sequences import PAPER_SEQUENCES, by_sequence, protocol_of
from doap.evaluation.metrics.significance import summarise
from doap.files import write_figure

GROUP_WIDTH = 0.86  # share of the distance between groups that is covered by bars


def draw_oxford(result: Result, path: Path) -> None:
    """Draw AP of each descriptor in each sequence, and the mean over pairs with its interval."""
    table = by_sequence(result.scores)
    sequences = list(next(iter(table.values())))
    means = {str(row["descriptor"]): row for row in summarise(result.scores, ["ap"])}
    names = sorted(table, key=lambda name: -float(means[name]["ap"] or 0))
    colours = colours_of([str(method["name"]) for method in result.methods])
    figure = Figure(figsize=(max(8.0, 1.5 * (len(sequences) + 1)), 4.6), layout="constrained")
    axes = figure.subplots()
    width = GROUP_WIDTH / len(names)
    groups = np.array([*range(len(sequences)), len(sequences) + 0.35])
    for index, name in enumerate(names):
        mean = float(means[name]["ap"] or 0)
        heights = [*(table[name][sequence] for sequence in sequences), mean]
        x = groups + (index + 0.5) * width - GROUP_WIDTH / 2
        axes.bar(x, heights, 0.92 * width, color=colours[name], label=f"{name} {mean:.1f}")
        axes.errorbar(x[-1:], [mean], interval_errors(means[name], "ap"), **WHISKERS)
    axes.set_xticks(groups, [*(f"{name}*" if name in PAPER_SEQUENCES else name for name in sequences), "mean"])
    axes.axvline(len(sequences) - 0.325, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlim(-0.55, groups[-1] + 0.55)
    axes.set_ylabel("AP %")
    settings = result.settings
    axes.set_title(
        f"{settings['detector']}, extent {settings['extent']}, {settings['keypoints']} keypoints, "
        f"protocol {protocol_of(result)}"
        + ("; * the paper's six, by our reading" if set(sequences) & set(PAPER_SEQUENCES) else ""),
        fontsize=10,
    )
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=min(6, len(names)), frameon=False, fontsize=9)
    write_figure(figure, path, dpi=130)
