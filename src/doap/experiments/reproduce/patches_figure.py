"""Figure of example patches: groups of each data set (paper, "Examples from three patch-based datasets")."""

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from doap.datasets.sets.patch_set import PatchSet
from doap.files import write_figure

ROWS_PER_SET = 3
MAX_PATCHES = 16  # per group
CELL, GAP, GROUP_GAP = 48, 2, 14  # pixels: side of a drawn patch, gap between patches, gap between groups
WIDTH = MAX_PATCHES * (CELL + GAP)
BACKGROUND = 255

Sheet = NDArray[np.uint8]


def draw_patches(sets: Mapping[str, PatchSet], path: Path, seed: int = 0) -> None:
    """Draw groups of several sets, three rows per set, groups separated by a gap.

    Args:
        sets: Sets by title, from top to bottom.
        path: File to write.
        seed: Seed of the sampled groups.
    """
    sheets = {title: _arrange_groups(patches, np.random.default_rng(seed)) for title, patches in sets.items()}
    height = sum(len(sheet) for sheet in sheets.values()) / 100 + 0.35 * len(sheets)
    figure = Figure(figsize=(WIDTH / 100, height), layout="constrained")
    panels = figure.subplots(len(sheets), 1, squeeze=False)[:, 0]
    for axes, (title, sheet) in zip(panels, sheets.items(), strict=True):
        axes.imshow(sheet, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_axis_off()
    write_figure(figure, path, dpi=130)


def _arrange_groups(patches: PatchSet, random: np.random.Generator) -> Sheet:
    """Return an image with rows of groups; of large groups, evenly spaced patches."""
    sheet = np.full((ROWS_PER_SET * (CELL + GAP) - GAP, WIDTH), BACKGROUND, np.uint8)
    top = left = 0
    for group in random.permutation(np.flatnonzero(np.diff(patches.members_start) > 1)):
        start, end = patches.members_start[group : group + 2]
        count = min(int(end - start), MAX_PATCHES)
        if left + count * (CELL + GAP) > WIDTH:
            top, left = top + CELL + GAP, 0
        if top >= len(sheet):
            break
        members = patches.members[np.linspace(start, end - 1, count).round().astype(np.int64)]
        for patch in patches.take(members):
            sheet[top : top + CELL, left : left + CELL] = cv2.resize(patch, (CELL, CELL), interpolation=cv2.INTER_AREA)
            left += CELL + GAP
        left += GROUP_GAP
    return sheet
