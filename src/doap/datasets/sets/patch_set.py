"""Patch sets: patches in groups and sequences, in memory or memory-mapped from disk.

On disk a patch set is a folder:

    set.json               manifest: counts, sizes, names, and the CRC-32 of each array below
    patches-00000.npy …    uint8 (n, S, S): the patches, in shards of at most 64 MiB
    groups.npy             int64 (N,): patches of one group show the same 3D point
    sequences.npy          int64 (N,): sequence of each patch, for example its scene
    overlaps.npy           int64 (P, 2): pairs of groups that overlap in a photo, never negatives of each other
    frames.npy             float32 (N, 2, 3): optional, the frame in its photo that each patch was cut from
    label-NAME.npy         int64 (N,): optional, for example photo, source, view or difficulty
    checksums.npy          uint32: CRC-32 of every MiB of the shards, in order
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from doap.choices import DEFAULT_EXTENT
from doap.datasets.sets.frame_set import SOURCES
from doap.datasets.sets.groups import GroupedSet, Ids
from doap.datasets.sets.storage import (
    BLOCKS_CHECKED_ON_OPEN,
    damaged_manifest,
    map_shard,
    read_array,
    read_manifest,
    verify_set,
    verify_shards,
)
from doap.datasets.sets.writer import KIND, write_patch_set
from doap.errors import DoapError, inflect


class Pixels(Protocol):
    """Patches that are read on access, (n, S, S) uint8: an array, a memory map, or the shard of a `UnitedSet`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (n, S, S)."""

    @property
    def ndim(self) -> int:
        """Number of axes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of a pixel."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


