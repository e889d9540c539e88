"""Figures: people would rather look than read. Each function draws one picture and writes it atomically."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from doap.files import write_figure
from doap.types import Grey

MOST_LINES = 150  # more hide the images
RIGHT, WRONG, PLAIN = "#1a9850", "#d73027", "#4575b4"


def draw_matches(
    first: Grey,
    second: Grey,
    first_points: NDArray[np.floating],
    second_points: NDArray[np.floating],
    title: str,
    path: Path,
    right: NDArray[np.bool_] | None = None,
) -> None:
    """Two images side by side, matched points in the same colour, and lines for at most 150 of them, evenly spread.

    Args:
        first_points: (P, 2) places (x, y) in the first image.
        second_points: (P, 2) their matches in the second.
        title: over the picture.
        path: of the picture.
        right: (P,) which matches are right, where that is known: they are green then, and the others red.
    """
    gap = 10
    height = max(first.shape[0], second.shape[0])
    width = first.shape[1] + gap + second.shape[1]
    canvas = np.full((height, width), 255, np.uint8)
    canvas[: first.shape[0], : first.shape[1]] = first
    canvas[: second.shape[0], first.shape[1] + gap :] = second
    shifted = np.asarray(second_points, np.float64) + np.array([first.shape[1] + gap, 0])
    figure = Figure(figsize=(12, 12 * height / width + 0.45), layout="constrained")
    axes = figure.subplots()
    axes.imshow(canvas, cmap="gray", vmin=0, vmax=255)
    if len(shifted):
        height_of = np.asarray(first_points)[:, 1]
        value = height_of if right is None else right.astype(np.float64)
        colours = "turbo" if right is None else ListedColormap([WRONG, RIGHT])
        least, most = (float(value.min()), float(value.max())) if right is None else (0.0, 1.0)
        drawn = np.argsort(height_of)[:: -(-len(height_of) // MOST_LINES)]
        ends = np.stack([first_points[drawn], shifted[drawn]], 1)
        lines = LineCollection(ends.tolist(), linewidths=0.7, alpha=0.6, cmap=colours)
        lines.set_array(value[drawn])
        lines.set_clim(least, most)
        axes.add_collection(lines)
        for points in (np.asarray(first_points), shifted):
            axes.scatter(points[:, 0], points[:, 1], s=5, c=value, cmap=colours, vmin=least, vmax=most)
    axes.set_title(title, fontsize=11)
    axes.set_axis_off()
    write_figure(figure, path)


def draw_losses(losses: Mapping[str, Sequence[float]], path: Path) -> None:
    """Loss against step, a curve a training."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, values in losses.items():
        axes.plot(np.arange(1, len(values) + 1), values, label=name, linewidth=1.2)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.set_ylim(0, None)
    axes.grid(alpha=0.3)
    axes.legend()
    write_figure(figure, path)


def draw_training(
    epochs: Sequence[float], losses: Sequence[float], validation: Sequence[tuple[int, float]], path: Path
) -> None:
    """The course of a training: the loss of each step, its running mean, and the held-out AP after each epoch.

    Args:
        epochs: when each step was, in epochs.
        losses: of each step.
        validation: epochs, from 0, and the AP after each; none where nothing was held out.
        path: of the picture.
    """
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    window = max(1, len(losses) // 50)
    mean = np.convolve(losses, np.ones(window) / window, mode="valid")
    axes.plot(epochs, losses, color=PLAIN, linewidth=0.6, alpha=0.35)
    axes.plot(epochs[window - 1 :], mean, color=PLAIN, linewidth=1.6, label="loss")
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss", color=PLAIN)
    axes.set_ylim(0, None)
    axes.grid(alpha=0.3)
    if validation:
        judged = axes.twinx()
        when, values = zip(*((epoch + 1, 100 * ap) for epoch, ap in validation), strict=True)
        judged.plot(when, values, color=RIGHT, linewidth=1.6, marker="o", markersize=3)
        best = int(np.argmax(values))
        below = best == len(values) - 1 or values[best] > np.mean(values)
        judged.annotate(
            f"{values[best]:.1f}",
            (when[best], values[best]),
            textcoords="offset points",
            xytext=(0, -14 if below else 8),
            ha="center",
            color=RIGHT,
        )
        judged.set_ylabel("AP on held-out sequences, %", color=RIGHT)
    write_figure(figure, path)


def draw_bars(rows: Sequence[Mapping[str, float | str | int]], path: Path) -> None:
    """mAP of each descriptor of `warped.summarise`, best on top."""
    figure = Figure(figsize=(7, 0.5 * len(rows) + 0.9), layout="constrained")
    axes = figure.subplots()
    names = [str(row["descriptor"]) for row in rows][::-1]
    values = [float(row["mAP"]) for row in rows][::-1]
    axes.barh(names, values, color=PLAIN)
    for place, value in enumerate(values):
        axes.text(value + 0.8, place, f"{value:.1f}", va="center")
    axes.set_xlim(0, 108)
    axes.set_xlabel("matching mAP %")
    axes.spines[["top", "right"]].set_visible(False)
    write_figure(figure, path)


def draw_lists(
    queries: NDArray[np.uint8],
    lists: Mapping[str, tuple[NDArray[np.uint8], NDArray[np.bool_], Sequence[int]]],
    path: Path,
) -> None:
    """What each query ranked first, in one or more orders: right patches framed green, wrong ones red.

    Args:
        queries: (Q, S, S).
        lists: for each named order: (Q, K, S, S) patches by rank, (Q, K) whether each is right, and the
            rank of the first right one for each query, from 1.
    """
    shown = next(iter(lists.values()))[0].shape[1]
    rows = len(queries) * len(lists)
    figure = Figure(figsize=(0.8 * (shown + 2) + 1.2, 0.86 * rows), layout="constrained")
    grid = figure.subplots(rows, shown + 1, squeeze=False)
    for query, patch in enumerate(queries):
        for order, (name, (patches, right, first)) in enumerate(lists.items()):
            row = grid[query * len(lists) + order]
            _patch(row[0], patch, "black")
            row[0].set_ylabel(f"{name}\nrank {first[query]}", rotation=0, ha="right", va="center", fontsize=8)
            for place in range(shown):
                _patch(row[place + 1], patches[query, place], RIGHT if right[query, place] else WRONG)
    for place, axes in enumerate(grid[0]):
        axes.set_title(str(place) if place else "query", fontsize=8)
    write_figure(figure, path)


def draw_groups(groups: NDArray[np.uint8], columns: Sequence[str], path: Path) -> None:
    """A contact sheet: (G, n, S, S) patches, one group a row."""
    figure = Figure(figsize=(1.1 * groups.shape[1], 1.05 * len(groups) + 0.3), layout="constrained")
    grid = figure.subplots(len(groups), groups.shape[1], squeeze=False)
    for row, group in zip(grid, groups, strict=True):
        for axes, patch in zip(row, group, strict=True):
            _patch(axes, patch, "white")
    for axes, name in zip(grid[0], columns, strict=True):
        axes.set_title(name, fontsize=9)
    write_figure(figure, path)


def _patch(axes: Axes, patch: NDArray[np.uint8], frame: str) -> None:
    axes.imshow(patch, cmap="gray", vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_edgecolor(frame)
        spine.set_linewidth(2.5)
