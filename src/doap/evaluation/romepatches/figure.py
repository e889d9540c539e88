"""Bar chart of RomePatches: retrieval mAP on both halves."""

from pathlib import Path
from typing import cast

import numpy as np
from matplotlib.figure import Figure

from doap.datasets.official.romepatches import HALVES
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.training_sets import marked_name
from doap.files import write_figure

COLOURS = {"train": "#9ecae1", "test": "#4575b4"}


def draw_romepatches(result: Result, path: Path) -> None:
    """Draw the mAP as one bar per half and descriptor; the best on the test half is on top.

    Args:
        result: Result of `RomePatches`.
        path: File to write.
    """
    halves = [half for half in HALVES if any(score["half"] == half for score in result.scores)]
    values = {(score["descriptor"], score["half"]): cast(float, score["map"]) for score in result.scores}
    names = sorted({name for name, _ in values}, key=lambda name: values[name, halves[-1]])
    figure = Figure(figsize=(7, 0.3 + 0.35 * len(halves) * len(names) + 0.9), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(halves)
    for index, half in enumerate(halves):
        y = np.arange(len(names)) + height * ((len(halves) - 1) / 2 - index)
        widths = [values[name, half] for name in names]
        axes.barh(y, widths, height=height, color=COLOURS[half], label=half)
        for position, width in zip(y, widths, strict=True):
            axes.text(width + 0.8, position, f"{width:.1f}", va="center", fontsize=9)
    axes.set_yticks(range(len(names)), [marked_name(result, str(name)) for name in names])
    axes.set_xlim(0, 108)
    axes.set_xlabel("retrieval mAP %")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    write_figure(figure, path, dpi=130)
