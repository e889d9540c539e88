"""What figures of bars share: a colour a descriptor, and whiskers for the intervals of means."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from doap.evaluation.harness.result import Score

WHISKERS: dict[str, Any] = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capsize": 2}


def reach(summary: Score, column: str) -> NDArray[np.float64]:
    """How far the interval of a mean goes below and above it, (2, 1); nothing where there is none."""
    mean = float(summary[column] or 0)
    low, high = (summary[f"{column} {end}"] for end in ("low", "high"))
    return np.array([[0.0 if low is None else mean - float(low)], [0.0 if high is None else float(high) - mean]])


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """A colour a descriptor: ten strong ones, their pale sisters, twenty muted ones; no two alike up to 40."""
    bright, muted = (matplotlib.colormaps[name].resampled(20) for name in ("tab20", "tab20b"))
    colours = [*(bright(place) for place in (*range(0, 20, 2), *range(1, 20, 2))), *(muted(n) for n in range(20))]
    return {name: to_hex(colours[place % len(colours)]) for place, name in enumerate(names)}
