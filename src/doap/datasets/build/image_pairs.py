"""Image pairs with ground truth for evaluation, made from photos of a frame set that nothing was trained on.

i_NAME  a static view: 1.png, then its other photos unchanged, then warped copies of them. The light is real.
v_NAME  a single photo: 1.png, then warped and relit copies of it.
s_NAME  overlapping photos of a scene, and the ground truth of each pair: a homography, or labelled points.

Static views and single photos give `copies` pairs each, 1-2, 1-3 … With five copies their folders are complete
sequences in the layout and naming scheme of HPatches, so that one folder serves for matching images and for extracting
patches.
pairs.csv lists all pairs in the layout of `doap.datasets.sets.image_pairs`; pairs of one scene are not independent.
"""

import csv
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from doap.datasets.build.settings import PairSettings
from doap.datasets.build.shared_points import (
    MIN_SHARED_GROUPS,
    fit_geometry,
    sample_overlapping_pairs,
    shared_points,
)
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.image_pairs import COLUMNS
from doap.datasets.sets.scenes import SetScene, find_scenes, seeded_order, sequence_name
from doap.errors import DoapError
from doap.files import atomic_folder
from doap.geometry.ground_truth import GroundTruth, Matrix
from doap.images.extraction import Pyramid, to_bytes
from doap.images.warping import random_homography, relight, warp
from doap.types import Grey, Progress, no_progress

PREFIXES = {"static": "i", "views": "v", "tracks": "s"}
MAX_REGISTRATION_ERROR = 0.1  # pixels: photos of a static view share one motion, so points agree up to rounding


@dataclass(frozen=True)
class PairRow:
    """A row of pairs.csv: paths relative to the folder, and the scene of the pair."""

    first: str
    second: str
    truth: str
    scene: str


