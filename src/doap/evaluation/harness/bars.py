"""Colours and error bars of bar charts."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from doap.evaluation.harness.result import Score

WHISKERS: dict[str, Any] = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capsize": 2}


def interval_errors(summary: Score, column: str) -> NDArray[np.float64]:
    """Return the distances from a mean to the ends of its interval, for `Axes.errorbar`.

    Args:
        summary: Row of `significance.summarise`.
        column: Name of the mean; the ends are in the columns "… low" and "… high".

    Returns:
        (2, 1), below and above the mean; zeros if there is no interval.
    """
    mean = float(summary[column] or 0)
    low, high = (summary[f"{column} {end}"] for end in ("low", "high"))
    return np.array([[0.0 if low is None else mean - float(low)], [0.0 if high is None else float(high) - mean]])


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Return one colour per name, all different up to 40 names: first saturated, then pale, then muted colours."""
    bright, muted = (matplotlib.colormaps[name].resampled(20) for name in ("tab20", "tab20b"))
    colours = [*(bright(i) for i in (*range(0, 20, 2), *range(1, 20, 2))), *(muted(i) for i in range(20))]
    return {name: to_hex(colours[i % len(colours)]) for i, name in enumerate(names)}
