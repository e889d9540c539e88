"""The bars of RomePatches: retrieval mAP on both halves."""

from pathlib import Path
from typing import cast

import numpy as np
from matplotlib.figure import Figure

from doap.datasets.official.romepatches import HALVES
from doap.evaluation.harness.result import Result
from doap.files import write_figure

COLOURS = {"train": "#9ecae1", "test": "#4575b4"}


def draw_romepatches(result: Result, path: Path) -> None:
    """Bars of the mAP, a pair a descriptor, the best test half on top.

    Args:
        result: of `romepatches.evaluate`.
        path: the picture to write.
    """
    halves = [half for half in HALVES if any(score["half"] == half for score in result.scores)]
    values = {(score["descriptor"], score["half"]): cast(float, score["map"]) for score in result.scores}
    names = sorted({name for name, _ in values}, key=lambda name: values[name, halves[-1]])
    figure = Figure(figsize=(7, 0.3 + 0.35 * len(halves) * len(names) + 0.9), layout="constrained")
    axes = figure.subplots()
    thick = 0.8 / len(halves)
    for number_of_half, half in enumerate(halves):
        places = np.arange(len(names)) + thick * ((len(halves) - 1) / 2 - number_of_half)
        widths = [values[name, half] for name in names]
        axes.barh(places, widths, height=thick, color=COLOURS[half], label=half)
        for place, width in zip(places, widths, strict=True):
            axes.text(width + 0.8, place, f"{width:.1f}", va="center", fontsize=9)
    axes.set_yticks(range(len(names)), [str(name) for name in names])
    axes.set_xlim(0, 108)
    axes.set_xlabel("retrieval mAP %")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    write_figure(figure, path, dpi=130)
