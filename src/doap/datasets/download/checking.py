"""Checks of official data sets: counts and a hash of the content of a folder.

Archives of the same data differ, since mirrors repack them and convert images. The hash is therefore computed from the
decoded content: SHA-256 over the files, ordered by path without suffix, where a file contributes

    image         its height and width as "H W" and a line feed, then its grey pixels, row by row, one byte each
    .mat file     its numeric arrays, ordered by name, as little-endian float32 in MATLAB's column-major order
    list          its bytes

Errors name files by their path inside the folder.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.datasets.official import hpatches, phototour, romepatches
from doap.errors import DoapError, inflect
from doap.images.reading import PHOTO_SUFFIXES, open_image, read_grey
from doap.parsing.json_files import read_json
from doap.parsing.matlab_files import read_arrays, read_shapes
from doap.types import Grey, Progress, no_progress

OXFORD_SEQUENCES = ("bark", "bikes", "boat", "graf", "leuven", "trees", "ubc", "wall")


@dataclass(frozen=True)
class Content:
    """Content of a folder.

    Attributes:
        folder: The folder.
        counts: Counts by name, for example of "patches".
        files: Files to hash, in order.
    """

    folder: Path
    counts: Mapping[str, int]
    files: tuple[Path, ...]

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {name}" for name, count in self.counts.items())


def inspect_phototour(folder: Path) -> Content:
    """Inspect UBC Phototour: sheets of 16x16 patches, info.txt with one row per patch, the list of test pairs."""
    patches = _count_rows(folder, phototour.INFO)
    pairs = _count_rows(folder, phototour.PAIRS)
    sheets = tuple(phototour.find_sheets(folder))
    expected = -(-patches // phototour.PER_SHEET)
    if len(sheets) < expected:
        present = f"{len(sheets):,} {inflect(len(sheets), 'sheet')} (*.bmp)"
        raise DoapError(f"{present}, but the {patches:,} patches of info.txt need {expected:,}")
    side = phototour.COLUMNS * phototour.SIZE
    for sheet in sheets:
        if _image_size(folder, sheet) != (side, side):
            raise DoapError(f"{sheet.name}: a sheet must be {side}x{side}")
    return Content(folder, {"patches": patches, "pairs": pairs}, sheets)


def inspect_hpatches(folder: Path) -> Content:
    """Inspect HPatches: 16 strips of 65x65 patches per sequence, all of the same height."""
    files: list[Path] = []
    patches = 0
    for sequence in _sequences(folder):
        sizes = {name: _image_size(folder, sequence / f"{name}.png") for name in hpatches.STRIPS}
        width, height = sizes["ref"]
        if set(sizes.values()) != {(width, height)} or width != hpatches.SIZE or height % hpatches.SIZE:
            raise DoapError(f"{sequence.name}: strips must be {hpatches.SIZE} wide and of the same height, N x {width}")
        patches += len(hpatches.STRIPS) * height // hpatches.SIZE
        files += [sequence / f"{name}.png" for name in hpatches.STRIPS]
    return Content(folder, {**_count_kinds(folder), "patches": patches}, _in_order(folder, files))


def inspect_hpatches_sequences(folder: Path) -> Content:
    """Inspect the images of HPatches: six images and five homographies per sequence."""
    files: list[Path] = []
    for sequence in _sequences(folder):
        files += [_find_image(folder, sequence, str(number)) for number in range(1, 7)]
        for number in range(2, 7):
            _count_rows(folder, f"{sequence.name}/H_1_{number}")
    return Content(folder, {**_count_kinds(folder), "images": len(files)}, _in_order(folder, files))


def inspect_hpatches_tasks(folder: Path) -> Content:
    """Inspect the HPatches task lists: splits, pairs of verification, queries and distractors of retrieval."""
    try:
        splits = read_json(folder / "splits.json")
    except OSError as error:
        raise DoapError(f"splits.json: {error.strerror}") from error
    except ValueError as error:
        raise DoapError("splits.json: not valid JSON") from error
    if not isinstance(splits, dict):
        raise DoapError("splits.json: not a JSON object of splits")
    counts = {"splits": len(splits)}
    for kind, columns in (("verif", "s1,t1,idx1,s2,t2,idx2"), ("retr", "s,idx")):
        lists = sorted(folder.glob(f"{kind}_*.csv"))
        for path in lists:
            if _count_rows(folder, path.name) < 2 or _first_row(path) != columns:
                raise DoapError(f"{path.name}: not a list with the columns {columns}")
        counts[{"verif": "verification lists", "retr": "retrieval lists"}[kind]] = len(lists)
    return Content(folder, counts, _in_order(folder, [folder / "splits.json", *folder.glob("[!.]*.csv")]))


def inspect_romepatches(folder: Path) -> Content:
    """Inspect RomePatches: 51x51 patches and their labels in MATLAB files, two files per half."""
    patches = 0
    files: list[Path] = []
    for half in romepatches.HALVES:
        files += [romepatches.patches_file(folder, half), romepatches.labels_file(folder, half)]
        if not _shapes(files[-1]):
            raise DoapError(f"{files[-1].name}: contains no numeric array")
        largest = max(_shapes(files[-2]).values(), key=np.prod, default=(0,))
        count, remainder = divmod(int(np.prod(largest)), romepatches.SIZE**2 * (3 if 3 in largest else 1))
        if remainder or not count:
            raise DoapError(f"{files[-2].name}: its largest array, {largest}, does not consist of 51x51 patches")
        patches += count
    return Content(folder, {"patches": patches}, _in_order(folder, files))


def inspect_oxford(folder: Path) -> Content:
    """Inspect the Oxford sequences: six images and five homographies each."""
    files: list[Path] = []
    for name in OXFORD_SEQUENCES:
        files += [_find_image(folder, folder / name, f"img{number}") for number in range(1, 7)]
        for number in range(2, 7):
            if not any(path.stat().st_size for path in (folder / name).glob(f"H1to{number}p*")):
                raise DoapError(f"{name}/H1to{number}p: missing or empty")
    return Content(folder, {"sequences": len(OXFORD_SEQUENCES), "images": len(files)}, _in_order(folder, files))


def content_hash(content: Content, progress: Progress = no_progress) -> str:
    """Compute the SHA-256 of the content of a data set, defined in the module docstring. Every file is decoded.

    Args:
        content: Result of one of the inspect functions.
        progress: Callback, called as progress(bytes done, total).

    Raises:
        DoapError: If a file cannot be decoded.
    """
    digest = hashlib.sha256()
    total = sum(path.stat().st_size for path in content.files)
    done = 0
    for path in content.files:
        if path.suffix == ".mat":
            for values in _arrays(path):
                digest.update(values.astype("<f4").tobytes(order="F"))
        elif path.suffix.lower() in PHOTO_SUFFIXES:
            grey = _read_image(content.folder, path)
            digest.update(f"{grey.shape[0]} {grey.shape[1]}\n".encode())
            digest.update(grey.tobytes())
        else:
            digest.update(path.read_bytes())
        done += path.stat().st_size
        progress(done, total)
    return digest.hexdigest()


def _in_order(folder: Path, files: list[Path]) -> tuple[Path, ...]:
    return tuple(sorted(files, key=lambda path: path.relative_to(folder).with_suffix("").as_posix()))


def _sequences(folder: Path) -> list[Path]:
    sequences = sorted(path for path in folder.iterdir() if path.is_dir() and path.name.startswith(("i_", "v_")))
    if not sequences:
        raise DoapError("no folder of a sequence (i_…, v_…)")
    return sequences


def _count_kinds(folder: Path) -> dict[str, int]:
    names = [path.name for path in _sequences(folder)]
    return {f"{kind} sequences": sum(name.startswith(kind) for name in names) for kind in ("i_", "v_")}


def _count_rows(folder: Path, name: str) -> int:
    try:
        with (folder / name).open("rb") as file:
            rows = sum(1 for line in file if line.strip())
    except OSError as error:
        raise DoapError(f"{name}: {error.strerror}") from error
    if rows == 0:
        raise DoapError(f"{name}: is empty")
    return rows


def _first_row(path: Path) -> str:
    with path.open("rb") as file:
        return file.readline(200).decode("utf-8", "replace").strip()


def _find_image(folder: Path, sequence: Path, stem: str) -> Path:
    """Return the only image of this name in any format, and check that it can be opened."""
    images = [path for path in sequence.glob(f"{stem}.*") if path.suffix.lower() in PHOTO_SUFFIXES]
    if len(images) != 1:
        raise DoapError(f"{sequence.relative_to(folder)}: {len(images) or 'no'} images named {stem}, must be one")
    _image_size(folder, images[0])
    return images[0]


def _image_size(folder: Path, path: Path) -> tuple[int, int]:
    """Read the width and height from the header of a file."""
    try:
        with open_image(path, path) as image:
            return image.size
    except DoapError as error:
        raise DoapError(f"{path.relative_to(folder)}: missing, or not a readable image") from error


def _read_image(folder: Path, path: Path) -> Grey:
    try:
        return read_grey(path, exif_rotation=False)
    except DoapError as error:
        raise DoapError(f"{path.relative_to(folder)}: damaged, cannot be decoded") from error


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the numeric arrays in a .mat file, by name."""
    try:
        return read_shapes(path, romepatches.MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DoapError(f"{path.name}: missing, or not a readable MATLAB file ({reason})") from error


def _arrays(path: Path) -> Iterator[NDArray[Any]]:
    """Yield the numeric arrays of a .mat file, ordered by name, with MATLAB's axes."""
    try:
        arrays = read_arrays(path, romepatches.MAX_BYTES)
    except (OSError, ValueError) as error:
        raise DoapError(f"{path.name}: damaged, cannot be decoded") from error
    for name in sorted(arrays):
        yield arrays[name]
