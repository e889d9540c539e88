"""Image pairs to judge by, made of photos that were set aside, in a layout that `evaluation.pairs` reads.

i_NAME  a view that stood still: 1.png, then its other pictures as they are, then warps of them. The light is real.
v_NAME  a single photo: 1.png, then warped and relit copies of it.
s_NAME  overlapping photos of a scene, and what is known of each pair: a homography, or labelled points.

Still views and single photos give `copies` pairs each, 1-2, 1-3 … With five copies their folders are whole sequences in
the layout of HPatches, whose names begin alike, so one folder serves for matching images and for making patches.
pairs.csv lists all pairs; those of one scene are not independent.
"""

import csv
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from doap.datasets.build.shared_points import SHARED, fitted, overlapping_pairs, shared_points
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.image_pairs import COLUMNS
from doap.datasets.sets.scenes import SetScene, scenes_of, seeded_order, sequence_name
from doap.errors import DoapError
from doap.files import atomic_folder
from doap.geometry.ground_truth import GroundTruth, Matrix
from doap.images.extraction import Pyramid, to_bytes
from doap.images.warping import random_homography, relight, warp
from doap.types import Grey

KINDS = {"static": "i", "views": "v", "tracks": "s"}
REGISTERED = 0.1  # pixels: pictures of a still view were placed by one map, so that their points agree to rounding


@dataclass(frozen=True)
class Wanted:
    """What to make of a set.

    Attributes:
        per_scene: pairs of overlapping photos a scene, at most.
        copies: pairs a still view or single photo gives.
        singles: photos to make copies of, at most, one a scene.
        seed: fixes the choice, the warps and the light.
    """

    per_scene: int = 3
    copies: int = 2
    singles: int = 60
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """A row of pairs.csv: paths within the folder, and what the pair belongs to."""

    first: str
    second: str
    truth: str
    scene: str


