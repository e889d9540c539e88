"""Fingerprints of data: short texts that differ if the data does, made without reading all of it.

They are recorded with trainings and evaluations, which are used again only on the same data.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from doap.datasets.official import hpatches
from doap.datasets.official.opening import LAYOUTS, locate
from doap.datasets.official.training_set import SPLIT_LAYOUTS, layout_of, parts_of, used_sequences
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.patch_set import PatchSet
from doap.datasets.sets.storage import MANIFEST
from doap.errors import DoapError
from doap.parsing.json_files import read_json

SAMPLE = 1000  # patches
TASKS_FOLDER = "hpatches-tasks"  # beside the folder of HPatches, see `find_task_file`
TASK_FILES = ("splits.json", "[!.]*.csv")  # of HPatches, where they are in the parent of its folder


def fingerprint_training_set(data: PatchSet | FrameSet, folders: Sequence[Path]) -> str | None:
    """Return the fingerprint of a training set, which is the same wherever its folders are.

    It is made from the checksums in the manifest of each part; that of an official folder is of the set that it is
    converted to. Parts of HPatches and RomePatches are identified by their names, groups and some of their patches:
    their manifest also depends on sequences that are not trained on, which may be added later.

    Args:
        data: Training set, as from `open_training_set`.
        folders: Folders of its parts.

    Returns:
        The fingerprint; None if the folder of a part is unknown or no data set.
    """
    parts: list[object] = []
    for part, folder in parts_of(data, folders):
        if folder is None:
            return None
        try:
            parts.append(_split_content(part) if layout_of(part) in SPLIT_LAYOUTS else _content(_locate(folder)))
        except DoapError:  # the description of a set in memory happens to be the name of a folder
            return None
    return _digest(parts)


def fingerprint_folder(folder: Path) -> str:
    """Return the fingerprint of data to evaluate on.

    A patch set or frame set is identified by the checksums in its manifest, any other folder by the names, sizes and
    modification times of all files in it. The task lists of HPatches may be beside its folder, and count.

    Raises:
        DoapError: If the manifest of a set is damaged.
    """
    if (folder / MANIFEST).is_file():
        return _digest(_content(folder))
    return _digest(sorted({_state(file, folder) for file in _files(folder)}))


def _locate(folder: Path) -> Path:
    return folder if (folder / MANIFEST).is_file() else locate(folder)


def _split_content(patches: PatchSet | FrameSet) -> list[object]:
    """Return extent, sequences, groups and evenly spaced patches of some sequences of an official set."""
    assert isinstance(patches, PatchSet)  # frame sets have no splits
    groups = np.unique(patches.groups, return_inverse=True)[1]  # ids depend on the other sequences
    sample = np.linspace(0, len(patches) - 1, min(len(patches), SAMPLE)).round().astype(np.int64)
    names = used_sequences(patches)
    return [patches.extent, names, _hash(groups.astype(np.int64).tobytes()), _hash(patches.take(sample).tobytes())]


def _content(folder: Path) -> list[object]:
    """Return the extent and the checksums of a set: not its names, since that of a Phototour scene is its folder's."""
    try:
        manifest = read_json(folder / MANIFEST)
        return [manifest["extent"], sorted(manifest["arrays"].items())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DoapError(f"{folder / MANIFEST}: cannot be read; the set is damaged, build it again") from error


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files of a folder but hidden ones."""
    yield from _walk(folder)
    for layout in LAYOUTS:
        yield from layout.source_files(folder)  # links to folders are not walked
    if hpatches.source_files(folder):
        yield from _walk(folder.parent / TASKS_FOLDER)
        for pattern in TASK_FILES:
            yield from folder.parent.glob(pattern)


def _walk(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _state(file: Path, folder: Path) -> tuple[str, int, int]:
    """Return the name of a file relative to a folder, its size and its time; zeros for a missing one."""
    name = os.path.relpath(file, folder)
    try:
        status = file.stat()
    except OSError:
        return name, 0, 0
    return name, status.st_size, status.st_mtime_ns


def _digest(content: object) -> str:
    return _hash(json.dumps(content).encode())


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
