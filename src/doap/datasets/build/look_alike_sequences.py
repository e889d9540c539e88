"""Ten sequences in the patch format of HPatches, each from another scene of a frame set.

v_NAME  one photo, and five warps of it by random homographies of growing strength.
i_NAME  a static view: photos of it, whose light really differs. If they are fewer than six, or the scene is no static
        view, copies with simulated light follow (gamma, contrast, a gradient, blur and noise).

As in the official split a, test and train share no scene: two sequences of each kind are for the test, three of each
for training.
"""

import os
import re
import zlib
from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from doap.datasets.build.hpatches_format import choose_frames, cut_strips
from doap.datasets.build.image_pairs import read_static_view
from doap.datasets.build.settings import LookAlikeSettings
from doap.datasets.official.hpatches import IMAGES, write_hpatches_folder
from doap.datasets.official.hpatches_tasks import Split, write_splits
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.scenes import SetScene, seeded_order
from doap.errors import DoapError
from doap.geometry.ground_truth import Matrix
from doap.images.extraction import Pyramid, to_bytes
from doap.images.jitter.views import LEVELS
from doap.images.warping import random_homography, relight, warp
from doap.types import Grey, Progress, no_progress

SPLIT = "a"
TEST_PER_KIND, TRAIN_PER_KIND = 2, 3
PER_KIND = TEST_PER_KIND + TRAIN_PER_KIND
MAX_WORKERS = 4  # sequences made at once; each takes about 1 GB
LIGHTS = ("easy", "hard", "hard", "tough", "tough")  # levels of simulated light of the images 1 to 5

Images = list[tuple[Grey, Matrix]]
"""The images of a sequence, and the homography from the first to each."""


def choose_sequence_scenes(scenes: Sequence[SetScene], seed: int) -> dict[str, list[SetScene]]:
    """Choose five scenes for each kind of sequence, "i" and "v"; static views are used for "i" first.

    Raises:
        DoapError: If there are fewer than ten scenes.
    """
    by_name = {scene.name: scene for scene in scenes}
    ordered = [by_name[name] for name in seeded_order(by_name, seed)]
    ordered.sort(key=lambda scene: scene.source != "static")
    if len(ordered) < 2 * PER_KIND:
        raise DoapError(f"{len(ordered)} scenes, but {2 * PER_KIND} sequences that share no scene need as many")
    return {"i": ordered[:PER_KIND], "v": ordered[-PER_KIND:]}


def write_hpatches_part(
    data: FrameSet,
    folder: Path,
    scenes: dict[str, list[SetScene]],
    settings: LookAlikeSettings,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Write ten sequences and splits.json with split a into a folder, and return the counts.

    Args:
        data: The frame set.
        folder: The folder.
        scenes: Scenes by kind, see `choose_sequence_scenes`; the first two of each kind are for the test.
        settings: Number of points, and the seed.
        progress: Callback, called as progress(done, total) with numbers of sequences.

    Raises:
        DoapError: If a scene has no frame that is inside all images.
    """
    names: dict[str, list[str]] = {"test": [], "train": []}
    by_name: dict[str, SetScene] = {}
    for kind, chosen in scenes.items():
        for number, scene in enumerate(chosen):
            name = _folder_name(kind, scene.name, by_name)
            by_name[name] = scene
            names["test" if number < TEST_PER_KIND else "train"].append(name)
    sequences: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(max(1, min(MAX_WORKERS, (os.cpu_count() or 1) // 2))) as pool:
        counts = pool.map(lambda name: _write_sequence(data, folder / name, by_name[name], settings), by_name)
        for name, counted in zip(by_name, counts, strict=True):
            sequences[name] = counted
            progress(len(sequences), len(by_name))
    write_splits(folder / "splits.json", [Split(name=SPLIT, test=tuple(names["test"]), train=tuple(names["train"]))])
    return {"points": sum(sequence["points"] for sequence in sequences.values()), **names, "sequences": sequences}


def make_viewpoints(photo: Grey, random: np.random.Generator) -> Images:
    """Return a photo and five warps of growing strength."""
    pyramid = Pyramid(photo)
    images: Images = [(photo, np.eye(3))]
    for number in range(1, IMAGES + 1):
        homography = random_homography(photo.shape, random, number / IMAGES)
        images.append((np.asarray(to_bytes(warp(pyramid, homography))[0].numpy()), homography))
    return images


def make_lights(photos: Images, light: torch.Generator) -> Images:
    """Return six images under different light: the photos of a static view, then relit copies of them in turn."""
    images = photos[: 1 + IMAGES]
    for number in range(len(images), 1 + IMAGES):
        photo, motion = photos[number % len(photos)]
        values = torch.tensor(photo, dtype=torch.float32)[None]
        images.append((relight(values, light, LEVELS[LIGHTS[number - 1]]), motion))
    return images


def _write_sequence(data: FrameSet, folder: Path, scene: SetScene, settings: LookAlikeSettings) -> dict[str, Any]:
    """Write the strips of a sequence, whose kind is the first letter of its folder, and return its counts."""
    is_viewpoint = folder.name.startswith("v")
    name_hash = zlib.crc32(scene.name.encode())  # makes a sequence independent of the others
    random = np.random.default_rng([settings.seed, name_hash])
    light = torch.Generator().manual_seed(int(random.integers(1 << 62)))
    photos = _read_photos(data, scene)
    images = make_viewpoints(photos[0][0], random) if is_viewpoint else make_lights(photos, light)
    pixels = [image for image, _ in images]
    homographies = np.stack([homography for _, homography in images])
    frames = choose_frames(pixels, homographies, settings.points, random)
    if not len(frames):
        raise DoapError(f"{scene.name}: no frame found that is inside all images of {folder.name}; use larger photos")
    strips, _ = cut_strips(pixels, homographies, frames, LEVELS, light)
    write_hpatches_folder(folder, strips)
    real = 1 if is_viewpoint else min(len(photos), 1 + IMAGES)
    return {"scene": scene.name, "points": len(frames), "photos": real}


def _read_photos(data: FrameSet, scene: SetScene) -> Images:
    """Return the photos of a static view and their motions, or the photo of the scene with most frames."""
    in_scene = np.isin(data.sequences, scene.sequences)
    if scene.source == "static":
        is_static = in_scene & (data.sources == SOURCES.index("static"))
        sequence = np.bincount(data.sequences[is_static]).argmax()
        return list(zip(*read_static_view(data, int(sequence)), strict=True))
    return [(data.read_photo(int(np.bincount(data.photos[in_scene]).argmax())), np.eye(3))]


def _folder_name(kind: str, scene: str, existing: Container[str]) -> str:
    name = f"{kind}_" + re.sub(r"[^\w.]+", "-", scene).strip("-.")
    while name in existing:  # names that differ in replaced characters only
        name += "_"
    return name
