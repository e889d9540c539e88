"""Patches of tracked points in the official formats of Phototour and RomePatches, with real groups and real pairs.

Both are cut around the frames of a 3D point in its different photos, each at its own scale and orientation, as the
official patches are. Frames whose patch leaves the photo are left out. Phototour patches are jittered by default; see
`LookAlikeSettings`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.datasets.build.cutting import cut_items
from doap.datasets.build.settings import LookAlikeSettings
from doap.datasets.official import phototour, romepatches
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.scenes import SetScene, seeded_order
from doap.errors import DoapError
from doap.images.extraction import are_patches_inside
from doap.types import Progress, no_progress

VIEWS_PER_POINT = {2: 0.65, 3: 0.22, 4: 0.09, 5: 0.04}  # of Phototour: 2.5 on average
EASY, HARD = 1, 2  # levels of jitter
PER_GROUP = 10  # patches of a RomePatches group
MAX_ROUNDS = 50  # of sampling non-matching pairs


@dataclass(frozen=True)
class PointViews:
    """Frames of points, at most one per photo. Points are in random order, and so are the frames of a point.

    Attributes:
        items: (M,) indices of frames, point by point.
        sizes: (G,) number of frames of each point.
    """

    items: Ids
    sizes: Ids

    def first(self, counts: Ids) -> Ids:
        """Return the first frames of each point, point by point; counts is (G,), at most `sizes`."""
        ranks = np.arange(len(self.items)) - np.repeat(np.cumsum(self.sizes) - self.sizes, self.sizes)
        return self.items[ranks < np.repeat(counts, self.sizes)]


def find_point_views(data: FrameSet, scenes: Sequence[SetScene], random: np.random.Generator) -> PointViews:
    """Find the tracked points of scenes whose patch is inside at least two photos.

    Args:
        data: The frame set.
        scenes: Some of its scenes.
        random: Selects one of several frames of a point in a photo, and orders points and frames.
    """
    sequences = [sequence for scene in scenes for sequence in scene.sequences]
    is_tracked = np.isin(data.sequences, sequences) & (data.sources == SOURCES.index("tracks"))
    items = random.permutation(_frames_inside(data, np.flatnonzero(is_tracked)))
    _, first = np.unique(np.stack([data.groups[items], data.photos[items]]), axis=1, return_index=True)
    items = items[np.sort(first)]
    points, point_of, sizes = np.unique(data.groups[items], return_inverse=True, return_counts=True)
    ranks = random.permutation(len(points))[point_of.ravel()]
    items = items[sizes[point_of.ravel()] > 1]
    ranks = ranks[sizes[point_of.ravel()] > 1]
    items = items[np.argsort(ranks, kind="stable")]
    return PointViews(items, np.unique(np.sort(ranks), return_counts=True)[1])


def partition_scenes(weights: Mapping[str, int], parts: int, seed: int) -> list[list[str]]:
    """Divide scenes into parts of about equal weight, by the seed.

    Args:
        weights: Weight of each scene, by name.
        parts: Number of parts; there must be as many scenes.
        seed: Determines the parts.

    Returns:
        Names of the scenes of each part, sorted.
    """
    random = np.random.default_rng(seed)
    # The heaviest scenes first, so that lighter ones even out the parts; random factors vary the order by the seed.
    factors = {name: random.uniform(0.5, 1) for name in seeded_order(weights, seed)}
    divided: list[list[str]] = [[] for _ in range(parts)]
    totals = np.zeros((parts, 2))
    for name in sorted(factors, key=lambda name: -factors[name] * weights[name]):
        lightest = min(range(parts), key=lambda part: tuple(totals[part]))
        divided[lightest].append(name)
        totals[lightest] += (weights[name], 1)  # scenes without weight are divided by number
    return [sorted(names) for names in divided]


def write_phototour_part(
    data: FrameSet,
    folder: Path,
    scenes: Sequence[SetScene],
    settings: LookAlikeSettings,
    random: np.random.Generator,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Write a Phototour folder from tracked points, and return its counts.

    The number of patches per point is sampled from `VIEWS_PER_POINT`; with jitter, half of the patches are easy views
    and half are hard ones. The numbers of the points are the groups of the frame set.
    """
    views = find_point_views(data, scenes, random)
    wanted = random.choice(list(VIEWS_PER_POINT), len(views.sizes), p=list(VIEWS_PER_POINT.values()))
    counts = np.minimum(wanted, views.sizes)
    counts[np.cumsum(counts) > settings.patches] = 0
    items = views.first(counts)
    points = data.groups[items]
    pairs = sample_pairs(points, data.overlaps, settings.pairs, random)
    if not len(pairs):
        raise DoapError(f"{folder.name}: no pairs of tracked points in {', '.join(s.name for s in scenes)}; add photos")
    levels = random.choice((EASY, HARD), len(items)) if settings.jitter else np.zeros_like(items)
    patches = cut_items(data, items, levels, phototour.SIZE, settings.seed, progress)
    phototour.write_phototour(folder, patches, points, pairs)
    return {
        "scenes": [scene.name for scene in scenes],
        "photos": len(np.unique(data.photos[items])),
        "points": int((counts > 0).sum()),
        "patches": len(items),
        "pairs": len(pairs),
    }


