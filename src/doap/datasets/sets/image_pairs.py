"""Somebody's own image pairs. A folder of them is read in one of these layouts:

pairs.csv       a table with the columns first,second,truth and optionally scene; paths are relative to it. Pairs of
                one scene are not independent, and are resampled together; by default each pair is its own scene
sequences       folders in the layout of Oxford or HPatches (`photos.sequences`): the pairs 1-2, 1-3, …
a folder a pair two pictures, the first by name being the first, and H.txt or H.xml, or points.csv

The truth is a homography from the first to the second image (nine numbers, or OpenCV's XML), or, in a file ending in
.csv, labelled points: rows x1,y1,x2,y2 in pixels, the centre of the top left one at 0,0. A heading is allowed.
"""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.datasets.official.image_sequences import ImageSequence, is_sequence, read_sequence
from doap.errors import DoapError
from doap.images.reading import PHOTO_SUFFIXES

TRUTHS = ("H.txt", "H.xml", "points.csv")


COLUMNS = ("first", "second", "truth")


LARGEST_TABLE = 1 << 24  # bytes


@dataclass(frozen=True)
class PairFiles:
    """Where a pair lies.

    Attributes:
        sequence: what it belongs to.
        name: within the sequence.
        first: path of the first image.
        second: of the second.
        truth: a homography, or its file, or a file of labelled points if its name ends in .csv.
    """

    sequence: str
    name: str
    first: Path
    second: Path
    truth: Path | NDArray[np.float64]

    @property
    def is_planar(self) -> bool:
        """Whether the truth is a homography."""
        return not isinstance(self.truth, Path) or self.truth.suffix.lower() != ".csv"


def find_pairs(folder: Path) -> list[PairFiles]:
    """All pairs of a folder: those of its pairs.csv, otherwise the sequences and pair folders in it and below.

    Raises:
        DoapError: one line that says what is wrong and where, or that there is no pair.
    """
    if not folder.is_dir():
        raise DoapError(f"{folder}: no such folder")
    if (folder / "pairs.csv").exists():
        return _listed(folder / "pairs.csv")
    found: list[PairFiles] = []
    for place in sorted(Path(name) for name, _, _ in os.walk(folder)):
        called = folder.resolve().name if place == folder else str(place.relative_to(folder))
        if is_sequence(place):
            found += sequence_pairs(read_sequence(place), called)
        elif any((place / name).is_file() for name in TRUTHS):
            found.append(_in_folder(place, called))
    if not found:
        raise DoapError(
            f"{folder}: no image pairs here: no pairs.csv, no image sequence, no folder of two pictures with "
            f"{', '.join(TRUTHS[:-1])} or {TRUTHS[-1]}"
        )
    return found


def sequence_pairs(sequence: ImageSequence, called: str) -> list[PairFiles]:
    """The first image with each of the others."""
    others = zip(sequence.images[1:], sequence.homographies[1:], strict=True)
    return [
        PairFiles(called, f"1-{number}", sequence.images[0], image, homography)
        for number, (image, homography) in enumerate(others, 2)
    ]


def read_points(file: Path) -> NDArray[np.float64]:
    """Labelled points (P, 4) of a table: rows x1,y1,x2,y2, under a heading or none."""
    rows = _read_table(file)
    if rows and not _is_number(rows[0][0]):
        rows = rows[1:]
    try:
        points = np.array([[float(value) for value in row] for row in rows], np.float64)
    except ValueError as error:
        raise DoapError(f"{file}: not a table of numbers x1,y1,x2,y2 ({error})") from error
    if points.ndim != 2 or points.shape[1] != 4 or not np.isfinite(points).all():
        raise DoapError(f"{file}: not a table of numbers x1,y1,x2,y2")
    return points


def _listed(table: Path) -> list[PairFiles]:
    """The pairs of pairs.csv."""
    rows = _read_table(table)
    heading = [name.strip() for name in rows[0]] if rows else []
    unknown = set(heading) - {*COLUMNS, "scene"}
    if unknown or not set(COLUMNS) <= set(heading) or len(rows) < 2:
        raise DoapError(f"{table}: must have a heading first,second,truth (and scene, if any), and a row a pair")
    found = []
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(heading) or not all(value.strip() for value in row):
            raise DoapError(f"{table}: pair {number} has not {len(heading)} values")
        of = {name: value.strip() for name, value in zip(heading, row, strict=True)}
        name = f"{number}: {Path(of['first']).name} - {Path(of['second']).name}"
        first, second, truth = (table.parent / of[column] for column in COLUMNS)
        found.append(PairFiles(of.get("scene", name), name, first, second, truth))
    return found


def _in_folder(folder: Path, called: str) -> PairFiles:
    """The pair of a folder with two pictures and a truth."""
    pictures = sorted(p for p in folder.iterdir() if p.suffix.lower() in PHOTO_SUFFIXES and p.is_file())
    truths = [folder / name for name in TRUTHS if (folder / name).is_file()]
    if len(pictures) != 2 or len(truths) != 1:
        raise DoapError(
            f"{folder}: a pair is two pictures and one truth, not {len(pictures)} and {len(truths)}; "
            "list several pairs in a pairs.csv"
        )
    return PairFiles(called, f"{pictures[0].name} - {pictures[1].name}", pictures[0], pictures[1], truths[0])


def _read_table(file: Path) -> list[list[str]]:
    """The rows of a CSV file that are not empty."""
    try:
        with file.open("rb") as source:
            content = source.read(LARGEST_TABLE + 1)
        if len(content) > LARGEST_TABLE:
            raise DoapError(f"{file}: too large for a table of pairs or points")
        rows = list(csv.reader(content.decode("utf-8-sig").splitlines()))
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DoapError(f"{file}: not a table ({error})") from error
    return [row for row in rows if any(value.strip() for value in row)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
