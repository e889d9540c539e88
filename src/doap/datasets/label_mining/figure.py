"""Figure of label mining: clusters of some sequences, and which of them are negatives of each other."""

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path as Curve
from torch import Tensor

from doap.datasets.label_mining.mining import MinedLabels
from doap.datasets.official.image_sequences import find_sequences
from doap.datasets.sets.groups import GroupedSet, Ids
from doap.errors import DoapError
from doap.files import write_figure
from doap.images.reading import read_grey, shrink

FAR_COLOUR, NEAR_COLOUR = "#d73027", "#9a9a9a"
SAMPLED_SEQUENCES, MAX_SEQUENCES, MAX_CLUSTERS, MAX_PATCHES = 4, 8, 5, 9
ROW_HEIGHT = 1.16  # in patches, as all lengths below
IMAGE_SIDE = 5.6  # of the longer side of a sequence's image
IMAGE_PIXELS = 640

Take = Callable[[Ids], Tensor]
"""Function that returns the patches at indices, (M, S, S) uint8."""


def draw_clusters(
    mined: MinedLabels,
    data: GroupedSet,
    take: Take,
    path: Path,
    sequences: Sequence[str] = (),
    images: Path | None = None,
    seed: int = 0,
) -> None:
    """Draw some sequences with five clusters each, one cluster per row.

    A red arrow joins clusters farther apart than the threshold, whose patches are negatives of each other. A grey arrow
    joins clusters that look too similar, whose patches ignore each other.

    Args:
        mined: Labels of the set.
        data: The set.
        take: Function that returns the patches at indices.
        path: File to write.
        sequences: Names of the sequences to draw, at most eight; by default four sampled ones.
        images: Folder of image sequences named as those of the set; the first image of each is drawn at the left of its
            clusters. A sequence that the folder does not have is drawn without.
        seed: Seed of the sampled sequences, clusters and patches.

    Raises:
        DoapError: If a sequence is not in the set, or an image cannot be read.
    """
    random = np.random.default_rng(seed)
    shown = _select_sequences(data, sequences, random)
    first_images = {sequence.name: sequence.images[0] for sequence in find_sequences(images)} if images else {}
    has_images = any(name in first_images for name in shown.values())
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=((6.4 + 3.5 * has_images) * columns, 3.7 * rows + 0.4))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.1)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (number, name) in zip(grid, shown.items(), strict=False):
        _draw_sequence(axes, mined, data, take, number, random)
        left = _draw_image(axes, first_images[name]) if name in first_images else -0.05
        axes.text(left, -0.3, name, fontsize=11)
        axes.set_xlim(-0.05 - (IMAGE_SIDE + 0.35) * has_images, MAX_PATCHES + 2.0)
        axes.set_ylim(MAX_CLUSTERS * ROW_HEIGHT - 0.08, -0.08)
        axes.set_aspect("equal")
    for axes in grid:
        axes.set_axis_off()
    figure.legend(
        handles=[
            Line2D([], [], color=FAR_COLOUR, linewidth=2, label="farther apart than the threshold: negatives"),
            Line2D([], [], color=NEAR_COLOUR, linewidth=2, label="too similar: ignored"),
        ],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    write_figure(figure, path, dpi=130)


def sequence_names(data: GroupedSet) -> list[str]:
    """Return the name of each sequence that has patches, in the order of `MinedLabels`."""
    ids = np.unique(data.sequences)
    return [data.sequence_names[number] if data.sequence_names else f"sequence {number}" for number in ids]


def check_sequences(data: GroupedSet, names: Sequence[str], images: Path | None = None) -> None:
    """Check that `draw_clusters` can draw some sequences; call it before mining.

    Raises:
        DoapError: If there are more than eight names, one is not in the set, or the folder of images has none of them.
    """
    present = sequence_names(data)
    if images and not {sequence.name for sequence in find_sequences(images)} & set(names or present):
        raise DoapError(f"{images}: has no image of these sequences; name its folders as the sequences of the set")
    for name in names:
        if name not in present:
            raise DoapError(f"{name}: no such sequence in the set; there are {', '.join(present[:5])} …")
    if len(names) > MAX_SEQUENCES:
        raise DoapError(f"{len(names)} sequences do not fit into a figure; choose at most {MAX_SEQUENCES}")


def _select_sequences(data: GroupedSet, names: Sequence[str], random: np.random.Generator) -> dict[int, str]:
    """Return the names of the sequences to draw, by their number in `MinedLabels`."""
    check_sequences(data, names)
    present = sequence_names(data)
    if names:
        return {present.index(name): name for name in names}
    numbers = random.choice(len(present), min(SAMPLED_SEQUENCES, len(present)), replace=False)
    return {int(number): present[number] for number in np.sort(numbers)}


def _draw_sequence(
    axes: Axes, mined: MinedLabels, data: GroupedSet, take: Take, number: int, random: np.random.Generator
) -> None:
    per_sequence = mined.near.shape[1]
    present = np.unique(mined.clusters[mined.clusters // per_sequence == number])
    clusters = random.choice(present, min(MAX_CLUSTERS, len(present)), replace=False)
    for row, cluster in enumerate(clusters):
        members = np.flatnonzero(mined.clusters == cluster)
        _draw_row(axes, data, take, members, row, random)
    near = mined.near[number].cpu().numpy()
    in_sequence = clusters - number * per_sequence
    for first, second in combinations(range(len(clusters)), 2):
        is_near = bool(near[in_sequence[first], in_sequence[second]])
        _draw_arrow(axes, first, second, len(clusters), is_near)


def _draw_image(axes: Axes, file: Path) -> float:
    """Draw an image at the left of the clusters, centred beside them; return its left edge."""
    image = shrink(read_grey(file), IMAGE_PIXELS)
    scale = IMAGE_SIDE / max(image.shape)
    height, width = image.shape[0] * scale, image.shape[1] * scale
    top = (MAX_CLUSTERS * ROW_HEIGHT - (ROW_HEIGHT - 0.94) - height) / 2
    left: float = -0.35 - width
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, extent=(left, -0.35, top + height, top))
    return left


def _draw_row(axes: Axes, data: GroupedSet, take: Take, members: Ids, row: int, random: np.random.Generator) -> None:
    """Draw some patches of a cluster, of different groups where possible."""
    shuffled = random.permutation(members)
    _, firsts = np.unique(data.groups[shuffled], return_index=True)
    others = np.setdiff1d(np.arange(len(shuffled)), firsts)
    selected = shuffled[np.concatenate((random.permutation(firsts), others))[:MAX_PATCHES]]
    top = row * ROW_HEIGHT
    for column, patch in enumerate(take(selected).cpu().numpy()):
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