def make_pairs(
    data: FrameSet, target: Path, wanted: Wanted, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> list[Row]:
    """Make a folder of image pairs from a frame set, whole or not at all.

    Args:
        data: photos that nothing is trained on.
        target: the folder to make; refused if it exists.
        wanted: what to make.
        progress: told the scenes done, and how many there are.

    Raises:
        DoapError: if no scene gives a pair.
    """
    scenes = _chosen(scenes_of(data), wanted)
    rows: list[Row] = []
    with atomic_folder(target) as folder:
        for done, scene in enumerate(scenes, 1):
            rows += _pairs_of(data, scene, folder, wanted)
            progress(done, len(scenes))
        if not rows:
            raise DoapError(f"no pair can be made of {data}: no two photos share {SHARED} groups, none is single")
        with (folder / "pairs.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, (*COLUMNS, "scene"), lineterminator="\n")
            writer.writeheader()
            writer.writerows(map(asdict, rows))
    return rows


def make_static_copies(
    pictures: list[Grey], motions: list[Matrix], copies: int, random: np.random.Generator
) -> Iterator[tuple[Grey, Matrix]]:
    """Pictures to match the first of a still view with, and the homographies from it: others first, then warps of them.

    Where there is no other picture the first is warped and relit.

    Args:
        pictures: of the view, the first one being the reference.
        motions: (3, 3) from the first picture to each.
        copies: how many to give.
        random: decides which come first, and how they are warped.
    """
    others = random.permutation(np.arange(1, len(pictures)))
    light = torch.Generator().manual_seed(int(random.integers(1 << 62)))
    for number in others[:copies]:
        yield pictures[number], motions[number]
    for _ in range(copies - len(others)):
        number = random.choice(others) if len(others) else 0
        homography = random_homography(pictures[number].shape, random)
        values = warp(Pyramid(pictures[number]), homography)
        copy = to_bytes(values)[0].numpy() if len(others) else relight(values, light)
        yield copy, homography @ motions[number]


def _chosen(scenes: list[SetScene], wanted: Wanted) -> list[SetScene]:
    """The scenes to use: all that have several photos, and some of single photos."""
    single = seeded_order([scene.name for scene in scenes if scene.source == "views"], wanted.seed)
    some = set(single[: wanted.singles])
    return sorted((s for s in scenes if s.source != "views" or s.name in some), key=lambda s: (KINDS[s.source], s.name))


def _pairs_of(data: FrameSet, scene: SetScene, folder: Path, wanted: Wanted) -> list[Row]:
    """Write the images and truths of a scene into a folder of its own, and give its pairs."""
    random = np.random.default_rng([wanted.seed, zlib.crc32(scene.name.encode())])
    own = folder / (f"{KINDS[scene.source]}_" + re.sub(r"[^\w.]+", "-", scene.name).strip("-."))
    while own.exists():  # names that differ by signs alone
        own = own.with_name(own.name + "_")
    if scene.source == "tracks":
        pairs = overlapping_pairs(data, scene.sequences, wanted.per_scene, random)
        return _write_scene(data, own, pairs) if pairs else []
    pictures, motions = _static_view(data, _one_sequence(data, scene, wanted.seed))
    if scene.source == "static" and len(pictures) == 1:  # without another picture there is no other light
        return []
    return _write_static(own, pictures[0], list(make_static_copies(pictures, motions, wanted.copies, random)))


def _one_sequence(data: FrameSet, scene: SetScene, seed: int) -> int:
    """One of a scene's sequences that were found as its source says, drawn by the seed."""
    wanted = SOURCES.index(scene.source)
    found = {
        sequence_name(data, sequence): sequence
        for sequence in scene.sequences
        if (data.sources[data.sequences == sequence] == wanted).any()
    }
    return found[seeded_order(found, seed)[0]]


def _static_view(data: FrameSet, sequence: int) -> tuple[list[Grey], list[Matrix]]:
    """The pictures of a sequence that registered, the one with most frames first, and the motion from it to each."""
    part = data.part(data.sequences == sequence)
    photos, counts = np.unique(part.photos, return_counts=True)
    reference = int(photos[counts.argmax()])
    pictures, motions = [data.picture(reference)], [np.eye(3)]
    for other in (int(photo) for photo in photos if photo != reference):
        points = shared_points(part, reference, other)
        motion = fitted(points, "homography")
        if motion is not None and motion.errors(points[:, :2], points[:, 2:]).max() <= REGISTERED:
            pictures.append(data.picture(other))
            motions.append(motion.matrix)
    return pictures, motions


def _write_static(folder: Path, reference: Grey, copies: list[tuple[Grey, Matrix]]) -> list[Row]:
    """The layout of HPatches: 1.png, 2.png …, H_1_2 …"""
    folder.mkdir()
    _save(reference, folder / "1.png")
    rows = []
    for number, (copy, homography) in enumerate(copies, 2):
        _save(copy, folder / f"{number}.png")
        np.savetxt(folder / f"H_1_{number}", homography)
        rows.append(_row(folder, "1.png", f"{number}.png", f"H_1_{number}"))
    return rows


def _write_scene(data: FrameSet, folder: Path, pairs: list[tuple[int, int, GroundTruth]]) -> list[Row]:
    """Every photo once, under its number in the set; H_A_B or points_A_B.csv for the photos A and B."""
    folder.mkdir()
    for photo in sorted({photo for first, second, _ in pairs for photo in (first, second)}):
        _save(data.picture(photo), folder / f"{photo}.png")
    rows = []
    for first, second, truth in pairs:
        if truth.geometry == "homography":
            name = f"H_{first}_{second}"
            np.savetxt(folder / name, truth.matrix)
        else:
            name = f"points_{first}_{second}.csv"
            np.savetxt(folder / name, truth.points, "%.3f", ",", header="x1,y1,x2,y2", comments="")
        rows.append(_row(folder, f"{first}.png", f"{second}.png", name))
    return rows


def _row(folder: Path, first: str, second: str, truth: str) -> Row:
    name = folder.name
    return Row(f"{name}/{first}", f"{name}/{second}", f"{name}/{truth}", name)


def _save(picture: Grey, file: Path) -> None:
    Image.fromarray(picture).save(file)
