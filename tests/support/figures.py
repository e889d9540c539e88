"""Figures as objects, and figures written by commands."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from doap.evaluation.harness.result import read_result
from doap.evaluation.registry import BENCHMARKS


def record_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return a list that gets every figure that is written from now on."""
    figures: list[Figure] = []
    savefig = Figure.savefig

    def record(self: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(self)
        savefig(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", record)
    return figures


def points(line: Line2D) -> list[list[float]]:
    """Return the points (x, y) of a line."""
    return [[float(x), float(y)] for x, y in np.asarray(line.get_xydata())]


def is_drawn_from(figure: Path, json_file: Path) -> bool:
    """Return whether a figure is what its benchmark draws from a result read from a file."""
    result = read_result(json_file)
    expected = figure.with_stem(f"{figure.stem}-expected")
    BENCHMARKS[result.benchmark].draw(result, expected)
    with Image.open(figure) as first, Image.open(expected) as second:
        return np.array_equal(np.asarray(first), np.asarray(second))
