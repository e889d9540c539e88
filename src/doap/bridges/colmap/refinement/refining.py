"""Refinement of the keypoints of a COLMAP database by the alignment of the patches of their matches.

A descriptor that tolerates inaccurate keypoints also matches inaccurate ones. Here the patches of matches are aligned,
keypoints are moved to where their matches agree, and matches that do not align are left out.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.bridges.colmap.database import Database, StoredImage, pair_id, pair_images, pair_intrinsics
from doap.bridges.colmap.refinement.keypoint_graph import Matches, MatchGraph, Values, solve_corrections
from doap.bridges.colmap.two_view import PIXEL_CENTRE, Intrinsics, TwoViewGeometry, estimate_geometry
from doap.folders import FeatureCollection
from doap.parallel import Engine
from doap.types import Frames, Progress

# Selected on reconstructions of other photos than those of benchmarks/south_building.py.
FIRST_ERROR = 2.0  # largest error of the matches that are aligned, relative to that of verified matches in the end
PATCH_SIZE = 32  # pixels
EXTENT = 3.0  # of patches: less than that of descriptors, as no depth should change in them
MIN_SIMILARITY = 0.7
MAX_SHIFT = 0.8  # in units of the frame
MAX_DISAGREEMENT = 0.5  # of a match with the corrections, relative to the largest error of a verified match


@dataclass(frozen=True)
class CutTask:
    """Frames of an image whose patches a worker stores."""

    image: Path
    frames: Frames
    output: Path


@dataclass(frozen=True)
class AlignTask:
    """Files of the patches of two images, and rows in them of matches, (P, 2)."""

    files: tuple[Path, Path]
    rows: Matches


@dataclass(frozen=True, eq=False)
class GeometryTask:
    """Matched points of a pair; see `estimate_geometry`."""

    first: NDArray[np.float32]
    second: NDArray[np.float32]
    size: tuple[int, int]
    threshold: float
    cameras: Intrinsics | None


def cut_task(task: CutTask) -> None:
    """Store the patches of an image; runs in a worker."""
    from doap.images.extraction import extract_patches
    from doap.images.reading import read_grey

    np.save(task.output, extract_patches(read_grey(task.image, exif_rotation=False), task.frames, PATCH_SIZE, EXTENT))


def align_task(task: AlignTask) -> tuple[Values, Values]:
    """Align the patches of the matches of a pair; runs in a worker.

    Returns:
        (P, 2) shifts in units of the frame, and (P,) weights, 0 for patches that do not align.
    """
    import torch

    from doap.matching.patch_alignment import align_patches

    patches = (np.load(file, mmap_mode="r")[rows] for file, rows in zip(task.files, task.rows.T, strict=True))
    result = align_patches(*map(torch.from_numpy, patches))
    shifts = result.shifts.double().numpy() * (2 * EXTENT / PATCH_SIZE)
    similarities = result.similarities.double().numpy()
    aligned = (similarities > MIN_SIMILARITY) & (np.linalg.norm(shifts, axis=1) < MAX_SHIFT)
    return shifts, np.where(aligned & result.converged.numpy(), similarities**4, 0)


def geometry_task(task: GeometryTask) -> TwoViewGeometry:
    """Verify the matches of a pair; runs in a worker."""
    return estimate_geometry(task.first, task.second, task.size, task.threshold, task.cameras)


def refine_keypoints(
    database: Database,
    collection: FeatureCollection,
    images: Mapping[str, StoredImage],
    folder: Path,
    max_error: float,
    pool: Engine,
    progress: Progress,
) -> None:
    """Refine the keypoints of all images that have verified matches, and verify the matches again.

    Everything is computed from the features as they were described and the matches as they were found, and written in
    one transaction: the result does not depend on interruptions or earlier refinements. Nothing is done if nothing was
    matched since the last one.

    Args:
        database: Database with matches that were verified at `FIRST_ERROR` times the error.
        collection: Features.
        images: Images whose keypoints are refined.
        folder: Folder of the images.
        max_error: Largest error of a verified match, relative to the longer side of its images.
        pool: Workers.
        progress: Called with the number of pairs that are aligned and that are verified, and the sum of all.
    """
    names = {image.number: name for name, image in images.items()}
    pairs = [pair for pair in sorted(database.matched()) if all(number in names for number in pair_images(pair))]
    stamps = [(name, collection.stamps[name]) for name in sorted(images)]
    state = sha256(repr((stamps, pairs)).encode()).hexdigest()
    if database.refinement() == state:
        return
    graph = MatchGraph.of_matches(
        ((names[first], names[second]), matches)
        for pair, matches in database.matches_before_refinement(pairs)
        for first, second in [pair_images(pair)]
    )
    frames: dict[str, Frames] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for name in graph.keypoints:  # one after the other: descriptors of all images may not fit into memory
        features = collection[name]
        frames[name], sizes[name] = features.frames.copy(), features.size
    thresholds = [max_error * max(sizes[first] + sizes[second]) for first, second in graph.pairs]
    shifts, weights = _align(graph, frames, folder, collection.path.parent, pool, progress)
    corrections = solve_corrections(len(graph), graph.edges, shifts, weights)
    residuals = shifts - np.diff(corrections[graph.edges], axis=1)[:, 0]
    matches = _aligned_matches(graph, frames, residuals, weights, thresholds)
    for name, own in graph.by_image(corrections).items():
        keypoints = graph.keypoints[name]
        frames[name][keypoints, :, 2] += np.einsum("nij,nj->ni", frames[name][keypoints, :, :2], own)
    cameras = database.cameras()

    def task(pair: int) -> GeometryTask:
        first, second = graph.pairs[pair]
        rows = matches[pair]
        a = frames[first][rows[:, 0], :, 2] + np.float32(PIXEL_CENTRE)
        b = frames[second][rows[:, 1], :, 2] + np.float32(PIXEL_CENTRE)
        intrinsics = pair_intrinsics(cameras, images[first], images[second])
        return GeometryTask(a, b, sizes[second], thresholds[pair], intrinsics)

    geometries: list[TwoViewGeometry] = []
    for geometry in pool.map(geometry_task, map(task, range(len(graph.pairs)))):
        geometries.append(geometry)
        progress(len(graph.pairs) + len(geometries), 2 * len(graph.pairs))
    with database.transaction():
        for name, image in images.items():  # those without matches may have been refined by matches that they had
            database.move_keypoints(image.number, frames[name] if name in frames else collection[name].frames)
        for (first, second), rows, geometry in zip(graph.pairs, matches, geometries, strict=True):
            database.write_geometry(pair_id(images[first].number, images[second].number), rows, geometry)
        database.remember_refinement(state)


def _align(
    graph: MatchGraph, frames: Mapping[str, Frames], folder: Path, scratch: Path, pool: Engine, progress: Progress
) -> tuple[Values, Values]:
    """Return shifts, (E, 2), and weights, (E,), of all edges; patches are kept in files in the meantime."""
    total = 2 * len(graph.pairs)
    progress(0, total)
    shifts, weights = [np.empty((0, 2))], [np.empty(0)]
    with tempfile.TemporaryDirectory(prefix=".patches-", dir=scratch) as temporary:
        files = {name: Path(temporary) / f"{number}.npy" for number, name in enumerate(graph.keypoints)}
        cuts = (CutTask(folder / name, frames[name][graph.keypoints[name]], files[name]) for name in files)
        for _ in pool.map(cut_task, cuts):
            pass
        tasks = (
            AlignTask((files[first], files[second]), rows)
            for (first, second), rows in zip(graph.pairs, graph.rows, strict=True)
        )
        for done, (shift, weight) in enumerate(pool.map(align_task, tasks), 1):
            shifts.append(shift)
            weights.append(weight)
            progress(done, total)
    return np.concatenate(shifts), np.concatenate(weights)


def _aligned_matches(
    graph: MatchGraph, frames: Mapping[str, Frames], residuals: Values, weights: Values, thresholds: list[float]
) -> list[Matches]:
    """Return the matches of each pair that align, and whose alignment agrees with the corrections."""
    shapes = [frames[name][keypoints, :, :2] for name, keypoints in graph.keypoints.items()]
    scales = np.sqrt(np.abs(np.linalg.det(np.concatenate([np.empty((0, 2, 2)), *shapes]))))
    pixels = np.linalg.norm(residuals, axis=1) * scales[graph.edges].max(1, initial=0)
    parts = zip(graph.matches, graph.by_pair(weights), graph.by_pair(pixels), thresholds, strict=True)
    return [
        rows[(weight > 0) & (distance < MAX_DISAGREEMENT * threshold)] for rows, weight, distance, threshold in parts
    ]
