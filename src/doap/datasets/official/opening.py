"""One door to every data set: official folders are converted once, remembered, and opened as patch sets.

The converted sets lie in the folder `converted` of the cache: that of the environment variable DOAP_CACHE, or
~/.cache/doap. The name of each tells the layout and the folder it was made of, and the state of its files: their
sizes and times. Removing any of them is safe; it is made again when it is asked for.
"""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock

from doap.datasets.official import hpatches, phototour, romepatches
from doap.datasets.sets.patch_set import PatchSet
from doap.datasets.sets.storage import MANIFEST
from doap.errors import DoapError
from doap.files import cache_root, make_folder
from doap.types import Progress, no_progress

VERSION = 1  # of the conversions: raise it when one of them writes something else, so that old ones are left alone


@dataclass(frozen=True)
class Layout:
    """How an official data set is recognised and converted."""

    name: str
    source_files: Callable[[Path], list[Path]]
    convert: Callable[[Path, Path, Progress], None]


LAYOUTS = (
    Layout("phototour", phototour.source_files, phototour.convert_phototour),
    Layout("romepatches", romepatches.source_files, romepatches.convert_romepatches),
    Layout("hpatches", hpatches.source_files, hpatches.convert_hpatches),
)


def open_any(path: Path | str, progress: Progress = no_progress, sequences: Sequence[str] | None = None) -> PatchSet:
    """Open a patch set, or an official folder of Phototour, HPatches or RomePatches.

    An official folder is converted the first time, and again when its files change.

    Args:
        path: of the folder.
        progress: told the pieces done of a conversion, and how many there are.
        sequences: names of those to open, for example one half of a split; all by default.

    Raises:
        DoapError: one line that names the file and the error.
    """
    found = _open(Path(path), progress)[1]
    return found if sequences is None else select_sequences(found, sequences)


def locate(path: Path | str, progress: Progress = no_progress) -> Path:
    """The folder of the patch set: `path` itself, or what the official folder at `path` was converted to."""
    return _open(Path(path), progress)[0]


def recognise(folder: Path) -> Layout:
    """The layout of an official folder; a DoapError if it has none of them."""
    for layout in LAYOUTS:
        if layout.source_files(folder):
            return layout
    raise DoapError(
        f"{folder}: not a patch set ({MANIFEST}), nor an official folder of Phototour ({phototour.INFO} and *.bmp), "
        "HPatches (folders with ref.png, e1.png …) or RomePatches (patch_retrieval_Rome_train.mat …)"
    )


def select_sequences(patches: PatchSet, names: Sequence[str]) -> PatchSet:
    """The patches of some sequences."""
    unknown = sorted(set(names) - set(patches.sequence_names))
    if unknown:
        raise DoapError(f"{len(unknown)} of {len(set(names))} sequences are not in the set: {', '.join(unknown[:3])}")
    wanted = np.isin(patches.sequences, [patches.sequence_names.index(name) for name in names])
    if not wanted.any():
        raise DoapError("none of the sequences asked for has a patch in the set")
    return patches.part(wanted)


def cache_folder() -> Path:
    """Where converted sets are kept."""
    return cache_root() / "converted"


def _open(folder: Path, progress: Progress) -> tuple[Path, PatchSet]:
    if (folder / MANIFEST).is_file():
        return folder, PatchSet.open(folder)
    if not folder.is_dir():
        raise DoapError(f"{folder}: not a patch set or official folder (no such folder)")
    layout = recognise(folder)
    target = _target(folder, layout)
    found = _open_whole(target)
    if found is None:
        make_folder(target.parent)
        # One conversion at a time in a cache: who waits finds it done, and what lies around half made is nobody's.
        with FileLock(target.parent / "lock"):
            found = _open_whole(target)
            if found is None:
                _convert(folder, layout, target, progress)
                found = PatchSet.open(target)
    return target, found


def _target(folder: Path, layout: Layout) -> Path:
    place = folder.resolve()
    state = hashlib.sha256(f"{VERSION}".encode())
    for file in layout.source_files(folder):
        about = file.stat() if file.exists() else None  # a missing file is told by the conversion
        state.update(f"{file.relative_to(folder)}|{about and (about.st_size, about.st_mtime_ns)}\n".encode())
    return cache_folder() / f"{_stem(place, layout)}-{state.hexdigest()[:16]}"


def _stem(place: Path, layout: Layout) -> str:
    return f"{layout.name}-{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"


def _open_whole(target: Path) -> PatchSet | None:
    try:
        return PatchSet.open(target)
    except DoapError:  # not made yet, or damaged since
        return None


def _convert(folder: Path, layout: Layout, target: Path, progress: Progress) -> None:
    for left in target.parent.iterdir():  # by conversions that were killed, or damaged since
        if left == target or any(left.name.startswith(f".{known.name}-") for known in LAYOUTS):
            shutil.rmtree(left)
    layout.convert(folder, target, progress)
    for old in target.parent.glob(f"{_stem(folder.resolve(), layout)}-*"):  # of files that have changed since
        if old != target:
            shutil.rmtree(old, ignore_errors=True)