class PatchSet(GroupedSet):
    """Patches, each with its group and sequence.

    Args:
        shards: uint8 patches (n, S, S), in order: one array in memory, or the memory maps of an opened set.
        groups: (N,) integers; patches with the same group match each other.
        sequences: (N,) integers; all patches of a group have the same one. 0 for all by default.
        labels: Further (N,) integer arrays by name.
        sequence_names: Name of sequence i at index i; empty if the sequences have no names.
        extent: Half the side of a patch in units of its frame's scale.
        overlaps: See `GroupedSet`.
        frames: (N, 2, 3) float32, the frame of each patch in its photo, if known.
        photo_names: Name of photo i at index i; the label "photo" holds these indices.

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
        shards: Sequence[Pixels],
        groups: Sequence[int] | Ids,
        sequences: Sequence[int] | Ids | None = None,
        labels: Mapping[str, Sequence[int] | Ids] | None = None,
        sequence_names: Sequence[str] = (),
        extent: float = DEFAULT_EXTENT,
        overlaps: Ids | None = None,
        frames: NDArray[np.float32] | None = None,
        photo_names: Sequence[str] = (),
    ) -> None:
        self.extent = extent
        self.shards: list[Pixels] = list(shards)
        self.labels: dict[str, Ids] = {k: np.asarray(v, dtype=np.int64) for k, v in (labels or {}).items()}
        self.frames = frames
        self.photo_names = list(photo_names)
        self._check_patches(len(groups))
        super().__init__(groups, sequences, sequence_names, overlaps)

    def _check_patches(self, count: int) -> None:
        sizes = {shard.shape[1:] for shard in self.shards}
        if len(sizes) != 1 or any(s.ndim != 3 or s.shape[1] != s.shape[2] for s in self.shards):
            raise DoapError(f"patches must be (N, S, S) of one size S, not {[s.shape for s in self.shards]}")
        if any(shard.dtype != np.uint8 for shard in self.shards):
            raise DoapError(f"patches must be uint8, not {[str(s.dtype) for s in self.shards]}")
        patches = sum(map(len, self.shards))
        if patches == 0:
            raise DoapError("a patch set needs at least one patch")
        if patches != count:
            raise DoapError(f"groups has shape ({count},), but there are {patches} patches")
        for name, ids in self.labels.items():
            if ids.shape != (count,):
                raise DoapError(f"{name} has shape {ids.shape}, but there are {count} patches")
        limits = {"photo": len(self.photo_names), "source": len(SOURCES)}
        for name, limit in limits.items():
            ids = self.labels.get(name, np.zeros(0, np.int64))
            if limit and len(ids) and not (ids.min() >= 0 and ids.max() < limit):
                raise DoapError(f"label {name} must be 0..{limit - 1}, not {ids.min()}..{ids.max()}")
        if self.frames is not None and self.frames.shape != (count, 2, 3):
            raise DoapError(f"frames has shape {self.frames.shape}, but there are {count} patches")

    def __repr__(self) -> str:
        patches = f"{len(self):,} {inflect(len(self), 'patch', 'patches')}"
        return f"PatchSet({patches} of {self.size}x{self.size}, {self.summary()})"

    @property
    def size(self) -> int:
        """Side of a patch in pixels."""
        return int(self.shards[0].shape[1])

    def take(self, indices: Sequence[int] | Ids) -> NDArray[np.uint8]:
        """Return the patches at `indices`, in that order: (n, S, S) uint8. Only these are read from disk."""
        indices = np.asarray(indices, dtype=np.int64)
        if len(indices) and not (indices.min() >= 0 and indices.max() < len(self)):
            raise IndexError(f"patch indices must be 0..{len(self) - 1}")
        patches = np.empty((len(indices), self.size, self.size), np.uint8)
        ends = np.cumsum([len(shard) for shard in self.shards])
        shard_of = np.searchsorted(ends, indices, side="right")
        for number in np.unique(shard_of):
            in_shard = shard_of == number
            patches[in_shard] = self.shards[number][indices[in_shard] - (ends[number] - len(self.shards[number]))]
        return patches

    def select(self, mask: NDArray[np.bool_]) -> "PatchSet":
        """Return the patches of a mask, (N,) bool, as a set; pixels are not copied, and ids keep their meaning.

        Each run of selected patches becomes a shard, so this is efficient if sequences are contiguous, as they are
        in sets written by this package.
        """
        runs = []
        start = 0
        for shard in self.shards:
            edges = np.flatnonzero(np.diff(mask[start : start + len(shard)], prepend=False, append=False))
            runs += [shard[first:last] for first, last in edges.reshape(-1, 2)]
            start += len(shard)
        groups = self.groups[mask]
        return PatchSet(
            runs,
            groups,
            self.sequences[mask],
            {name: values[mask] for name, values in self.labels.items()},
            self.sequence_names,
            self.extent,
            self.overlaps[np.isin(self.overlaps, groups).all(axis=1)],
            None if self.frames is None else self.frames[mask],
            self.photo_names,
        )

    def save(self, path: Path | str) -> None:
        """Write the set as a folder, atomically. An existing path is refused."""
        with write_patch_set(Path(path), self.size, self.sequence_names, self.extent) as writer:
            writer.photo_names, writer.overlaps = self.photo_names, self.overlaps
            start = 0
            for shard in self.shards:
                end = start + len(shard)
                labels = {name: ids[start:end] for name, ids in self.labels.items()}
                frames = None if self.frames is None else self.frames[start:end]
                writer.append(np.asarray(shard), self.groups[start:end], self.sequences[start:end], frames, **labels)
                start = end

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a saved set, memory-mapped.

        Types, shapes, lengths and checksums are checked: all ids, and the pixels in 128 evenly spaced blocks of
        1 MiB, which is all of a set of up to 128 MiB. `verify` checks every block.

        Raises:
            DoapError: If the set is damaged; names the file and the error.
        """
        folder = Path(path)
        manifest = _read_manifest(folder)
        ids = {name: read_array(folder, name, manifest, np.int64) for name in manifest["arrays"] if _is_id(name)}
        names = manifest["arrays"].keys()
        overlaps = read_array(folder, "overlaps", manifest, np.int64, 2) if "overlaps" in names else None
        frames = read_array(folder, "frames", manifest, np.float32, 3) if "frames" in names else None
        size = manifest["size"]
        shards = [map_shard(folder / shard["file"], (shard["patches"], size, size)) for shard in manifest["shards"]]
        try:
            patches = cls(
                shards,
                ids["groups"],
                ids["sequences"],
                {name.removeprefix("label-"): ids[name] for name in ids if name.startswith("label-")},
                manifest["sequence_names"],
                manifest["extent"],
                overlaps,
                frames,
                manifest.get("photo_names", []),
            )
        except DoapError as error:
            raise DoapError(f"{folder}: {error}") from error
        verify_shards(folder, manifest, BLOCKS_CHECKED_ON_OPEN)
        return patches

    @staticmethod
    def verify(path: Path | str) -> None:
        """Check every byte of a saved set against its checksums; a DoapError names the first damaged file."""
        folder = Path(path)
        verify_set(folder, _read_manifest(folder))


def _is_id(name: str) -> bool:
    return name in ("groups", "sequences") or name.startswith("label-")


def _read_manifest(folder: Path) -> dict[str, Any]:
    manifest = read_manifest(folder, KIND, {"size": int, "extent": float, "sequence_names": list, "shards": list})
    well_formed = (
        {"groups", "sequences", "checksums"} <= set(manifest["arrays"])
        and all(isinstance(s, dict) and {"file", "patches"} <= set(s) for s in manifest["shards"])
        and all(Path(str(s["file"])).name == s["file"] for s in manifest["shards"])
    )
    if not well_formed:
        raise damaged_manifest(folder)
    return manifest
