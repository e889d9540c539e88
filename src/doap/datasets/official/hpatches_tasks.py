"""Task lists of HPatches: the splits, the queries and distractors of retrieval, the pairs of verification."""

import csv
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from doap.datasets.official.hpatches import IMAGES, NOISES, STRIPS
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.files import write_text

OTHER_LISTS = "use the lists of this data set"  # advice in errors


class Split(BaseModel):
    """Sequences of an official split: train and test for a, b and c, only test for full, illum and view."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    test: tuple[str, ...]
    train: tuple[str, ...] = ()

    def training_sequences(self) -> tuple[str, ...]:
        """Return the names of the train sequences; a DoapError if the split has none."""
        if not self.train:
            raise DoapError(f"split {self.name} has no train sequences; use a, b or c")
        return self.train


@dataclass(frozen=True)
class PatchLocations:
    """Locations of n patches in the official folders.

    Attributes:
        sequence_names: Names of the sequences, in the order of their first occurrence.
        sequences: (n,) indices in `sequence_names`.
        images: (n,) 0 for the reference, else 1 to 5.
        rows: (n,) rows in the strip.
        file: List that the locations were read from, one per line after that of the columns; None if they were sampled.
    """

    sequence_names: list[str]
    sequences: NDArray[np.int64]
    images: NDArray[np.int64]
    rows: NDArray[np.int64]
    file: Path | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def describe_place(self, index: int) -> str:
        """Return the file and line of a location, for errors."""
        return f"{self.file}: line {index + 2}" if self.file else f"location {index} of the list"


def read_splits(file: Path) -> dict[str, Split]:
    """Read splits.json and return the splits by name."""
    try:
        return TypeAdapter(dict[str, Split]).validate_json(file.read_bytes())
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise DoapError(f"{file}: not a list of splits ({key + ': ' if key else ''}{first['msg']})") from error


def write_splits(file: Path, splits: Sequence[Split]) -> None:
    """Write splits in the format of splits.json."""
    write_text(file, json.dumps({split.name: split.model_dump() for split in splits}, indent=1))


def find_split(folder: Path, split: str) -> Split:
    """Return an official split by name, from the splits.json located by `find_task_file`."""
    file = find_task_file(folder, "splits.json")
    if file is None:
        raise DoapError(f"{folder}: no splits.json in it or beside it; get it with doap data download hpatches-tasks")
    splits = read_splits(file)
    if split not in splits:
        raise DoapError(f"{file}: no split {split}; there are {', '.join(splits)}")
    return splits[split]


def find_task_file(folder: Path, name: str) -> Path | None:
    """Return a task file from an HPatches folder, from hpatches-tasks beside it, or from its parent, else None."""
    folders = [folder, folder.parent / "hpatches-tasks", folder.parent]
    return next((path / name for path in folders if (path / name).exists()), None)


def read_retrieval_list(file: Path) -> PatchLocations:
    """Read the queries or distractors of the retrieval task (columns s, idx), which are in the reference images."""
    names, columns = _read_columns(file, ["s"], ["idx"])
    return PatchLocations(names, columns["s"], np.zeros_like(columns["idx"]), columns["idx"], file)


def read_verification_pairs(file: Path) -> tuple[PatchLocations, PatchLocations]:
    """Read pairs of the verification task (columns s1, t1, idx1, s2, t2, idx2): first and second patches."""
    names, columns = _read_columns(file, ["s1", "s2"], ["t1", "idx1", "t2", "idx2"])
    for column in ("t1", "t2"):
        if columns[column].max() > IMAGES:
            index = int(np.argmax(columns[column] > IMAGES))
            raise DoapError(
                f"{file}: line {index + 2} has image {columns[column][index]} in column {column}, but there are 0 to "
                f"{IMAGES}; {OTHER_LISTS}"
            )
    return (
        PatchLocations(names, columns["s1"], columns["t1"], columns["idx1"], file),
        PatchLocations(names, columns["s2"], columns["t2"], columns["idx2"], file),
    )


def find_patches(patches: PatchSet, locations: PatchLocations, noise: str) -> NDArray[np.int64]:
    """Return the indices of the patches of a task list in a converted HPatches set.

    Args:
        patches: Written by `convert_hpatches`, or some sequences of it.
        locations: n locations; patches of the reference image are the same for every noise.
        noise: "easy", "hard" or "tough".

    Returns:
        (n,) indices into `patches`.

    Raises:
        DoapError: If the set lacks a sequence or row of the list; names the line.
    """
    blocks = sequence_blocks(patches)
    names = locations.sequence_names
    absent = np.array([name not in blocks for name in names])[locations.sequences]
    if absent.any():
        first = int(np.argmax(absent))
        name = names[locations.sequences[first]]
        raise DoapError(f"{locations.describe_place(first)} names {name}, a sequence not in the set; {OTHER_LISTS}")
    # A name that only the other halves of pairs have may be absent.
    starts, rows = np.array([blocks.get(name, (0, 0)) for name in names]).T[:, locations.sequences]
    if (locations.rows >= rows).any():
        first = int(np.argmax(locations.rows >= rows))
        raise DoapError(
            f"{locations.describe_place(first)} names row {locations.rows[first]} of "
            f"{names[locations.sequences[first]]}, which has {rows[first]} rows; {OTHER_LISTS}"
        )
    strip_of = np.array([0] + [list(STRIPS.values()).index((i, NOISES.index(noise))) for i in range(1, IMAGES + 1)])
    return np.asarray(starts + strip_of[locations.images] * rows + locations.rows, np.int64)


def sequence_blocks(patches: PatchSet) -> dict[str, tuple[int, int]]:
    """Return the first index and the number of rows per strip of each sequence of a converted HPatches set, by name.

    The strips of a sequence are contiguous, in the order of `STRIPS`.
    """
    numbers, starts, counts = np.unique(patches.sequences, return_index=True, return_counts=True)
    names = [patches.sequence_names[number] for number in numbers]
    return {name: (int(s), int(n) // len(STRIPS)) for name, s, n in zip(names, starts, counts, strict=True)}


def _read_columns(file: Path, texts: list[str], numbers: list[str]) -> tuple[list[str], dict[str, NDArray[np.int64]]]:
    """Read columns of a CSV by name: texts as indices in a common list of names, numbers as they are."""
    names: dict[str, int] = {}
    columns = {name: array("q") for name in [*texts, *numbers]}  # compact for lists of a million pairs
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.reader(lines)
            header = next(rows, [])
            absent = [name for name in columns if name not in header]
            if absent:
                raise DoapError(f"{file}: no column {absent[0]}; the columns are {', '.join(header)[:80] or 'none'}")
            text_columns = [(header.index(name), columns[name]) for name in texts]
            number_columns = [(header.index(name), columns[name]) for name in numbers]
            for row in rows:
                for index, column in text_columns:
                    column.append(names.setdefault(row[index], len(names)))
                for index, column in number_columns:
                    column.append(_parse_count(row[index]))
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, IndexError, OverflowError, csv.Error) as error:
        raise DoapError(f"{file}: line {rows.line_num} is damaged ({error})") from error
    if not columns[texts[0]]:
        raise DoapError(f"{file}: the list is empty")
    return list(names), {name: np.frombuffer(column, np.int64) for name, column in columns.items()}


def _parse_count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number
