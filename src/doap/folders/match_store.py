"""Matches of many pairs on disk, stored so that a killed run loses nothing.

The HDF5 file has one group per pair, `FIRST/SECOND`; a slash in the name of an image is written %2F, a percent sign
%25. While pairs are matched, finished ones are kept in a hidden folder beside the file, some in each archive, and
packed into the file at the end.
"""

import functools
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from doap.errors import DoapError
from doap.files import atomic_file, write_text
from doap.folders.hdf5 import (
    create_file,
    find_groups,
    open_file,
    read_kept_stamps,
    read_stamps,
    unwritable,
    write_sorted,
)
from doap.folders.pairs import Pair, in_blocks, to_pair
from doap.folders.settings import Identity, check_identity
from doap.parsing.array_files import read_archive
from doap.parsing.hdf5_files import HDF5_SUFFIXES
from doap.parsing.json_files import read_json
from doap.types import Record

if TYPE_CHECKING:
    from doap.features import Matches

CONTENT = ("indices", "matches of many pairs")  # entry of every record, and what a file holds
OPEN_PARTS = 32  # archives that are open at a time while they are packed


class MatchCollection:
    """Matches of many pairs in an HDF5 file, by pair; iterated over, it yields the pairs.

    Attributes:
        path: The file.
        pairs: Names of the two images of each pair, sorted.
    """

    def __init__(self, path: str | Path) -> None:
        """Open a collection.

        Raises:
            DoapError: If there is none, or it is damaged.
        """
        self.path = Path(path)
        _, stamps = read_stamps(self.path, *CONTENT)
        self.pairs = sorted(map(pair_of, stamps))
        self._known = frozenset(self.pairs)
        if not self.pairs:
            raise DoapError(f"{path}: no matches in it; write some with doap match")

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def __contains__(self, pair: object) -> bool:
        return isinstance(pair, list | tuple) and tuple(pair) in self._known

    def __getitem__(self, pair: Pair) -> "Matches":
        from doap.features import Matches

        return Matches.load(self.path, pair=group_name(to_pair(pair)))

    def verified_counts(self) -> dict[Pair, int]:
        """Return the number of verified matches of every pair, without reading the matches."""
        with open_file(self.path) as file:
            return {pair_of(name): int(group.attrs["verified"]) for name, group in find_groups(file, "indices")}


class MatchStore:
    """Output of `match_pairs`: the file, and the hidden folder of pairs that are not yet in it."""

    def __init__(self, path: Path) -> None:
        """Choose the output.

        Raises:
            DoapError: If it is not an HDF5 file by its suffix.
        """
        if path.suffix not in HDF5_SUFFIXES:
            raise DoapError(f"{path}: matches of many pairs are stored in a .h5 file")
        self.target = path
        self.folder = path.with_name(f".{path.name}.parts")
        self.identity: Identity = {}
        self.stored: dict[Pair, str] = {}  # stamps of the pairs in the file
        self.parts: dict[Pair, tuple[Path, int, str]] = {}  # archive, number in it and stamp of the other pairs
        self.next_part = 0

    def open(self, identity: Identity, force: bool) -> None:
        """Find out which pairs are done.

        Raises:
            DoapError: If the file or its parts hold matches of other settings and `force` is not set.
        """
        self.identity = identity
        if self.target.is_dir():
            raise DoapError(f"{self.target}: is a folder, not a file of matches; choose another output")
        stamps = read_kept_stamps(self.target, *CONTENT, identity, force) or {}
        self.stored = {pair_of(name): stamp for name, stamp in stamps.items()}
        settings = self.folder / "settings.json"
        if not self._holds_parts(settings, force):
            shutil.rmtree(self.folder, ignore_errors=True)
            write_text(settings, json.dumps(identity, sort_keys=True))
        for path in sorted(self.folder.glob("[0-9]*.npz")):
            with suppress(DoapError, OSError):  # its pairs are matched again
                _read_part(path)
                self._add(path)

    def _holds_parts(self, settings: Path, force: bool) -> bool:
        """Return whether there are parts of these settings; without `force`, those of others are an error."""
        if not settings.exists():
            return False
        try:
            old = dict(read_json(settings))
        except (OSError, ValueError, TypeError):  # damaged
            return False
        if not force and any(self.folder.glob("[0-9]*.npz")):  # a run that failed may have left its settings alone
            check_identity(self.target, old, self.identity, "matches", is_complete=False)
        return old == self.identity

    def stamp(self, pair: Pair) -> str | None:
        """Return the stamp of a pair; None if it is not matched."""
        return self.parts[pair][2] if pair in self.parts else self.stored.get(pair)

    def save(self, pairs: Sequence[Pair], records: Sequence[Record]) -> None:
        """Store the matches of some pairs with their stamps beside the file, atomically."""
        entries: dict[str, Any] = {
            f"{number}/{name}": value for number, one in enumerate(records) for name, value in one.items()
        }
        path = self.folder / f"{self.next_part:08}.npz"
        stamps = [one["stamp"] for one in records]
        try:
            with atomic_file(path) as temporary, temporary.open("wb") as file:
                np.savez(file, pairs=np.array(pairs), stamps=np.array(stamps), **entries)
        except OSError as error:
            raise unwritable(path, error) from error
        self._add(path)

    def finish(self) -> None:
        """Pack the pairs of the old file and the parts into a new file, and remove the parts."""
        from doap.features.storage import load_record

        if self.parts or not self.target.exists():
            read_part = functools.lru_cache(OPEN_PARTS)(_read_part)
            sources = {path for path, _, _ in self.parts.values()} | ({self.target} if self.stored else set())
            with create_file(self.target, sum(path.stat().st_size for path in sources)) as file:
                file.attrs["settings"] = json.dumps(self.identity, sort_keys=True)
                for pair in in_blocks(sorted({*self.stored, *self.parts})):
                    if pair in self.parts:
                        path, number, _ = self.parts[pair]
                        record = read_part(path)[number]
                    else:
                        record = load_record(self.target, group_name(pair))
                    write_sorted(file.create_group(group_name(pair)), record)
        shutil.rmtree(self.folder)

    def _add(self, path: Path) -> None:
        """Register a part; a damaged one is ignored, its pairs are matched again."""
        self.next_part = int(path.stem) + 1
        try:
            arrays = read_archive(path, names=("pairs", "stamps"))
            pairs, stamps = arrays["pairs"].tolist(), arrays["stamps"].tolist()
            rows = [(str(first), str(second), str(stamp)) for (first, second), stamp in zip(pairs, stamps, strict=True)]
        except (OSError, ValueError, KeyError, TypeError):
            return
        for number, (first, second, stamp) in enumerate(rows):
            self.parts[first, second] = path, number, stamp


def group_name(pair: Pair) -> str:
    """Return the name of a pair's group in the file."""
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for name in pair)


def pair_of(group: str) -> Pair:
    """Return the pair of a group, the inverse of `group_name`."""
    first, second = (name.replace("%2F", "/").replace("%25", "%") for name in group.split("/"))
    return first, second


def _read_part(path: Path) -> list[Record]:
    """Read the matches of a part.

    Raises:
        DoapError: If it is damaged; it is then removed, since it would be found damaged by every run.
    """
    records: dict[int, Record] = {}
    try:
        for entry, value in read_archive(path).items():
            number, _, name = entry.partition("/")
            if name:
                records.setdefault(int(number), {})[name] = value if value.ndim else value.item()
    except ValueError as error:
        path.unlink()
        raise DoapError(f"{path}: damaged and removed; run the command again, its pairs are then matched") from error
    return [records[number] for number in sorted(records)]
