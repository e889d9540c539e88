"""Figure of label mining: clusters of a sequence, and which of them are distractors of each other."""

from itertools import combinations
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path as Curve

from doap.datasets.label_mining.mining import MinedLabels
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.files import write_figure

FAR_COLOUR, NEAR_COLOUR = "#d73027", "#9a9a9a"
MAX_SEQUENCES, MAX_CLUSTERS, MAX_PATCHES = 4, 5, 9
ROW_HEIGHT = 1.16  # in patches


def draw_clusters(mined: MinedLabels, patches: PatchSet, path: Path, seed: int = 0) -> None:
    """Draw up to four sequences with five clusters each, one cluster per row.

    Sequences, clusters and patches are sampled with the seed. A red arrow joins clusters farther apart than the
    threshold, whose patches are distractors of each other. A grey arrow joins clusters that look too similar, whose
    patches ignore each other.
    """
    random = np.random.default_rng(seed)
    sequences = np.unique(patches.sequences)
    selected = np.sort(random.choice(len(sequences), min(MAX_SEQUENCES, len(sequences)), replace=False))
    columns = min(2, len(selected))
    rows = -(-len(selected) // columns)
    figure = Figure(figsize=(6.4 * columns, 3.7 * rows + 0.4))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.1)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, number in zip(grid, selected, strict=False):
        sequence = sequences[number]
        name = patches.sequence_names[sequence] if patches.sequence_names else f"sequence {sequence}"
        axes.set_title(name, fontsize=11, loc="left", pad=8)
        _draw_sequence(axes, mined, patches, int(number), random)
    for axes in grid:
        axes.set_axis_off()
    figure.legend(
        handles=[
            Line2D([], [], color=FAR_COLOUR, linewidth=2, label="farther apart than the threshold: distractors"),
            Line2D([], [], color=NEAR_COLOUR, linewidth=2, label="too similar: ignored"),
        ],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    write_figure(figure, path, dpi=130)


def _draw_sequence(axes: Axes, mined: MinedLabels, patches: PatchSet, number: int, random: np.random.Generator) -> None:
    per_sequence = mined.near.shape[1]
    present = np.unique(mined.clusters[mined.clusters // per_sequence == number])
    clusters = random.choice(present, min(MAX_CLUSTERS, len(present)), replace=False)
    for row, cluster in enumerate(clusters):
        members = np.flatnonzero(mined.clusters == cluster)
        _draw_row(axes, patches, members, row, random)
    near = mined.near[number].cpu().numpy()
    in_sequence = clusters - number * per_sequence
    for first, second in combinations(range(len(clusters)), 2):
        is_near = bool(near[in_sequence[first], in_sequence[second]])
        _draw_arrow(axes, first, second, len(clusters), is_near)
    axes.set_xlim(-0.05, MAX_PATCHES + 2.0)
    axes.set_ylim(MAX_CLUSTERS * ROW_HEIGHT - 0.08, -0.08)
    axes.set_aspect("equal")


def _draw_row(axes: Axes, patches: PatchSet, members: Ids, row: int, random: np.random.Generator) -> None:
    """Draw some patches of a cluster, of different groups where possible."""
    shuffled = random.permutation(members)
    _, firsts = np.unique(patches.groups[shuffled], return_index=True)
    others = np.setdiff1d(np.arange(len(shuffled)), firsts)
    selected = shuffled[np.concatenate((random.permutation(firsts), others))[:MAX_PATCHES]]
    top = row * ROW_HEIGHT
    for column, patch in enumerate(patches.take(selected)):
        axes.imshow(patch, cmap="gray", vmin=0, vmax=255, extent=(column, column + 0.94, top + 0.94, top))
    axes.add_patch(
        Rectangle((-0.05, top - 0.05), len(selected) + 0.04, 1.04, fill=False, edgecolor="#444444", linewidth=0.8)
    )


def _draw_arrow(axes: Axes, first: int, second: int, count: int, is_near: bool) -> None:
    """Draw an arc at the right edge from one row to a lower one of `count` rows; longer arcs are wider."""
    # From top to bottom of a row: arcs from above, nearest first, then arcs from below, nearest last. Arcs of one
    # row never cross.
    start = first * ROW_HEIGHT + 0.94 * (first + count - 1 - second + 0.5) / (count - 1)
    end = second * ROW_HEIGHT + 0.94 * (second - first - 0.5) / (count - 1)
    left, right = MAX_PATCHES + 0.1, MAX_PATCHES + 0.1 + 0.75 * (second - first) ** 0.8
    arc = Curve([(left, start), (right, start), (right, end), (left, end)], [Curve.MOVETO, *[Curve.CURVE4] * 3])
    axes.add_patch(
        FancyArrowPatch(
            path=arc,
            arrowstyle="<|-|>",
            mutation_scale=7,
            color=NEAR_COLOUR if is_near else FAR_COLOUR,
            linewidth=1.4,
            zorder=2 if is_near else 1,
        )
    )
