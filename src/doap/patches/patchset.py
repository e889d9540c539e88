"""The one container: patches in groups in sequences, in memory or memory-mapped from disk.

On disk a patch set is a folder:

    set.json               what is here: counts, sizes, names, and the CRC-32 of each of the arrays below
    patches-00000.npy …    uint8 (n, S, S), shards of at most 64 MiB
    groups.npy             int64 (N,): patches of one group show the same 3D point
    sequences.npy          int64 (N,): groups of one scene
    label-NAME.npy         int64 (N,): optional, for example view or difficulty
    checksums.npy          uint32: the CRC-32 of every MiB of the shards, in order
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.patches.writer import BLOCK_BYTES, DEFAULT_EXTENT, FORMAT, write_patch_set

Ids = NDArray[np.int64]

# Opening checks this many blocks, evenly spread: all of a set of up to 128 MiB, a sample of a larger one.
BLOCKS_CHECKED_ON_OPEN = 128


class PatchSet:
    """Patches with the group and the sequence of each.

    Args:
        shards: uint8 arrays (n, S, S), in order; one array in memory, memory maps when opened.
        groups: (N,) integers; patches with the same group match each other.
        sequences: (N,) integers; all patches of a group share one. 0 for all by default.
        labels: further (N,) integers by name.
        sequence_names: what the sequence ids mean: name of sequence i at place i, if they have names.
        extent: half the side of a patch in units of its frame's scale: how the patches were cut.

    Example:
        >>> import numpy as np, tempfile, pathlib
        >>> patches = np.zeros((6, 32, 32), np.uint8)
        >>> made = PatchSet([patches], groups=[0, 0, 1, 1, 2, 2])
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "set"
        >>> made.save(folder)
        >>> PatchSet.open(folder)
        PatchSet(6 patches of 32x32, 3 groups, 1 sequence)
    """

    def __init__(
        self,
        shards: Sequence[NDArray[np.uint8]],
        groups: Sequence[int] | Ids,
        sequences: Sequence[int] | Ids | None = None,
        labels: Mapping[str, Sequence[int] | Ids] | None = None,
        sequence_names: Sequence[str] = (),
        extent: float = DEFAULT_EXTENT,
    ) -> None:
        self.extent = extent
        self.shards = list(shards)
        self.groups: Ids = np.asarray(groups, dtype=np.int64)
        self.sequences: Ids = np.asarray(np.zeros(len(self.groups)) if sequences is None else sequences, dtype=np.int64)
        self.labels: dict[str, Ids] = {k: np.asarray(v, dtype=np.int64) for k, v in (labels or {}).items()}
        self.sequence_names = list(sequence_names)
        self._check()

    def _check(self) -> None:
        sizes = {shard.shape[1:] for shard in self.shards}
        if len(sizes) != 1 or any(s.ndim != 3 or s.shape[1] != s.shape[2] for s in self.shards):
            raise DoapError(f"patches must be (N, S, S) of one size S, not {[s.shape for s in self.shards]}")
        if any(shard.dtype != np.uint8 for shard in self.shards):
            raise DoapError(f"patches must be uint8, not {[str(s.dtype) for s in self.shards]}")
        count = sum(map(len, self.shards))
        if count == 0:
            raise DoapError("a patch set needs at least one patch")
        for name, ids in {"groups": self.groups, "sequences": self.sequences, **self.labels}.items():
            if ids.shape != (count,):
                raise DoapError(f"{name} has shape {ids.shape}, but there are {count} patches")
        first = self.members_start[:-1]
        shared = self.sequences[self.members] == np.repeat(
            self.sequences[self.members[first]], np.diff(self.members_start)
        )
        if not shared.all():
            group = self.groups[self.members[int(np.argmin(shared))]]
            raise DoapError(f"group {group} lies in more than one sequence")
        named = len(self.sequence_names)
        if named and not (self.sequences.min() >= 0 and self.sequences.max() < named):
            raise DoapError(f"sequence ids must be 0..{named - 1} to be named, not {self.sequences.max()}")

    def __len__(self) -> int:
        return len(self.groups)

    def __repr__(self) -> str:
        groups, sequences = len(self.members_start) - 1, len(np.unique(self.sequences))
        return (
            f"PatchSet({len(self):,} patches of {self.size}x{self.size}, {groups:,} "
            f"group{'s' * (groups != 1)}, {sequences:,} sequence{'s' * (sequences != 1)})"
        )

    @property
    def size(self) -> int:
        """Side of a patch in pixels."""
        return int(self.shards[0].shape[1])

    @cached_property
    def members(self) -> Ids:
        """Patch indices sorted by group, stable: group g is `members[members_start[g]:members_start[g+1]]`."""
        return np.argsort(self.groups, kind="stable")

    @cached_property
    def members_start(self) -> Ids:
        """Where each group starts in `members`, and the end: one more than there are groups."""
        ordered = self.groups[self.members]
        changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        return np.concatenate(([0], changes, [len(ordered)])) if len(ordered) else np.zeros(1, np.int64)

    def take(self, indices: Sequence[int] | Ids) -> NDArray[np.uint8]:
        """The patches at `indices`, in that order: (n, S, S) uint8. Only they are read."""
        wanted = np.asarray(indices, dtype=np.int64)
        if len(wanted) and not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise IndexError(f"patch indices must be 0..{len(self) - 1}")
        taken = np.empty((len(wanted), self.size, self.size), np.uint8)
        ends = np.cumsum([len(shard) for shard in self.shards])
        home = np.searchsorted(ends, wanted, side="right")
        for number in np.unique(home):
            here = home == number
            taken[here] = self.shards[number][wanted[here] - (ends[number] - len(self.shards[number]))]
        return taken

    def save(self, path: Path | str) -> None:
        """Write the set as a folder, atomically; an existing path is refused."""
        with write_patch_set(Path(path), self.size, self.sequence_names, self.extent) as writer:
            start = 0
            for shard in self.shards:
                end = start + len(shard)
                labels = {name: ids[start:end] for name, ids in self.labels.items()}
                writer.append(shard, self.groups[start:end], self.sequences[start:end], **labels)
                start = end

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a saved set, memory-mapped.

        Types, shapes, lengths and checksums are checked: the ids in full, the pixels in 128 blocks of
        1 MiB, evenly spread. That is all of a set of up to 128 MiB; `verify` checks every block.

        Raises:
            DoapError: one line that names the file and the fault.
        """
        folder = Path(path)
        about = _read_manifest(folder)
        ids = {name: _read_ids(folder, name, about) for name in about["arrays"]}
        shards = [_map_shard(folder / shard["file"], shard["patches"], about["size"]) for shard in about["shards"]]
        try:
            found = cls(
                shards,
                ids["groups"],
                ids["sequences"],
                {name.removeprefix("label-"): ids[name] for name in ids if name.startswith("label-")},
                about["sequence_names"],
                about["extent"],
            )
        except DoapError as fault:
            raise DoapError(f"{folder}: {fault}") from fault
        _verify_blocks(folder, about, ids["checksums"], BLOCKS_CHECKED_ON_OPEN)
        return found

    @staticmethod
    def verify(path: Path | str) -> None:
        """Check every byte of a saved set against its checksums; a DoapError names the first bad file."""
        folder = Path(path)
        about = _read_manifest(folder)
        _verify_blocks(folder, about, _read_ids(folder, "checksums", about), None)


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / "set.json"
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except OSError as fault:
        raise DoapError(f"{folder}: not a patch set ({file.name}: {fault.strerror})") from fault
    except ValueError as fault:
        raise DoapError(f"{file}: not valid JSON; the set is damaged, build it again") from fault
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise DoapError(f"{file}: format is not {FORMAT!r}")
    well_formed = (
        isinstance(about.get("size"), int)
        and isinstance(about.get("extent"), float)
        and isinstance(about.get("sequence_names"), list)
        and isinstance(about.get("arrays"), dict)
        and {"groups", "sequences", "checksums"} <= set(about["arrays"])
        and isinstance(about.get("shards"), list)
        and all(isinstance(s, dict) and {"file", "patches"} <= set(s) for s in about["shards"])
        and all(Path(name).name == name for name in [*about["arrays"], *(str(s["file"]) for s in about["shards"])])
    )
    if not well_formed:
        raise DoapError(f"{file}: an entry is missing or of the wrong type; the set is damaged, build it again")
    return about


