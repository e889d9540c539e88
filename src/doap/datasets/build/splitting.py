"""Splits of a set into training and validation, by scene and never by patch: the two share no scene."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.patch_set import PatchSet
from doap.datasets.sets.scenes import MIN_COLLECTION_PHOTOS, SetScene, find_scenes, seeded_order
from doap.datasets.sets.trimming import trim
from doap.errors import DoapError
from doap.files import atomic_folder, printable

TRAIN, VAL = SPLITS = ("train", "val")
TABLE = "split.csv"


@dataclass(frozen=True)
class SplitPart:
    """One part of a split: its scenes, and the subset of the data."""

    scenes: list[SetScene]
    data: PatchSet | FrameSet


def write_split(data: PatchSet | FrameSet, target: Path, val_fraction: float, seed: int) -> dict[str, SplitPart]:
    """Write the sets `target`/train and `target`/val, and split.csv, which lists the part of each scene.

    Args:
        data: The set; it is not changed.
        target: The folder to create; refused if it exists.
        val_fraction: Fraction of the scenes of each source for validation.
        seed: Determines the scenes.

    Returns:
        The parts by name, "train" and "val".

    Raises:
        DoapError: If no source has two scenes.
    """
    parts = split_scenes(data, val_fraction, seed)
    parts = {name: SplitPart(part.scenes, trim(part.data)) for name, part in parts.items()}
    with atomic_folder(target) as folder:
        for name, part in parts.items():
            part.data.save(folder / name)
        _write_table(folder / TABLE, parts)
    return parts


def split_scenes(data: PatchSet | FrameSet, val_fraction: float, seed: int) -> dict[str, SplitPart]:
    """Split a set into the parts "train" and "val", which share no scene.

    Args:
        data: The set.
        val_fraction: Fraction of the scenes of each source for validation.
        seed: Determines the scenes.

    Raises:
        DoapError: If no source has two scenes.
    """
    scenes = find_scenes(data)
    val = choose_val(scenes, val_fraction, seed)
    return {
        TRAIN: _select_scenes(data, [scene for scene in scenes if scene.name not in val]),
        VAL: _select_scenes(data, [scene for scene in scenes if scene.name in val]),
    }


def choose_val(scenes: Sequence[SetScene], val_fraction: float, seed: int) -> set[str]:
    """Return the names of the validation scenes: a fraction of each source, at least one of sources with two.

    Raises:
        DoapError: If no source has two scenes.
    """
    val: set[str] = set()
    for source in ("", *SOURCES):
        names = seeded_order([scene.name for scene in scenes if scene.source == source], seed)
        if len(names) > 1:
            val.update(names[: min(max(1, round(val_fraction * len(names))), len(names) - 1)])
    if not val:
        raise DoapError(f"a split keeps scenes whole, and {_why_whole(scenes)}")
    return val


def _why_whole(scenes: Sequence[SetScene]) -> str:
    """Return why scenes cannot be split, and what to do."""
    if len(scenes) == len(scenes[0].sequences) == 1:
        return "the set is one scene; add photos of other scenes"
    counted = "all photos count as one scene, since"
    if len(scenes) > 1:
        names = ", ".join(f"{printable(scene.name)} ({scene.source or 'source unknown'})" for scene in scenes)
        counted = f"no source of groups has two scenes: {names};"
    return (
        f"{counted} a folder is one scene if it has fewer than {MIN_COLLECTION_PHOTOS} photos or a tenth of "
        "them overlap; add photos of other scenes in other folders"
    )


def _select_scenes(data: PatchSet | FrameSet, scenes: list[SetScene]) -> SplitPart:
    mask = np.isin(data.sequences, [sequence for scene in scenes for sequence in scene.sequences])
    return SplitPart(scenes, data.select(mask))


def _write_table(file: Path, parts: dict[str, SplitPart]) -> None:
    """Write one row per scene, sorted by name."""
    rows = [
        (scene.name, scene.source, len(scene.sequences), name) for name, part in parts.items() for scene in part.scenes
    ]
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("scene", "source", "sequences", "split"))
        writer.writerows(sorted(rows))
