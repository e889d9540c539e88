"""The figure of alignment: groups of patches as they are, aligned, and aligned with zeros beyond the patch."""

import textwrap
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from doap.evaluation.alignment.benchmark import Alignment, Pixels
from doap.files import write_figure

BACKGROUND = 255
SIDE, GAP, LABEL, TITLE = 1.9, 0.16, 1.5, 0.5  # inches
LABEL_CHARACTERS = 17  # per line


def draw_alignment(alignment: Alignment, path: Path, columns: int = 5) -> None:
    """Draw one column per group, its patches arranged in a square; the rows as in the paper.

    Args:
        alignment: Groups to draw and what the rows show.
        path: File to write; its suffix selects the format.
        columns: Number of groups to draw, the first ones.
    """
    groups = alignment.groups[:columns]
    labels = [textwrap.fill(name, LABEL_CHARACTERS) for name in alignment.row_names]
    width = LABEL + len(groups) * (SIDE + GAP)
    height = TITLE + len(labels) * (SIDE + GAP)
    figure = Figure(figsize=(width, height))
    for column, group in enumerate(groups):
        left = LABEL + column * (SIDE + GAP)
        for row, patches in enumerate((group.originals, group.aligned, group.aligned_zeros)):
            bottom = height - TITLE - row * (SIDE + GAP) - SIDE
            axes = figure.add_axes((left / width, bottom / height, SIDE / width, SIDE / height))
            axes.imshow(arrange_square(patches), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set_axis_off()
            if not column:
                middle = (bottom + SIDE / 2) / height
                figure.text((LABEL - 0.12) / width, middle, labels[row], ha="right", va="center", fontsize=10)
        name = _shorten(Path(group.sequence).name)
        middle = (left + SIDE / 2) / width
        figure.text(middle, (height - 0.2) / height, name, ha="center", va="center", fontsize=9)
        number = f"group {group.number}, {len(group.originals)} patches"
        figure.text(middle, (height - 0.38) / height, number, ha="center", va="center", fontsize=7.5, color="#7d7d7d")
    write_figure(figure, path, dpi=160)


def arrange_square(patches: Pixels) -> Pixels:
    """Arrange (n, S, S) patches row by row in a square of ⌈√n⌉ columns, separated by lines of background."""
    across = int(np.ceil(len(patches) ** 0.5))
    cell = patches.shape[1] + max(1, patches.shape[1] // 16)
    sheet = np.full((across * cell, across * cell), BACKGROUND, np.uint8)
    for index, patch in enumerate(patches):
        top, left = divmod(index, across)
        sheet[top * cell :, left * cell :][: len(patch), : len(patch)] = patch
    side = sheet.shape[0] - cell + patches.shape[1]  # no line after the last patch
    return sheet[:side, :side]


def _shorten(name: str, max_length: int = 26) -> str:
    return name if len(name) <= max_length else f"{name[: max_length - 1]}…"
