"""Figures shared by several commands. Each function draws one figure and writes it atomically."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from doap.files import write_figure

CORRECT, WRONG, NEUTRAL = "#1a9850", "#d73027", "#4575b4"


def draw_bars(rows: Sequence[Mapping[str, float | str | int]], path: Path) -> None:
    """Draw the mAP of each descriptor as a bar, the first on top.

    Args:
        rows: Rows with the keys "descriptor" and "mAP", best first.
        path: File to write.
    """
    figure = Figure(figsize=(7, 0.5 * len(rows) + 0.9), layout="constrained")
    axes = figure.subplots()
    names = [str(row["descriptor"]) for row in rows][::-1]
    values = [float(row["mAP"]) for row in rows][::-1]
    axes.barh(names, values, color=NEUTRAL)
    for y, value in enumerate(values):
        axes.text(value + 0.8, y, f"{value:.1f}", va="center")
    axes.set_xlim(0, 108)
    axes.set_xlabel("matching mAP %")
    axes.spines[["top", "right"]].set_visible(False)
    write_figure(figure, path)


def draw_lists(
    queries: NDArray[np.uint8],
    lists: Mapping[str, tuple[NDArray[np.uint8], NDArray[np.bool_], Sequence[int]]],
    path: Path,
) -> None:
    """Draw the patches that each query ranks first, for one or more methods: correct ones green, wrong ones red.

    Args:
        queries: (Q, S, S) patches.
        lists: For each named method (Q, K, S, S) patches by rank, (Q, K) whether each is correct, and the rank of the
            first correct one for each query, from 1.
        path: File to write.
    """
    length = next(iter(lists.values()))[0].shape[1]
    rows = len(queries) * len(lists)
    figure = Figure(figsize=(0.8 * (length + 2) + 1.2, 0.86 * rows), layout="constrained")
    grid = figure.subplots(rows, length + 1, squeeze=False)
    for query, patch in enumerate(queries):
        for order, (name, (patches, correct, first)) in enumerate(lists.items()):
            row = grid[query * len(lists) + order]
            _draw_patch(row[0], patch, "black")
            row[0].set_ylabel(f"{name}\nrank {first[query]}", rotation=0, ha="right", va="center", fontsize=8)
            for rank in range(length):
                _draw_patch(row[rank + 1], patches[query, rank], CORRECT if correct[query, rank] else WRONG)
    for column, axes in enumerate(grid[0]):
        axes.set_title(str(column) if column else "query", fontsize=8)
    write_figure(figure, path)


def draw_groups(groups: NDArray[np.uint8], columns: Sequence[str], path: Path) -> None:
    """Draw a contact sheet of (G, n, S, S) patches, one group per row."""
    figure = Figure(figsize=(1.1 * groups.shape[1], 1.05 * len(groups) + 0.3), layout="constrained")
    grid = figure.subplots(len(groups), groups.shape[1], squeeze=False)
    for row, group in zip(grid, groups, strict=True):
        for axes, patch in zip(row, group, strict=True):
            _draw_patch(axes, patch, "white")
    for axes, name in zip(grid[0], columns, strict=True):
        axes.set_title(name, fontsize=9)
    write_figure(figure, path)


def _draw_patch(axes: Axes, patch: NDArray[np.uint8], frame: str) -> None:
    axes.imshow(patch, cmap="gray", vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_edgecolor(frame)
        spine.set_linewidth(2.5)
