"""UBC Phototour (liberty, notredame, yosemite): sheets of patches, their 3D points, and pairs to tell apart.

A folder of the set holds

    patches0000.bmp …          1024x1024, 8-bit grey: 16x16 patches of 64x64, row by row; the last sheet is padded
    info.txt                   a row a patch, first column the 3D point: it says how many patches there are
    m50_100000_100000_0.txt    the 100,000 test pairs: patch and point in columns 0 and 1, again in 3 and 4
"""

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.datasets.official.reading import read_exact_grey
from doap.datasets.sets.writer import write_patch_set
from doap.errors import DoapError
from doap.types import Progress, no_progress

SIZE = 64
ACROSS = 16
PER_SHEET = ACROSS**2
INFO = "info.txt"
PAIRS = "m50_100000_100000_0.txt"
PAIR_COLUMNS = 7


def source_files(folder: Path) -> list[Path]:
    """The files of a Phototour folder that hold its patches; empty if it is none."""
    sheets = sorted(folder.glob("*.bmp"))
    info = folder / INFO
    return [info, *sheets] if sheets and info.is_file() else []


def convert_phototour(folder: Path, path: Path, progress: Progress = no_progress) -> None:
    """Write the patches of a Phototour folder as a patch set, one sheet in memory at a time.

    A group is a 3D point with its official number, the set is one sequence named after its folder. How
    large the patches are for their keypoints is not in the files; the extent is the default one, by assumption.

    Args:
        folder: with the sheets and info.txt.
        path: the patch set to write.
        progress: told the sheets done, and how many there are.

    Raises:
        DoapError: one line that names the file and the error; nothing is written then.
    """
    points = _read_points(folder / INFO)
    sheets = sorted(folder.glob("*.bmp"))
    needed = -(-len(points) // PER_SHEET)
    if len(sheets) != needed:
        raise DoapError(
            f"{folder}: {len(sheets)} sheets (*.bmp), but the {len(points):,} rows of {INFO} fill {needed}; "
            f"a sheet is missing or {INFO} is cut short, get the official data again"
        )
    with write_patch_set(path, SIZE, [folder.resolve().name]) as writer:
        for number, sheet in enumerate(sheets):
            here = points[number * PER_SHEET : (number + 1) * PER_SHEET]
            writer.append(read_sheet(sheet)[: len(here)], here, np.zeros(len(here), np.int64))
            progress(number + 1, needed)


def read_sheet(file: Path) -> NDArray[np.uint8]:
    """The 256 patches of a sheet in their order, (256, 64, 64) uint8, padding included."""
    sheet = read_exact_grey(file)
    side = ACROSS * SIZE
    if sheet.shape != (side, side):
        raise DoapError(f"{file}: {sheet.shape[1]}x{sheet.shape[0]} pixels, but a sheet has {side}x{side}")
    return sheet.reshape(ACROSS, SIZE, ACROSS, SIZE).swapaxes(1, 2).reshape(PER_SHEET, SIZE, SIZE)


def read_pairs(file: Path, patches: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Read a file of pairs.

    Args:
        file: m50_100000_100000_0.txt or one of its siblings.
        patches: how many the set has; a pair outside is refused.

    Returns:
        first (P,) and second (P,) patch indices, and match (P,): whether both show the same 3D point.
    """
    table = _read_integers(file)
    if table.shape[1] != PAIR_COLUMNS:
        raise DoapError(f"{file}: {table.shape[1]} columns, but a file of pairs has {PAIR_COLUMNS}")
    ids = table[:, [0, 3]]
    outside = ((ids < 0) | (ids >= patches)).any(axis=1)
    if outside.any():
        row = int(np.argmax(outside))
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
            warnings.simplefilter("ignore", UserWarning)  # of an empty file, which is told below
            warnings.simplefilter("error", DeprecationWarning)  # numpy 1 cuts 0.5 to 0 and only warns
            table = np.loadtxt(file, dtype=np.int64, comments=None, ndmin=2)
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror or 'no such file'})") from error
    except (ValueError, DeprecationWarning) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DoapError(f"{file}: not a table of integers ({reason}); get the official data again") from error
    if not len(table):
        raise DoapError(f"{file}: empty; get the official data again")
    return table