def make_pairs(data: FrameSet, target: Path, settings: PairSettings, progress: Progress = no_progress) -> list[PairRow]:
    """Write a folder of image pairs from a frame set, atomically.

    Args:
        data: Photos that nothing is trained on.
        target: The folder to create; refused if it exists.
        settings: Numbers of pairs, and the seed.
        progress: Callback, called as progress(done, total) with numbers of scenes.

    Raises:
        DoapError: If no scene gives a pair.
    """
    scenes = _select_scenes(find_scenes(data), settings)
    rows: list[PairRow] = []
    with atomic_folder(target) as folder:
        for done, scene in enumerate(scenes, 1):
            rows += _write_pairs(data, scene, folder, settings)
            progress(done, len(scenes))
        if not rows:
            singles = "no photo is single; add photos" if settings.singles else "no single photo is used, by singles=0"
            raise DoapError(
                f"no image pair can be made from {data}: no two photos share {MIN_SHARED_GROUPS} groups, and {singles}"
            )
        with (folder / "pairs.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, (*COLUMNS, "scene"), lineterminator="\n")
            writer.writeheader()
            writer.writerows(map(asdict, rows))
    return rows


def count_left_out(data: FrameSet, settings: PairSettings) -> int:
    """Return the number of photos that `make_pairs` leaves out because it uses another photo or view of their scene.

    Photos of overlapping views are not counted, nor single photos beyond `settings.singles`.
    """
    count = 0
    for scene in _select_scenes(find_scenes(data), settings):
        if scene.source != "tracks" and len(scene.sequences) > 1:
            used = data.photos[data.sequences == _select_sequence(data, scene, settings.seed)]
            photos = data.photos[np.isin(data.sequences, scene.sequences)]
            count += len(np.setdiff1d(photos, used))
    return count


def make_static_copies(
    photos: list[Grey], motions: list[Matrix], copies: int, random: np.random.Generator
) -> Iterator[tuple[Grey, Matrix]]:
    """Iterate over images to be matched with the first photo of a static view, and the homographies from it.

    First the other photos, then warped copies of them. If there is no other photo, the first is warped and relit.

    Args:
        photos: Photos of the view; the first one is the reference.
        motions: (3, 3) from the first photo to each.
        copies: Number of images.
        random: Generator of the order and the warps.
    """
    others = random.permutation(np.arange(1, len(photos)))
    light = torch.Generator().manual_seed(int(random.integers(1 << 62)))
    for number in others[:copies]:
        yield photos[number], motions[number]
    for _ in range(copies - len(others)):
        number = random.choice(others) if len(others) else 0
        homography = random_homography(photos[number].shape, random)
        values = warp(Pyramid(photos[number]), homography)
        copy = to_bytes(values)[0].numpy() if len(others) else relight(values, light)
        yield copy, homography @ motions[number]


def _select_scenes(scenes: list[SetScene], settings: PairSettings) -> list[SetScene]:
    """Select all scenes with several photos, and some of the single photos."""
    singles = seeded_order([scene.name for scene in scenes if scene.source == "views"], settings.seed)
    selected = set(singles[: settings.singles])
    used = (scene for scene in scenes if scene.source != "views" or scene.name in selected)
    return sorted(used, key=lambda scene: (PREFIXES[scene.source], scene.name))


def _write_pairs(data: FrameSet, scene: SetScene, parent: Path, settings: PairSettings) -> list[PairRow]:
    """Write the images and the ground truth of a scene into its own folder, and return its pairs."""
    random = np.random.default_rng([settings.seed, zlib.crc32(scene.name.encode())])
    folder = parent / (f"{PREFIXES[scene.source]}_" + re.sub(r"[^\w.]+", "-", scene.name).strip("-."))
    while folder.exists():  # names that differ in replaced characters only
        folder = folder.with_name(folder.name + "_")
    if scene.source == "tracks":
        pairs = sample_overlapping_pairs(data, scene.sequences, settings.per_scene, random)
        return _write_scene(data, folder, pairs) if pairs else []
    photos, motions = read_static_view(data, _select_sequence(data, scene, settings.seed))
    if scene.source == "static" and len(photos) == 1:  # no second photo, so no change of light
        return []
    return _write_static(folder, photos[0], list(make_static_copies(photos, motions, settings.copies, random)))


def _select_sequence(data: FrameSet, scene: SetScene, seed: int) -> int:
    """Select one of the sequences of a scene that have its source, by the seed."""
    source = SOURCES.index(scene.source)
    candidates = {
        sequence_name(data, sequence): sequence
        for sequence in scene.sequences
        if (data.sources[data.sequences == sequence] == source).any()
    }
    return candidates[seeded_order(candidates, seed)[0]]


def read_static_view(data: FrameSet, sequence: int) -> tuple[list[Grey], list[Matrix]]:
    """Return the registered photos of a sequence, the one with most frames first, and the motion from it to each."""
    view = data.select(data.sequences == sequence)
    indices, counts = np.unique(view.photos, return_counts=True)
    reference = int(indices[counts.argmax()])
    photos, motions = [data.read_photo(reference)], [np.eye(3)]
    for other in (int(index) for index in indices if index != reference):
        points = shared_points(view, reference, other)
        motion = fit_geometry(points, "homography")
        if motion is not None and motion.errors(points[:, :2], points[:, 2:]).max() <= MAX_REGISTRATION_ERROR:
            photos.append(data.read_photo(other))
            motions.append(motion.matrix)
    return photos, motions


def _write_static(folder: Path, reference: Grey, copies: list[tuple[Grey, Matrix]]) -> list[PairRow]:
    """Write images in the layout of HPatches: 1.png, 2.png …, H_1_2 …"""
    folder.mkdir()
    _save(reference, folder / "1.png")
    rows = []
    for number, (copy, homography) in enumerate(copies, 2):
        _save(copy, folder / f"{number}.png")
        np.savetxt(folder / f"H_1_{number}", homography)
        rows.append(_row(folder, "1.png", f"{number}.png", f"H_1_{number}"))
    return rows


def _write_scene(data: FrameSet, folder: Path, pairs: list[tuple[int, int, GroundTruth]]) -> list[PairRow]:
    """Write each photo once, named by its index in the set, and H_A_B or points_A_B.csv for the photos A and B."""
    folder.mkdir()
    for photo in sorted({photo for first, second, _ in pairs for photo in (first, second)}):
        _save(data.read_photo(photo), folder / f"{photo}.png")
    rows = []
    for first, second, ground_truth in pairs:
        if ground_truth.geometry == "homography":
            name = f"H_{first}_{second}"
            np.savetxt(folder / name, ground_truth.matrix)
        else:
            name = f"points_{first}_{second}.csv"
            np.savetxt(folder / name, ground_truth.points, "%.3f", ",", header="x1,y1,x2,y2", comments="")
        rows.append(_row(folder, f"{first}.png", f"{second}.png", name))
    return rows


def _row(folder: Path, first: str, second: str, ground_truth: str) -> PairRow:
    name = folder.name
    return PairRow(f"{name}/{first}", f"{name}/{second}", f"{name}/{ground_truth}", name)


def _save(image: Grey, file: Path) -> None:
    Image.fromarray(image).save(file)
