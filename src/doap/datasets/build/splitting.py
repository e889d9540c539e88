"""Photos set aside: a set in two, by scene and never by patch, so that what is judged on was never trained on."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.datasets.sets.scenes import SetScene, scenes_of, seeded_order
from doap.errors import DoapError
from doap.files import atomic_folder

TRAIN, VAL = HALVES = ("train", "aside")
TABLE = "split.csv"


@dataclass(frozen=True)
class Half:
    """One side of a split: its scenes, and the part of the set they are."""

    scenes: list[SetScene]
    data: PatchSet | FrameSet


def write_split(data: PatchSet | FrameSet, target: Path, share: float, seed: int) -> dict[str, Half]:
    """Write `target`/train and `target`/aside, whole sets both, and split.csv, which says where each scene went.

    Args:
        data: the set, left as it is.
        target: the folder to make; refused if it exists.
        share: of the scenes of each source, to set aside.
        seed: fixes which.

    Returns:
        The halves by name.

    Raises:
        DoapError: if there are no two scenes of one source.
    """
    halves = {name: Half(half.scenes, _trim(half.data)) for name, half in split_scenes(data, share, seed).items()}
    with atomic_folder(target) as folder:
        for name, half in halves.items():
            half.data.save(folder / name)
        _write_table(folder / TABLE, halves)
    return halves


def split_scenes(data: PatchSet | FrameSet, share: float, seed: int) -> dict[str, Half]:
    """The halves of a set by name, `train` and `aside`, which share no scene.

    Args:
        data: the set.
        share: of the scenes of each source, to set aside.
        seed: fixes which.

    Raises:
        DoapError: if there are no two scenes of one source.
    """
    scenes = scenes_of(data)
    aside = choose_val(scenes, share, seed)
    return {
        TRAIN: _half(data, [scene for scene in scenes if scene.name not in aside]),
        VAL: _half(data, [scene for scene in scenes if scene.name in aside]),
    }


def choose_val(scenes: Sequence[SetScene], share: float, seed: int) -> set[str]:
    """Names of the scenes to set aside: that share of each source, at least one where a source has two.

    Raises:
        DoapError: if there are no two scenes of one source.
    """
    chosen: set[str] = set()
    for source in ("", *SOURCES):
        names = seeded_order([scene.name for scene in scenes if scene.source == source], seed)
        if len(names) > 1:
            chosen.update(names[: min(max(1, round(share * len(names))), len(names) - 1)])
    if not chosen:
        raise DoapError(f"a split keeps scenes whole, and no two of {len(scenes)} are of one kind; add photos")
    return chosen


def trim_frames(data: FrameSet) -> FrameSet:
    """The same content without photos and sequences that have no frame; only groups keep their numbers."""
    kept, photos = np.unique(data.photos, return_inverse=True)
    sequences, names = _trim_sequences(data)
    return FrameSet(
        [data.pictures[number] for number in kept],
        [data.photo_names[number] for number in kept],
        photos.ravel(),
        data.frames,
        data.groups,
        sequences,
        data.sources,
        names,
        data.overlaps,
        data.extent,
    )


def trim_patches(data: PatchSet) -> PatchSet:
    """The same content without photos and sequences that have no patch; only groups keep their numbers."""
    labels, photo_names = data.labels, data.photo_names
    if "photo" in labels and photo_names:
        kept, photos = np.unique(labels["photo"], return_inverse=True)
        labels, photo_names = {**labels, "photo": photos.ravel()}, [photo_names[number] for number in kept]
    sequences, names = _trim_sequences(data)
    return PatchSet(
        data.shards, data.groups, sequences, labels, names, data.extent, data.overlaps, data.frames, photo_names
    )


def _trim_sequences(data: PatchSet | FrameSet) -> tuple[Ids, list[str]]:
    """The sequence of each item, numbered anew, and the names of those that have one."""
    used, sequences = np.unique(data.sequences, return_inverse=True)
    return sequences.ravel(), [data.sequence_names[number] for number in used] if data.sequence_names else []


def _half(data: PatchSet | FrameSet, scenes: list[SetScene]) -> Half:
    wanted = np.isin(data.sequences, [sequence for scene in scenes for sequence in scene.sequences])
    return Half(scenes, data.part(wanted))


def _trim(data: PatchSet | FrameSet) -> PatchSet | FrameSet:
    return trim_frames(data) if isinstance(data, FrameSet) else trim_patches(data)


def _write_table(file: Path, halves: dict[str, Half]) -> None:
    """A row a scene, in the order of their names."""
    rows = [
        (scene.name, scene.source, len(scene.sequences), half)
        for half, content in halves.items()
        for scene in content.scenes
    ]
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("scene", "source", "sequences", "half"))
        writer.writerows(sorted(rows))