def _read_ids(folder: Path, name: str, about: dict[str, Any]) -> NDArray[Any]:
    file = folder / f"{name}.npy"
    try:
        content = file.read_bytes()
        array: NDArray[Any] = np.load(BytesIO(content), allow_pickle=False)
    except OSError as fault:
        raise DoapError(f"{file}: cannot be read ({fault.strerror or 'not an array file'})") from fault
    except (ValueError, EOFError) as fault:
        raise DoapError(f"{file}: not an array file; the set is damaged, build it again") from fault
    if zlib.crc32(content) != about["arrays"][name]:
        raise DoapError(f"{file}: checksum differs from the one in set.json; the set is damaged, build it again")
    wanted = np.uint32 if name == "checksums" else np.int64
    if array.dtype != wanted or array.ndim != 1:
        raise DoapError(f"{file}: holds {array.dtype} {array.shape}, not {np.dtype(wanted)} (N,)")
    return array


def _map_shard(file: Path, count: int, size: int) -> NDArray[np.uint8]:
    try:
        shard: NDArray[np.uint8] = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError as fault:
        raise DoapError(f"{file}: cannot be read ({fault.strerror or 'not an array file'})") from fault
    except (ValueError, EOFError) as fault:
        raise DoapError(f"{file}: shorter than its header says, or no array file; build the set again") from fault
    if shard.dtype != np.uint8 or shard.shape != (count, size, size):
        raise DoapError(f"{file}: holds {shard.dtype} {shard.shape}, but set.json says uint8 {(count, size, size)}")
    return shard


def _verify_blocks(folder: Path, about: dict[str, Any], checksums: NDArray[np.uint32], at_most: int | None) -> None:
    """Compare blocks with their checksums, reading the files rather than the maps: that costs no memory."""
    blocks = list(_blocks(folder, about))
    if len(blocks) != len(checksums):
        raise DoapError(f"{folder / 'checksums.npy'}: {len(checksums)} checksums for {len(blocks)} blocks")
    wanted = len(blocks) if at_most is None else min(at_most, len(blocks))
    for number in np.linspace(0, len(blocks) - 1, wanted).round().astype(int):
        path, start = blocks[number]
        with path.open("rb") as file:
            file.seek(start)
            content = file.read(BLOCK_BYTES)
        if zlib.crc32(content) != checksums[number]:
            raise DoapError(f"{path}: checksum differs near byte {start:,}; the set is damaged, build it again")


def _blocks(folder: Path, about: dict[str, Any]) -> Iterator[tuple[Path, int]]:
    for shard in about["shards"]:
        path = folder / shard["file"]
        for start in range(0, path.stat().st_size, BLOCK_BYTES):
            yield path, start
