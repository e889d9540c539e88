"""The figure of label mining: clusters of a sequence, and which of them are distractors for each other."""

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

FAR, NEAR = "#d73027", "#9a9a9a"
SEQUENCES, CLUSTERS, SHOWN = 4, 5, 9
ROW = 1.16  # the height of a row in patches


def draw_clusters(mined: MinedLabels, patches: PatchSet, path: Path, seed: int = 0) -> None:
    """Up to four sequences, of each five clusters, one a row: all drawn at random, as the patches shown.

    A red arrow joins clusters farther apart than the threshold, whose patches are distractors for each
    other; a grey one joins clusters that look too much alike, whose patches ignore each other.
    """
    random = np.random.default_rng(seed)
    sequences = np.unique(patches.sequences)
    places = np.sort(random.choice(len(sequences), min(SEQUENCES, len(sequences)), replace=False))
    columns = min(2, len(places))
    rows = -(-len(places) // columns)
    figure = Figure(figsize=(6.4 * columns, 3.7 * rows + 0.4))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.1)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, place in zip(grid, places, strict=False):
        sequence = sequences[place]
        name = patches.sequence_names[sequence] if patches.sequence_names else f"sequence {sequence}"
        axes.set_title(name, fontsize=11, loc="left", pad=8)
        _draw_sequence(axes, mined, patches, int(place), random)
    for axes in grid:
        axes.set_axis_off()
    figure.legend(
        handles=[
            Line2D([], [], color=FAR, linewidth=2, label="farther apart than the threshold: distractors"),
            Line2D([], [], color=NEAR, linewidth=2, label="too much alike: ignored"),
        ],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    write_figure(figure, path, dpi=130)


def _draw_sequence(axes: Axes, mined: MinedLabels, patches: PatchSet, place: int, random: np.random.Generator) -> None:
    per_sequence = mined.near.shape[1]
    present = np.unique(mined.clusters[mined.clusters // per_sequence == place])
    chosen = random.choice(present, min(CLUSTERS, len(present)), replace=False)
    for row, cluster in enumerate(chosen):
        members = np.flatnonzero(mined.clusters == cluster)
        _draw_row(axes, patches, members, row, random)
    near = mined.near[place].cpu().numpy()
    in_sequence = chosen - place * per_sequence
    for first, second in combinations(range(len(chosen)), 2):
        alike = bool(near[in_sequence[first], in_sequence[second]])
        _draw_arrow(axes, first, second, len(chosen), alike)
    axes.set_xlim(-0.05, SHOWN + 2.0)
    axes.set_ylim(CLUSTERS * ROW - 0.08, -0.08)
    axes.set_aspect("equal")


def _draw_row(axes: Axes, patches: PatchSet, members: Ids, row: int, random: np.random.Generator) -> None:
    """Some patches of a cluster, of different groups as far as there are, and how many it has."""
    shuffled = random.permutation(members)
    _, firsts = np.unique(patches.groups[shuffled], return_index=True)
    others = np.setdiff1d(np.arange(len(shuffled)), firsts)
    shown = shuffled[np.concatenate((random.permutation(firsts), others))[:SHOWN]]
    top = row * ROW
    for column, patch in enumerate(patches.take(shown)):
        axes.imshow(patch, cmap="gray", vmin=0, vmax=255, extent=(column, column + 0.94, top + 0.94, top))
    axes.add_patch(
        Rectangle((-0.05, top - 0.05), len(shown) + 0.04, 1.04, fill=False, edgecolor="#444444", linewidth=0.8)
    )


def _draw_arrow(axes: Axes, first: int, second: int, count: int, alike: bool) -> None:
    """A bow at the right from one row to a lower one, of so many rows; longer ones reach farther out."""
    # Down a row's edge: the arrows from above, the nearest first, then those from below, the nearest last. So bows
    # that start at the same row never cross.
    out = first * ROW + 0.94 * (first + count - 1 - second + 0.5) / (count - 1)
    into = second * ROW + 0.94 * (second - first - 0.5) / (count - 1)
    left, right = SHOWN + 0.1, SHOWN + 0.1 + 0.75 * (second - first) ** 0.8
    bow = Curve([(left, out), (right, out), (right, into), (left, into)], [Curve.MOVETO, *[Curve.CURVE4] * 3])
    axes.add_patch(
        FancyArrowPatch(
            path=bow,
            arrowstyle="<|-|>",
            mutation_scale=7,
            color=NEAR if alike else FAR,
            linewidth=1.4,
            zorder=2 if alike else 1,
        )
    )
