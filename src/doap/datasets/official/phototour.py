"""UBC Phototour (liberty, notredame, yosemite): sheets of patches, their 3D points, and labelled pairs.

The folder of a data set has

    patches0000.bmp …          sheets of 1024x1024, 8-bit grey: 16x16 patches of 64x64, row by row; the last is padded
    info.txt                   one row per patch; the first column is the 3D point
    m50_100000_100000_0.txt    the 100,000 test pairs: patch and 3D point in columns 0 and 1, and in columns 3 and 4
"""

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from doap.datasets.official.reading import read_exact_grey
from doap.datasets.sets.writer import write_patch_set
from doap.errors import DoapError, inflect
from doap.files import printable
from doap.types import Progress, no_progress

SIZE = 64
COLUMNS = 16
PER_SHEET = COLUMNS**2
INFO = "info.txt"
PAIRS = "m50_100000_100000_0.txt"
PAIR_COLUMNS = 7


def source_files(folder: Path) -> list[Path]:
    """Return info.txt and the sheets of a Phototour folder; empty if it is not one."""
    sheets, info = find_sheets(folder), folder / INFO
    return [info, *sheets] if sheets and info.is_file() else []


def find_sheets(folder: Path) -> list[Path]:
    """Return the sheets of a Phototour folder in order, without the hidden files that macOS leaves."""
    return sorted(file for file in folder.glob("*.bmp") if not file.name.startswith("."))


def convert_phototour(folder: Path, path: Path, progress: Progress = no_progress) -> None:
    """Convert a Phototour folder to a patch set, with one sheet in memory at a time.

    Each 3D point becomes a group with its official number; the set is one sequence, named after its folder. The files
    do not state the extent of the patches; the default extent is assumed.

    Args:
        folder: Folder with the sheets and info.txt.
        path: Patch set to write.
        progress: Callback, called as progress(sheets done, total).

    Raises:
        DoapError: If a file is missing or damaged; nothing is written then.
    """
    points = _read_points(folder / INFO)
    sheets = find_sheets(folder)
    expected = -(-len(points) // PER_SHEET)
    if len(sheets) != expected:
        raise DoapError(
            f"{folder}: {len(sheets)} {inflect(len(sheets), 'sheet')} (*.bmp), but the {len(points):,} rows of {INFO} "
            f"fill {expected}; a sheet is missing or {INFO} is truncated; get the official data again"
        )
    with write_patch_set(path, SIZE, [printable(folder.resolve().name)]) as writer:
        for number, sheet in enumerate(sheets):
            sheet_points = points[number * PER_SHEET : (number + 1) * PER_SHEET]
            writer.append(read_sheet(sheet)[: len(sheet_points)], sheet_points, np.zeros(len(sheet_points), np.int64))
            progress(number + 1, expected)


def write_phototour(
    folder: Path, patches: NDArray[np.uint8], points: NDArray[np.int64], pairs: NDArray[np.int64]
) -> None:
    """Write sheets, info.txt and the file of pairs into an empty folder, not atomically.

    Args:
        folder: The folder.
        patches: (N, 64, 64) uint8.
        points: (N,) the 3D point of each patch; official folders list the patches of a point consecutively.
        pairs: (P, 2) indices of patches, matching if their points are equal.
    """
    if patches.dtype != np.uint8 or patches.shape != (len(points), SIZE, SIZE) or not len(points):
        raise DoapError(f"{folder}: patches are {patches.dtype} {patches.shape}, not uint8 {(len(points), SIZE, SIZE)}")
    for number, start in enumerate(range(0, len(patches), PER_SHEET)):
        cells = np.zeros((PER_SHEET, SIZE, SIZE), np.uint8)
        cells[: len(patches) - start] = patches[start : start + PER_SHEET]
        sheet = cells.reshape(COLUMNS, COLUMNS, SIZE, SIZE).swapaxes(1, 2).reshape(COLUMNS * SIZE, COLUMNS * SIZE)
        Image.fromarray(sheet).save(folder / f"patches{number:04d}.bmp")
    (folder / INFO).write_text("".join(f"{point} 0\n" for point in points), encoding="ascii")
    table = np.zeros((len(pairs), PAIR_COLUMNS), np.int64)
    table[:, [0, 3]], table[:, [1, 4]] = pairs, points[pairs]
    np.savetxt(folder / PAIRS, table, fmt="%d")


def read_sheet(file: Path) -> NDArray[np.uint8]:
    """Read the 256 patches of a sheet, in order, including the padding: (256, 64, 64) uint8."""
    sheet = read_exact_grey(file)
    side = COLUMNS * SIZE
    if sheet.shape != (side, side):
        raise DoapError(f"{file}: {sheet.shape[1]}x{sheet.shape[0]} pixels, but a sheet is {side}x{side}")
    return sheet.reshape(COLUMNS, SIZE, COLUMNS, SIZE).swapaxes(1, 2).reshape(PER_SHEET, SIZE, SIZE)


def read_pairs(file: Path, patches: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Read a file of pairs.

    Args:
        file: m50_100000_100000_0.txt, or a file in the same format.
        patches: Number of patches of the set; larger indices are refused.

    Returns:
        Indices of the first (P,) and second (P,) patches, and match (P,) bool: whether both show the same 3D point.
    """
    table = _read_integers(file)
    if table.shape[1] != PAIR_COLUMNS:
        raise DoapError(f"{file}: {table.shape[1]} columns, but a file of pairs needs {PAIR_COLUMNS}")
    ids = table[:, [0, 3]]
    is_outside = ((ids < 0) | (ids >= patches)).any(axis=1)
    if is_outside.any():
        row = int(np.argmax(is_outside))
        raise DoapError(
            f"{file}: line {row + 1} names the patches {ids[row, 0]} and {ids[row, 1]}, but the set has {patches:,}; "
            "are these the pairs of another set?"
        )
    return ids[:, 0].copy(), ids[:, 1].copy(), table[:, 1] == table[:, 4]


def _read_points(file: Path) -> NDArray[np.int64]:
    return _read_integers(file)[:, 0].copy()


def _read_integers(file: Path) -> NDArray[np.int64]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about empty files, which are reported below
            warnings.simplefilter("error", DeprecationWarning)  # NumPy 1 truncates 0.5 to 0 and only warns
            table = np.loadtxt(file, dtype=np.int64, comments=None, ndmin=2)
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror or 'no such file'})") from error
    except (ValueError, DeprecationWarning) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DoapError(f"{file}: not a table of integers ({reason}); get the official data again") from error
    if not len(table):
        raise DoapError(f"{file}: empty; get the official data again")
    return table
