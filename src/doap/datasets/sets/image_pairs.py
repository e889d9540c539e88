"""Folders of image pairs with ground truth, read in one of three layouts.

pairs.csv          a table with the columns first, second, truth and optionally scene; paths are relative to the table.
                   Pairs of one scene are not independent and are resampled together; by default each pair is a scene
image sequences    folders in the layout of Oxford or HPatches, see `doap.datasets.official.image_sequences`: the first
                   image with each of the others
pair folders       one folder per pair: two images, in the order of their names, and H.txt, H.xml or points.csv

The ground truth (column truth) is a homography from the first to the second image, as nine numbers or as OpenCV XML,
or, in a file that ends in .csv, labelled points: rows x1,y1,x2,y2 in pixels, with or without a heading. The centre of
the top left pixel is 0,0.
"""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.datasets.official.image_sequences import ImageSequence, is_sequence, read_sequence
from doap.errors import DoapError
from doap.files import printable
from doap.images.reading import is_photo

COLUMNS = ("first", "second", "truth")
GROUND_TRUTH_FILES = ("H.txt", "H.xml", "points.csv")
MAX_TABLE_BYTES = 1 << 24


@dataclass(frozen=True)
class PairFiles:
    """The files of an image pair.

    Attributes:
        sequence: Sequence or scene of the pair.
        name: Name of the pair within its sequence.
        first: Path of the first image.
        second: Path of the second image.
        ground_truth: A homography, or the path of its file, or the path of labelled points if it ends in .csv.
    """

    sequence: str
    name: str
    first: Path
    second: Path
    ground_truth: Path | NDArray[np.float64]

    @property
    def is_planar(self) -> bool:
        """Whether the ground truth is a homography."""
        return not isinstance(self.ground_truth, Path) or self.ground_truth.suffix.lower() != ".csv"


def find_pairs(folder: Path) -> list[PairFiles]:
    """Return all pairs of a folder: those of its pairs.csv, or else of all sequences and pair folders in it.

    Raises:
        DoapError: If there is no pair, or a pair is incomplete.
    """
    if not folder.is_dir():
        raise DoapError(f"{folder}: no such folder")
    if (folder / "pairs.csv").exists():
        return _read_pairs(folder / "pairs.csv")
    pairs: list[PairFiles] = []
    for path in sorted(Path(name) for name, _, _ in os.walk(folder)):
        sequence = printable(folder.resolve().name if path == folder else str(path.relative_to(folder)))
        if is_sequence(path):
            pairs += sequence_pairs(read_sequence(path), sequence)
        elif any((path / name).is_file() for name in GROUND_TRUTH_FILES):
            pairs.append(_read_pair_folder(path, sequence))
    if not pairs:
        raise DoapError(
            f"{folder}: no image pairs here: no pairs.csv, no image sequence, no folder of two images with "
            f"{', '.join(GROUND_TRUTH_FILES[:-1])} or {GROUND_TRUTH_FILES[-1]}"
        )
    return pairs


def sequence_pairs(sequence: ImageSequence, name: str) -> list[PairFiles]:
    """Return the pairs of the first image of a sequence with each of the others, named 1-2, 1-3, …"""
    others = zip(sequence.images[1:], sequence.homographies[1:], strict=True)
    return [
        PairFiles(name, f"1-{number}", sequence.images[0], image, homography)
        for number, (image, homography) in enumerate(others, 2)
    ]


def read_points(file: Path) -> NDArray[np.float64]:
    """Read labelled points (P, 4) from a table with rows x1,y1,x2,y2, with or without a heading."""
    rows = _read_table(file)
    if rows and not any(map(_is_number, rows[0])):
        rows = rows[1:]
    try:
        points = np.array([[float(value) for value in row] for row in rows], np.float64)
    except ValueError as error:
        raise DoapError(f"{file}: not a table of numbers x1,y1,x2,y2 ({error})") from error
    if points.ndim != 2 or points.shape[1] != 4 or not np.isfinite(points).all():
        raise DoapError(f"{file}: not a table of numbers x1,y1,x2,y2")
    return points


def _read_pairs(table: Path) -> list[PairFiles]:
    """Read the pairs of a pairs.csv."""
    rows = _read_table(table)
    heading = [name.strip() for name in rows[0]] if rows else []
    unknown = set(heading) - {*COLUMNS, "scene"}
    is_repeated = len(set(heading)) < len(heading)
    if unknown or is_repeated or not set(COLUMNS) <= set(heading) or len(rows) < 2:
        raise DoapError(f"{table}: must have the heading first,second,truth (scene is optional) and one row per pair")
    pairs = []
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(heading) or not all(value.strip() for value in row):
            raise DoapError(f"{table}: pair {number} does not have {len(heading)} values")
        if any(printable(value) != value for value in row):
            raise DoapError(f"{table}: pair {number} has a control character in a name")
        values = {name: value.strip() for name, value in zip(heading, row, strict=True)}
        name = f"{number}: {Path(values['first']).name} - {Path(values['second']).name}"
        first, second, ground_truth = (table.parent / values[column] for column in COLUMNS)
        pairs.append(PairFiles(values.get("scene", name), name, first, second, ground_truth))
    return pairs


def _read_pair_folder(folder: Path, name: str) -> PairFiles:
    """Find the files of the pair in a folder with two images and their ground truth."""
    images = [path for path in sorted(folder.iterdir()) if is_photo(Path(path.name)) and path.is_file()]
    ground_truths = [folder / file for file in GROUND_TRUTH_FILES if (folder / file).is_file()]
    if len(images) != 2 or len(ground_truths) != 1:
        raise DoapError(
            f"{folder}: a pair is two images and one file of ground truth, not {len(images)} and "
            f"{len(ground_truths)}; list several pairs in a pairs.csv"
        )
    return PairFiles(name, printable(f"{images[0].name} - {images[1].name}"), images[0], images[1], ground_truths[0])


def _read_table(file: Path) -> list[list[str]]:
    """Read the rows of a CSV file, without empty ones."""
    try:
        with file.open("rb") as source:
            content = source.read(MAX_TABLE_BYTES + 1)
        if len(content) > MAX_TABLE_BYTES:
            raise DoapError(f"{file}: larger than {MAX_TABLE_BYTES:,} bytes, too large for a table of pairs or points")
        rows = list(csv.reader(content.decode("utf-8-sig").splitlines()))
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DoapError(f"{file}: not a CSV table ({error})") from error
    return [row for row in rows if any(value.strip() for value in row)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