def write_romepatches_half(
    data: FrameSet,
    folder: Path,
    half: str,
    scenes: Sequence[SetScene],
    settings: LookAlikeSettings,
    random: np.random.Generator,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Write a half of RomePatches from tracked points, and return its counts.

    Points in at least ten photos are used first. If they are too few, points in fewer photos follow, most photos
    first; their groups are filled up to ten patches with easy views of their frames.
    """
    views = find_point_views(data, scenes, random)
    seen = np.minimum(views.sizes, PER_GROUP)
    selected = np.sort(np.argsort(-seen, kind="stable")[: settings.groups])
    counts = np.zeros_like(seen)
    counts[selected] = seen[selected]
    items = views.first(counts)
    if not len(items):
        raise DoapError(f"{folder.name}: no tracked points in {', '.join(s.name for s in scenes)}; add photos")
    starts = np.cumsum(seen[selected]) - seen[selected]
    numbers = np.arange(PER_GROUP)
    # Queries first: one row per number of the patch in its group, one column per group.
    chosen = items[starts + numbers[:, None] % seen[selected]]
    levels = np.where(numbers[:, None] < seen[selected], 0, EASY)
    patches = cut_items(data, chosen.ravel(), levels.ravel(), romepatches.SIZE, settings.seed, progress)
    romepatches.write_romepatches(folder, half, patches, data.groups[chosen.ravel()])
    return {
        "scenes": [scene.name for scene in scenes],
        "photos": len(np.unique(data.photos[items])),
        "groups": len(selected),
        "patches": len(patches),
        "groups filled with jittered views": int((seen[selected] < PER_GROUP).sum()),
        "jittered patches": int((levels > 0).sum()),
    }


def sample_pairs(points: Ids, overlaps: Ids, count: int, random: np.random.Generator) -> Ids:
    """Sample matching pairs and as many non-matching pairs of patches, each pair once, in random order.

    Args:
        points: (N,) point of each patch; patches of a point are consecutive.
        overlaps: (P, 2) points that overlap in a photo; they make no non-matching pair.
        count: Maximum number of matching pairs.
        random: Generator of the sample.

    Returns:
        (P, 2) indices of patches; empty if there are no matching or no non-matching pairs.
    """
    matching = random.permutation(_matching_pairs(points))[:count]
    non_matching = np.zeros((0, 2), np.int64)
    for _ in range(MAX_ROUNDS):
        if len(non_matching) >= len(matching):
            break
        candidates = np.sort(random.integers(len(points), size=(2 * len(matching), 2)), axis=1)
        merged = np.concatenate([non_matching, candidates[_are_negatives(points[candidates], overlaps)]])
        non_matching = merged[np.sort(np.unique(merged, axis=0, return_index=True)[1])]
    size = min(len(matching), len(non_matching))
    return np.asarray(random.permutation(np.concatenate([matching[:size], non_matching[:size]])))


def _matching_pairs(points: Ids) -> Ids:
    """Return all pairs of patches of the same point, (P, 2); patches of a point are consecutive."""
    pairs = [np.zeros((0, 2), np.int64)]
    for offset in range(1, len(points)):
        first = np.flatnonzero(points[:-offset] == points[offset:])
        if not len(first):
            break
        pairs.append(np.stack([first, first + offset], axis=1))
    return np.concatenate(pairs)


def _are_negatives(pairs: Ids, overlaps: Ids) -> NDArray[np.bool_]:
    """Return whether the points of each pair, (P, 2), differ and do not overlap."""
    size = 1 + max(int(pairs.max(initial=0)), int(overlaps.max(initial=0)))
    keys, excluded = (np.sort(points, axis=1) @ np.array([size, 1]) for points in (pairs, overlaps))
    return np.asarray((pairs[:, 0] != pairs[:, 1]) & ~np.isin(keys, excluded))


def _frames_inside(data: FrameSet, items: Ids) -> Ids:
    """Return the frames whose patch is inside its photo."""
    is_inside = np.zeros(len(items), np.bool_)
    photos = data.photos[items]
    for photo in np.unique(photos):
        rows = photos == photo
        is_inside[rows] = are_patches_inside(data.frames[items[rows]], data.photo_shape(int(photo)), data.extent)
    return items[is_inside]
