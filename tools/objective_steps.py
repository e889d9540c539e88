"""Draw the figures of docs/objective-steps.md: a query, its list, soft histograms, precision and gradient.

python tools/objective_steps.py [FOLDER]
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from doap import PatchSet, describe_patches, load
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.build.cutting import cut_patches
from doap.demo import photos
from doap.images.frames import detect_dog
from doap.objectives.average_precision import relaxed_average_precision, soft_histogram, triangular_kernel

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BINS = 10
WIDTH = 2 / BINS
MODEL = "doap-demo-128"  # a model after a minute of training, which still makes errors
QUERY = 42
NON_MATCHES = 9
APART = 40  # pixels between the centres of different points
MATCH, OTHER = "#00796b", "#c2410c"


@dataclass(frozen=True)
class RankedList:
    """A query and the items it ranks, nearest first.

    Attributes:
        query: (S, S) patch.
        patches: (N, S, S) patches of the items.
        distances: (N,) Euclidean distances to the query, ascending.
        is_match: (N,) whether an item shows the query's point.
    """

    query: NDArray[np.uint8]
    patches: NDArray[np.uint8]
    distances: Tensor
    is_match: NDArray[np.bool_]

    @property
    def colours(self) -> list[str]:
        """The colour of each item."""
        return [MATCH if match else OTHER for match in self.is_match]

    def histograms(self, distances: Tensor) -> tuple[Tensor, Tensor]:
        """Return h⁺ and h at distances of the items, each (1, b + 1)."""
        matches = torch.from_numpy(self.is_match)[None].to(distances.dtype)
        return (
            soft_histogram(distances[None], matches, BINS, WIDTH),
            soft_histogram(distances[None], torch.ones_like(matches), BINS, WIDTH),
        )

    def average_precision(self, distances: Tensor) -> Tensor:
        """Return the relaxed AP of the list, a scalar."""
        return relaxed_average_precision(*self.histograms(distances))[0]


def rank_patches() -> RankedList:
    """Rank jittered views of a query's point and patches of other points by a trained descriptor."""
    frames = frame_set_from_photos(photos.read_photos(photos.TEST[:2]), lambda image: detect_dog(image, 60))
    with tempfile.TemporaryDirectory() as folder:
        cut_patches(frames, Path(folder, "set"))
        patches = PatchSet.open(Path(folder, "set"))
        pixels, groups = patches.take(np.arange(len(patches))), np.asarray(patches.groups)
    vectors = torch.from_numpy(np.asarray(describe_patches(pixels, load(MODEL)))).double()
    query = int(np.flatnonzero(groups == QUERY)[0])
    distances = (vectors - vectors[query]).norm(dim=1)
    centres = frames.frames[groups, :, 2]
    is_apart = np.linalg.norm(centres - centres[query], axis=1) > APART
    others = np.flatnonzero(is_apart | (np.asarray(patches.sequences) != patches.sequences[query]))
    nearest = others[np.argsort(distances[others].numpy())]
    # The hardest non-matches, and some from the rest of the list.
    chosen = np.concatenate([nearest[:4], nearest[40 :: len(nearest) // (NON_MATCHES - 4)]])[:NON_MATCHES]
    items = np.concatenate([np.flatnonzero(groups == QUERY)[1:], chosen])
    items = items[np.argsort(distances[items].numpy())]
    return RankedList(pixels[query], pixels[items], distances[items], groups[items] == QUERY)


def draw_list(ranked: RankedList) -> Figure:
    """Draw the query and its items in order of distance."""
    figure = Figure(figsize=(8, 1.25), layout="constrained")
    panels = figure.subplots(1, len(ranked.patches) + 1)
    distances = [0.0, *ranked.distances.tolist()]
    shown = zip([ranked.query, *ranked.patches], ["black", *ranked.colours], distances, strict=True)
    for index, (panel, (patch, colour, distance)) in enumerate(zip(panels, shown, strict=True)):
        panel.imshow(patch, cmap="gray", vmin=0, vmax=255)
        panel.set(xticks=[], yticks=[], xlabel=f"{distance:.2f}" if index else "query")
        panel.spines[:].set(color=colour, linewidth=3, visible=True)
    figure.suptitle("Ranked by distance: matches green, non-matches orange", fontsize=9)
    return figure


def draw_kernel(ranked: RankedList) -> Figure:
    """Draw how one distance is divided between two bins."""
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    axes = figure.subplots()
    grid = torch.linspace(0, 2, 801, dtype=torch.float64)
    kernel = triangular_kernel(grid / WIDTH, BINS)
    axes.plot(grid, kernel, color="#bbb", linewidth=1)
    distance = ranked.distances[ranked.is_match][-1]
    weights = triangular_kernel(distance[None] / WIDTH, BINS)[0]
    for k in torch.nonzero(weights).flatten().tolist():
        axes.plot(grid, kernel[:, k], color=MATCH, linewidth=2)
        axes.plot([distance, k * WIDTH], [weights[k], weights[k]], color=MATCH, linestyle=":")
        label = f"{weights[k]:.2f} in bin {k}"
        side = "right" if k * WIDTH < distance else "left"
        offset = -10 if side == "right" else 10
        axes.annotate(label, (k * WIDTH, weights[k]), (offset, 4), textcoords="offset points", ha=side)
    axes.axvline(float(distance), color=MATCH, linewidth=1)
    axes.set(
        xlabel="distance D", ylabel="δ(D, k)", ylim=(0, 1.25), title=f"A match at D = {distance:.2f} counts in two bins"
    )
    return figure


def draw_histograms(ranked: RankedList) -> Figure:
    """Draw the soft histograms, and precision at each bin."""
    matches, all_items = (histogram[0].numpy() for histogram in ranked.histograms(ranked.distances))
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    centres = np.arange(BINS + 1) * WIDTH
    top.bar(centres, matches, 0.7 * WIDTH, color=MATCH, label="h⁺, matches")
    top.bar(centres, all_items - matches, 0.7 * WIDTH, bottom=matches, color=OTHER, label="h - h⁺, non-matches")
    _draw_items(top, ranked)
    top.set(ylabel="soft count")
    top.legend(frameon=False, loc="upper left")
    precision = (2 * matches.cumsum() - matches + 1) / (2 * all_items.cumsum() - all_items + 1)
    share = matches / matches.sum()
    bottom.bar(centres, share * precision, 0.7 * WIDTH, color=MATCH, label="its share of AP, h⁺ / |S⁺| · precision")
    bottom.plot(centres, precision, color="black", marker="o", markersize=3, linewidth=1, label="precision")
    total = float(ranked.average_precision(ranked.distances))
    bottom.set(xlabel="distance to the query", ylim=(0, 1.05))
    bottom.set_title(f"AP = sum of the bars = {total:.3f}", fontsize=10)
    bottom.legend(frameon=False, loc="upper right")
    return figure


def draw_gradient(ranked: RankedList) -> Figure:
    """Draw the derivative of AP by the distance of each item, and the AP while one match moves."""
    distances = ranked.distances.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(ranked.average_precision(distances), distances)
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.bar(ranked.distances.numpy(), gradient.numpy(), 0.02, color=ranked.colours)
    top.axhline(0, color="black", linewidth=0.8)
    _draw_items(top, ranked)
    top.set(
        ylabel="∂AP / ∂D", title="Matches are pulled (negative), non-matches pushed (positive), where order is wrong"
    )
    moved = int(np.flatnonzero(ranked.is_match)[-1])
    grid = np.linspace(0, 2, 401)
    relaxed, exact = zip(*(_move_item(ranked, moved, position) for position in grid), strict=True)
    bottom.plot(grid, exact, color="black", linewidth=1, label="exact AP: steps, gradient 0")
    bottom.plot(grid, relaxed, color=MATCH, linewidth=2, label="relaxed AP: slopes")
    bottom.set(xlabel="distance of the last match", ylabel="AP")
    bottom.legend(frameon=False)
    return figure


def _move_item(ranked: RankedList, index: int, position: float) -> tuple[float, float]:
    """Return relaxed and exact AP with one item moved."""
    distances = ranked.distances.clone()
    distances[index] = position
    hits = ranked.is_match[np.argsort(distances.numpy(), kind="stable")]
    precision = hits.cumsum() / np.arange(1, len(hits) + 1)
    return float(ranked.average_precision(distances)), float(precision[hits].mean())


def _draw_items(axes: Axes, ranked: RankedList) -> None:
    """Draw the items as marks on the axis of distance."""
    for distance, match in zip(ranked.distances.tolist(), ranked.is_match, strict=True):
        marker, colour = ("o", MATCH) if match else ("s", OTHER)
        axes.plot(distance, 0, marker, color=colour, markersize=5, clip_on=False, zorder=3)


FIGURES = {
    "objective-list.png": draw_list,
    "objective-kernel.png": draw_kernel,
    "objective-histograms.png": draw_histograms,
    "objective-gradient.png": draw_gradient,
}


def main(folder: Path) -> None:
    """Draw all figures into a folder."""
    ranked = rank_patches()
    for name, draw in FIGURES.items():
        draw(ranked).savefig(folder / name, dpi=130, metadata={"Software": None})
    print(f"AP {float(ranked.average_precision(ranked.distances)):.3f}, figures in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
