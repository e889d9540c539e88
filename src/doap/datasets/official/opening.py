"""Opening of patch sets and official folders; official folders are converted to patch sets and cached.

Converted sets are in the folder `converted` of the cache (environment variable DOAP_CACHE, by default ~/.cache/doap).
Their names are made of the layout, the folder, and the sizes and modification times of its files. They can be removed
at any time and are converted again when needed.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock

from doap.datasets.official import hpatches, phototour, romepatches
from doap.datasets.sets.patch_set import PatchSet
from doap.datasets.sets.storage import MANIFEST
from doap.errors import DoapError, inflect
from doap.files import MARK, cache_root, make_folder
from doap.types import Progress, no_progress

VERSION = 1  # increase it when a conversion changes, so that cached sets are converted again


@dataclass(frozen=True)
class Layout:
    """Layout of an official data set: how it is recognised and converted.

    Attributes:
        name: Name in the cache.
        source_files: Returns the files of a folder in this layout; empty for other folders.
        convert: Writes a folder as a patch set, called as convert(folder, path, progress).
    """

    name: str
    source_files: Callable[[Path], list[Path]]
    convert: Callable[[Path, Path, Progress], None]


LAYOUTS = (
    Layout("phototour", phototour.source_files, phototour.convert_phototour),
    Layout("romepatches", romepatches.source_files, romepatches.convert_romepatches),
    Layout("hpatches", hpatches.source_files, hpatches.convert_hpatches),
)


def open_dataset(
    path: Path | str, progress: Progress = no_progress, sequences: Sequence[str] | None = None
) -> PatchSet:
    """Open a patch set, or an official folder of Phototour, HPatches or RomePatches.

    An official folder is converted the first time, and again when its files change.

    Args:
        path: Folder of the set.
        progress: Callback of a conversion, called as progress(files done, total).
        sequences: Names of the sequences to open, for example the test sequences of a split; all by default.

    Raises:
        DoapError: If the folder is neither, a file is missing or damaged, or the set lacks one of the sequences.
    """
    patches = _open(Path(path), progress)[1]
    if sequences is None:
        return patches
    try:
        return select_sequences(patches, sequences)
    except DoapError as error:
        raise DoapError(f"{path}: {error}") from error


def locate(path: Path | str, progress: Progress = no_progress) -> Path:
    """Return the folder of the patch set: `path` itself, or the converted set of the official folder at `path`."""
    return _open(Path(path), progress)[0]


def recognise(folder: Path) -> Layout:
    """Return the layout of an official folder; a DoapError if it has none of them."""
    for layout in LAYOUTS:
        if layout.source_files(folder):
            return layout
    raise DoapError(
        f"{folder}: not a patch set or frame set ({MANIFEST}), nor an official folder of Phototour ({phototour.INFO} "
        "and *.bmp), HPatches (folders with ref.png, e1.png …) or RomePatches (patch_retrieval_Rome_train.mat …); make "
        "a set of photos with doap data build"
    )


def select_sequences(patches: PatchSet, names: Sequence[str]) -> PatchSet:
    """Return the patches of some sequences, by name."""
    unknown = sorted(set(names) - set(patches.sequence_names))
    if unknown:
        chosen = len(set(names))
        some = f"{len(unknown)} of {chosen} {inflect(chosen, 'sequence')} {inflect(len(unknown), 'is', 'are')}"
        raise DoapError(f"{some} not in the set: {', '.join(unknown[:3])}")
    mask = np.isin(patches.sequences, [patches.sequence_names.index(name) for name in names])
    if not mask.any():
        raise DoapError("none of these sequences has a patch in the set")
    return patches.select(mask)


def cache_folder() -> Path:
    """Return the folder of converted sets."""
    return cache_root() / "converted"


def _open(folder: Path, progress: Progress) -> tuple[Path, PatchSet]:
    if (folder / MANIFEST).is_file():
        return folder, PatchSet.open(folder)
    if not folder.is_dir():
        raise DoapError(f"{folder}: not a patch set or official folder (no such folder)")
    layout = recognise(folder)
    target = _target(folder, layout)
    patches = _open_converted(target)
    if patches is None:
        make_folder(target.parent)
        # One conversion at a time: a waiting process finds the set converted, and leftovers are safe to remove.
        with FileLock(target.parent / "lock"):
            patches = _open_converted(target)
            if patches is None:
                _convert(folder, layout, target, progress)
                patches = PatchSet.open(target)
    return target, patches


def _target(folder: Path, layout: Layout) -> Path:
    state = hashlib.sha256(f"{VERSION}".encode())
    for file in layout.source_files(folder):
        status = file.stat() if file.exists() else None  # the conversion reports a missing file
        line = f"{file.relative_to(folder)}|{status and (status.st_size, status.st_mtime_ns)}\n"
        state.update(os.fsencode(line))
    return cache_folder() / f"{_stem(folder.resolve(), layout)}-{state.hexdigest()[:16]}"


def _stem(folder: Path, layout: Layout) -> str:
    return f"{layout.name}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"


def _open_converted(target: Path) -> PatchSet | None:
    try:
        return PatchSet.open(target)
    except DoapError:  # not converted yet, or damaged since
        return None


def _convert(folder: Path, layout: Layout, target: Path, progress: Progress) -> None:
    for path in target.parent.iterdir():  # leftovers of killed conversions, and a damaged set
        if path == target or any(path.name.startswith(f"{MARK}{other.name}-") for other in LAYOUTS):
            shutil.rmtree(path)
    layout.convert(folder, target, progress)
    for path in target.parent.glob(f"{_stem(folder.resolve(), layout)}-*"):  # conversions of files changed since
        if path != target:
            shutil.rmtree(path, ignore_errors=True)
