"""The task lists of HPatches: which sequences train and test, which patches are queried, which pairs compared."""

import csv
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from doap.datasets.official.hpatches import IMAGES, NOISES, STRIPS
from doap.datasets.official.opening import select_sequences
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError


class Split(BaseModel):
    """The sequences of one official split: a, b and c have two halves; full, illum and view test only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    test: tuple[str, ...]
    train: tuple[str, ...] = ()

    def half(self, half: str) -> tuple[str, ...]:
        """The names of the "train" or of the "test" sequences."""
        if half not in ("train", "test"):
            raise DoapError(f"half {half}: there are train and test")
        if half == "train" and not self.train:
            raise DoapError(f"split {self.name} has no train half; a, b and c have one")
        return self.train if half == "train" else self.test


@dataclass(frozen=True)
class Places:
    """Where patches lie in the official folders.

    Attributes:
        sequence_names: names of the sequences that occur, in the order of their first appearance.
        sequences: (n,) places in `sequence_names`.
        images: (n,) 0 for the reference, else 1 to 5.
        rows: (n,) places in the strip.
    """

    sequence_names: list[str]
    sequences: NDArray[np.int64]
    images: NDArray[np.int64]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


def read_splits(file: Path) -> dict[str, Split]:
    """Read splits.json: the splits by name."""
    try:
        return TypeAdapter(dict[str, Split]).validate_json(file.read_bytes())
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DoapError(f"{file}: not a list of splits ({place + ': ' if place else ''}{first['msg']})") from error


def training_half(patches: PatchSet, folder: Path, split: str) -> PatchSet:
    """The sequences of an official folder that a split trains on.

    Args:
        patches: opened from the folder.
        folder: of HPatches; see `find_split`.
        split: a, b or c.
    """
    return select_sequences(patches, find_split(folder, split).half("train"))


def find_split(folder: Path, split: str) -> Split:
    """An official split by name, from the splits.json that `find_task_file` finds."""
    file = find_task_file(folder, "splits.json")
    if file is None:
        raise DoapError(f"{folder}: no splits.json in it or beside it; doap data download hpatches-tasks brings it")
    splits = read_splits(file)
    if split not in splits:
        raise DoapError(f"{file}: no split {split}; there are {', '.join(splits)}")
    return splits[split]


def find_task_file(folder: Path, name: str) -> Path | None:
    """A file of the tasks: in an HPatches folder, beside it, or in hpatches-tasks beside it, where downloads go."""
    homes = [folder, folder.parent / "hpatches-tasks", folder.parent]
    return next((home / name for home in homes if (home / name).exists()), None)


def read_retrieval_list(file: Path) -> Places:
    """Read the queries or distractors of the retrieval task (columns s, idx): patches of reference images."""
    names, columns = _read_columns(file, ["s"], ["idx"])
    return Places(names, columns["s"], np.zeros_like(columns["idx"]), columns["idx"])


def read_verification_pairs(file: Path) -> tuple[Places, Places]:
    """Read pairs of the verification task (columns s1, t1, idx1, s2, t2, idx2): the first and second of each."""
    names, columns = _read_columns(file, ["s1", "s2"], ["t1", "idx1", "t2", "idx2"])
    for column in ("t1", "t2"):
        if columns[column].max() > IMAGES:
            raise DoapError(f"{file}: image {columns[column].max()} in column {column}, but there are 0 to {IMAGES}")
    return (
        Places(names, columns["s1"], columns["t1"], columns["idx1"]),
        Places(names, columns["s2"], columns["t2"], columns["idx2"]),
    )


def find_patches(patches: PatchSet, places: Places, noise: str) -> NDArray[np.int64]:
    """Where in a converted HPatches set the patches of a task list are.

    Args:
        patches: made by `convert_hpatches`, or some sequences of it.
        places: n of them; those of the reference image are the same at every noise.
        noise: "easy", "hard" or "tough".

    Returns:
        (n,) indices into `patches`.
    """
    blocks = sequence_blocks(patches)
    missing = sorted(set(places.sequence_names) - set(blocks))
    if missing:
        raise DoapError(f"the list names {len(missing)} sequences that are not in the set: {', '.join(missing[:3])}")
    starts, rows = np.array([blocks[name] for name in places.sequence_names]).T[:, places.sequences]
    if (places.rows >= rows).any():
        wrong = int(np.argmax(places.rows >= rows))
        name = places.sequence_names[places.sequences[wrong]]
        raise DoapError(f"the list names row {places.rows[wrong]} of {name}, which has {rows[wrong]} rows")
    strip_of = np.array([0] + [list(STRIPS.values()).index((i, NOISES.index(noise))) for i in range(1, IMAGES + 1)])
    return np.asarray(starts + strip_of[places.images] * rows + places.rows, np.int64)


def sequence_blocks(patches: PatchSet) -> dict[str, tuple[int, int]]:
    """Where in a converted HPatches set each sequence begins, and how many rows its strips have, by name.

    A sequence is written strip by strip, in the order of `STRIPS`.
    """
    numbers, starts, counts = np.unique(patches.sequences, return_index=True, return_counts=True)
    names = [patches.sequence_names[number] for number in numbers]
    return {name: (int(s), int(n) // len(STRIPS)) for name, s, n in zip(names, starts, counts, strict=True)}


def _read_columns(file: Path, texts: list[str], numbers: list[str]) -> tuple[list[str], dict[str, NDArray[np.int64]]]:
    """Columns of a CSV by name: texts as places in one list of names, numbers as they are."""
    names: dict[str, int] = {}
    found = {name: array("q") for name in [*texts, *numbers]}  # a list of a million pairs stays small
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            rows = csv.reader(lines)
            header = next(rows, [])
            absent = [name for name in found if name not in header]
            if absent:
                raise DoapError(f"{file}: no column {absent[0]}; the columns are {', '.join(header)[:80] or 'none'}")
            text_at = [(header.index(name), found[name]) for name in texts]
            number_at = [(header.index(name), found[name]) for name in numbers]
            for row in rows:
                for place, column in text_at:
                    column.append(names.setdefault(row[place], len(names)))
                for place, column in number_at:
                    column.append(_count(row[place]))
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, IndexError, OverflowError, csv.Error) as error:
        raise DoapError(f"{file}: line {rows.line_num} is damaged ({error})") from error
    if not found[texts[0]]:
        raise DoapError(f"{file}: the list is empty")
    return list(names), {name: np.frombuffer(column, np.int64) for name, column in found.items()}


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number
