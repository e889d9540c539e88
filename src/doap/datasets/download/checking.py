"""What lies in the folder of an official data set: whether it is complete, and a hash of what it says.

Archives of the same data differ (they were packed again, pictures were converted), so the hash is over the content:
SHA-256 over the files in order of their path without suffix, and of each

    a picture       its height and width as "H W" and a line feed, then its grey pixels, row by row, a byte each
    a .mat file     its arrays of numbers in order of name, as little-endian float32 in MATLAB's order, by columns
    a list          its bytes

Faults name files by their path inside the folder.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.io import loadmat, whosmat

from doap.datasets.official import hpatches, phototour, romepatches
from doap.errors import DoapError
from doap.images.reading import PHOTO_SUFFIXES, to_grey
from doap.types import Grey

OXFORD = ("bark", "bikes", "boat", "graf", "leuven", "trees", "ubc", "wall")
MAX_ARRAY = 1 << 30
MATLAB_NUMBERS = frozenset(
    {"double", "single", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
)


@dataclass(frozen=True)
class Content:
    """What a folder holds: how many of what, and the files that are hashed."""

    folder: Path
    counts: Mapping[str, int]
    files: tuple[Path, ...]

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in self.counts.items())


def inspect_phototour(folder: Path) -> Content:
    """UBC Phototour: sheets of 16x16 patches, info.txt with a row a patch, and the list of 100,000 test pairs."""
    patches = _count_rows(folder, phototour.INFO)
    pairs = _count_rows(folder, phototour.PAIRS)
    sheets = tuple(sorted(folder.glob("*.bmp")))
    needed = -(-patches // phototour.PER_SHEET)
    if len(sheets) < needed:
        raise DoapError(f"{len(sheets):,} sheets (*.bmp), but the {patches:,} patches of info.txt need {needed:,}")
    side = phototour.COLUMNS * phototour.SIZE
    for sheet in sheets:
        if _picture_size(folder, sheet) != (side, side):
            raise DoapError(f"{sheet.name}: a sheet must be {side}x{side}")
    return Content(folder, {"patches": patches, "pairs": pairs}, sheets)


def inspect_hpatches(folder: Path) -> Content:
    """HPatches: 16 strips of 65x65 patches a sequence, all of one height."""
    files: list[Path] = []
    patches = 0
    for sequence in _sequences(folder):
        sizes = {name: _picture_size(folder, sequence / f"{name}.png") for name in hpatches.STRIPS}
        width, height = sizes["ref"]
        if set(sizes.values()) != {(width, height)} or width != hpatches.SIZE or height % hpatches.SIZE:
            raise DoapError(f"{sequence.name}: strips must be {hpatches.SIZE} wide and all of one height, N x {width}")
        patches += len(hpatches.STRIPS) * height // hpatches.SIZE
        files += [sequence / f"{name}.png" for name in hpatches.STRIPS]
    return Content(folder, {**_count_kinds(folder), "patches": patches}, _in_order(folder, files))


def inspect_hpatches_sequences(folder: Path) -> Content:
    """The photos of HPatches: six images and five homographies a sequence."""
    files: list[Path] = []
    for sequence in _sequences(folder):
        files += [_picture(folder, sequence, str(number)) for number in range(1, 7)]
        for number in range(2, 7):
            _count_rows(folder, f"{sequence.name}/H_1_{number}")
    return Content(folder, {**_count_kinds(folder), "images": len(files)}, _in_order(folder, files))


def inspect_hpatches_tasks(folder: Path) -> Content:
    """The lists of the HPatches tasks: which sequences a split has, pairs to verify, queries and distractors."""
    try:
        splits = json.loads((folder / "splits.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise DoapError(f"splits.json: {error.strerror}") from error
    except ValueError as error:
        raise DoapError("splits.json: not valid JSON") from error
    if not isinstance(splits, dict):
        raise DoapError("splits.json: not a table of splits")
    counts = {"splits": len(splits)}
    for kind, columns in (("verif", "s1,t1,idx1,s2,t2,idx2"), ("retr", "s,idx")):
        lists = sorted(folder.glob(f"{kind}_*.csv"))
        for path in lists:
            if _count_rows(folder, path.name) < 2 or _first_row(path) != columns:
                raise DoapError(f"{path.name}: not a list with the columns {columns}")
        counts[{"verif": "verification lists", "retr": "retrieval lists"}[kind]] = len(lists)
    return Content(folder, counts, _in_order(folder, [folder / "splits.json", *folder.glob("*.csv")]))


def inspect_romepatches(folder: Path) -> Content:
    """RomePatches: patches of 51x51 and their labels in MATLAB files, one pair of files a half."""
    patches = 0
    files: list[Path] = []
    for half in romepatches.HALVES:
        files += [romepatches.patches_file(folder, half), romepatches.labels_file(folder, half)]
        if not _shapes(files[-1]):
            raise DoapError(f"{files[-1].name}: holds no array of numbers")
        largest = max(_shapes(files[-2]).values(), key=np.prod, default=(0,))
        count, rest = divmod(int(np.prod(largest)), romepatches.SIZE**2 * (3 if 3 in largest else 1))
        if rest or not count:
            raise DoapError(f"{files[-2].name}: its largest array, {largest}, does not hold patches of 51x51")
        patches += count
    return Content(folder, {"patches": patches}, _in_order(folder, files))


def inspect_oxford(folder: Path) -> Content:
    """The Oxford sequences: six images and five homographies each."""
    files: list[Path] = []
    for name in OXFORD:
        files += [_picture(folder, folder / name, f"img{number}") for number in range(1, 7)]
        for number in range(2, 7):
            if not any(path.stat().st_size for path in (folder / name).glob(f"H1to{number}p*")):
                raise DoapError(f"{name}/H1to{number}p: missing or empty")
    return Content(folder, {"sequences": len(OXFORD), "images": len(files)}, _in_order(folder, files))


def content_hash(content: Content, progress: Callable[[int, int | None], None] = lambda _done, _total: None) -> str:
    """SHA-256 of what a data set says, as the head of this file defines it; every file is read and decoded.

    Args:
        content: from one of the functions above.
        progress: called with the bytes of the files that are done, and their number.

    Raises:
        DoapError: a file that cannot be decoded.
    """
    digest = hashlib.sha256()
    whole = sum(path.stat().st_size for path in content.files)
    done = 0
    for path in content.files:
        if path.suffix == ".mat":
            for values in _arrays(path):
                digest.update(values.astype("<f4").tobytes(order="F"))
        elif path.suffix.lower() in PHOTO_SUFFIXES:
            grey = _read_picture(content.folder, path)
            digest.update(f"{grey.shape[0]} {grey.shape[1]}\n".encode())
            digest.update(grey.tobytes())
        else:
            digest.update(path.read_bytes())
        done += path.stat().st_size
        progress(done, whole)
    return digest.hexdigest()


def _in_order(folder: Path, files: list[Path]) -> tuple[Path, ...]:
    return tuple(sorted(files, key=lambda path: path.relative_to(folder).with_suffix("").as_posix()))


def _sequences(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.is_dir() and path.name.startswith(("i_", "v_")))
    if not found:
        raise DoapError("no folder of a sequence (i_…, v_…)")
    return found


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


def _picture(folder: Path, place: Path, stem: str) -> Path:
    """The picture of this name, whatever its format; that it can be opened is checked."""
    found = [path for path in place.glob(f"{stem}.*") if path.suffix.lower() in PHOTO_SUFFIXES]
    if len(found) != 1:
        raise DoapError(f"{place.relative_to(folder)}: {len(found) or 'no'} pictures named {stem}, must be one")
    _picture_size(folder, found[0])
    return found[0]


def _picture_size(folder: Path, path: Path) -> tuple[int, int]:
    """Width and height, from the head of the file."""
    try:
        with Image.open(path) as picture:
            return picture.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DoapError(f"{path.relative_to(folder)}: missing, or not a picture that can be read") from error


def _read_picture(folder: Path, path: Path) -> Grey:
    try:
        with Image.open(path) as picture:
            return to_grey(picture)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DoapError(f"{path.relative_to(folder)}: cannot be decoded, so it is damaged") from error


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of numbers in a .mat file, by name."""
    try:
        if h5py.is_hdf5(path):
            with h5py.File(path) as file:
                shapes = {name: item.shape[::-1] for name, item in file.items() if _is_numeric(item)}
        else:
            shapes = {name: shape for name, shape, kind in whosmat(path) if kind in MATLAB_NUMBERS}
    except Exception as error:  # the readers raise whatever a damaged file makes them stumble over
        raise DoapError(f"{path.name}: missing, or not a MATLAB file that can be read") from error
    if any(np.prod(shape, dtype=float) > MAX_ARRAY for shape in shapes.values()):
        raise DoapError(f"{path.name}: claims to hold more than {MAX_ARRAY:,} numbers, which is refused")
    return shapes


def _is_numeric(item: object) -> bool:
    return isinstance(item, h5py.Dataset) and item.dtype.kind in "uif"


def _arrays(path: Path) -> Iterator[NDArray[Any]]:
    """The arrays of numbers in a .mat file, in order of name, with MATLAB's axes."""
    try:
        for name in sorted(_shapes(path)):
            if h5py.is_hdf5(path):
                with h5py.File(path) as file:
                    yield np.asarray(file[name]).T
            else:
                yield loadmat(path, variable_names=[name])[name]
    except Exception as error:  # likewise
        raise DoapError(f"{path.name}: cannot be decoded, so it is damaged") from error
