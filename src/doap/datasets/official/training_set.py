"""Training sets: which part of an official data set is trained on, and unions of several sets.

The official data sets say what may be trained on: HPatches by the training sequences of its splits a, b and c,
RomePatches by its half "train". A set is recognised by the labels that its conversion writes, so that this also holds
for sets that were derived from an official folder; a scene of Phototour is recognised by its folder.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from doap.datasets.official import phototour
from doap.datasets.official.hpatches_tasks import find_split, find_task_file
from doap.datasets.official.opening import open_dataset, select_sequences
from doap.datasets.official.romepatches import HALVES, TRAIN
from doap.datasets.sets.frame_set import KIND, FrameSet
from doap.datasets.sets.patch_set import PatchSet
from doap.datasets.sets.storage import kind_of
from doap.datasets.sets.united_set import UnitedSet
from doap.errors import DoapError, inflect
from doap.types import Progress, no_progress

OfficialLayout = Literal["phototour", "hpatches", "romepatches", ""]
"""Official data set that a set is, or is a part of; empty for all others."""

SPLIT_LAYOUTS = ("hpatches", "romepatches")
HPATCHES_TRAINING_SEQUENCES = 76  # of each of the splits a, b and c


def open_training_set(
    paths: Sequence[Path], split: str | None = None, progress: Progress = no_progress
) -> PatchSet | FrameSet:
    """Open the folders to train on, select the split in each that has splits, and unite them.

    Args:
        paths: Patch sets, frame sets, or official folders; several are united, see `UnitedSet`.
        split: Part of HPatches (a, b or c: its training sequences) or RomePatches (train) to train on; other sets are
            used whole. None uses all sets whole.
        progress: Callback of a conversion, called as progress(files done, total).

    Raises:
        DoapError: If a set cannot be opened, has no such split, or cannot be united with others.
    """
    if not paths:
        raise DoapError("no training set; give the folder of one")
    sets = [_open_set(path, progress) for path in paths]
    if split is not None:
        if not any(_has_splits(data) for data in sets):
            names = ", ".join(map(str, paths))
            raise DoapError(f"{names}: split={split} needs HPatches or RomePatches; train on all of it with split=null")
        sets = [_select_split(data, path, split) for data, path in zip(sets, paths, strict=True)]
    return sets[0] if len(sets) == 1 else _unite(sets, paths)


def check_split(data: PatchSet | FrameSet, split: str | None, paths: Sequence[Path] = ()) -> None:
    """Check that a set holds no sequence outside a split, where that can be seen.

    A split of HPatches is known if its splits.json is found from the folder of the set; if not, only the number of
    sequences is checked.

    Args:
        data: Training set, as from `open_training_set`.
        split: Split of the recipe; None allows everything.
        paths: Folders of the set, if known.

    Raises:
        DoapError: If the set holds other sequences.
    """
    if split is None:
        return
    for part, path in parts_of(data, paths):
        names = used_sequences(part)
        if layout_of(part, path) == "romepatches":
            allowed = {split} & {TRAIN}
        elif layout_of(part, path) == "hpatches":
            if path is None or find_task_file(path, "splits.json") is None:
                allowed = set(names) if len(names) <= HPATCHES_TRAINING_SEQUENCES else set()
            else:
                allowed = set(find_split(path, split).training_sequences())
        else:
            continue
        outside = [name for name in names if name not in allowed]
        if outside:
            raise DoapError(
                f"split={split}, but the training set holds {len(outside)} "
                f"{inflect(len(outside), 'sequence')} outside it: "
                f"{', '.join(outside[:3])}; open it with open_training_set, or set split=null"
            )


def layout_of(data: PatchSet | FrameSet, path: Path | None = None) -> OfficialLayout:
    """Return the official data set that a set is, or is a part of.

    Args:
        data: The set.
        path: Folder that it was opened from, if known; needed to recognise Phototour.
    """
    if isinstance(data, PatchSet) and not isinstance(data, UnitedSet):
        if {"image", "noise"} <= set(data.labels):
            return "hpatches"
        if "query" in data.labels and set(data.sequence_names) <= set(HALVES):
            return "romepatches"
        if path is not None and phototour.source_files(path):
            return "phototour"
    return ""


def parts_of(data: PatchSet | FrameSet, paths: Sequence[Path]) -> list[tuple[PatchSet | FrameSet, Path | None]]:
    """Return the sets that a union is made of, or the set itself, each with its folder; None where it is unknown."""
    parts: list[PatchSet | FrameSet] = list(data.parts) if isinstance(data, UnitedSet) else [data]
    folders: list[Path | None] = list(paths) if len(paths) == len(parts) else [None] * len(parts)
    return list(zip(parts, folders, strict=True))


def used_sequences(data: PatchSet | FrameSet) -> list[str]:
    """Return the names of the sequences that have items; empty if the sequences have no names."""
    return [data.sequence_names[number] for number in np.unique(data.sequences)] if data.sequence_names else []


def _open_set(path: Path, progress: Progress) -> PatchSet | FrameSet:
    return FrameSet.open(path) if kind_of(path) == KIND else open_dataset(path, progress)


def _has_splits(data: PatchSet | FrameSet) -> bool:
    return layout_of(data) in SPLIT_LAYOUTS


def _select_split(data: PatchSet | FrameSet, path: Path, split: str) -> PatchSet | FrameSet:
    if isinstance(data, FrameSet) or not _has_splits(data):
        return data
    if layout_of(data) == "romepatches":
        if split != TRAIN:
            raise DoapError(f"{path}: no split {split}; RomePatches is trained on its half {TRAIN}")
        sequences: Sequence[str] = [split]
    else:
        sequences = find_split(path, split).training_sequences()
    try:
        return select_sequences(data, sequences)
    except DoapError as error:
        raise DoapError(f"{path}: {error}") from error


def _unite(sets: Sequence[PatchSet | FrameSet], paths: Sequence[Path]) -> UnitedSet:
    resolved = [path.resolve() for path in paths]
    for data, path in zip(sets, resolved, strict=True):
        if isinstance(data, FrameSet):
            raise DoapError(f"{path}: a frame set cannot be united with other sets; build it without --frames")
        if resolved.count(path) > 1:
            raise DoapError(f"{path}: given twice; give every set once")
    names = [path.name for path in resolved]
    if len(set(names)) < len(names):
        names = [str(path) for path in resolved]
    return UnitedSet([data for data in sets if isinstance(data, PatchSet)], names)
