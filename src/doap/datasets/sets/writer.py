"""Incremental writing of patch sets, in bounded memory and atomically."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.choices import DEFAULT_EXTENT
from doap.datasets.sets.storage import save_shard, write_set
from doap.errors import DoapError
from doap.files import atomic_folder

KIND = "patch set"
SHARD_BYTES = 64 << 20


@contextmanager
def write_patch_set(
    path: Path, size: int, sequence_names: Sequence[str] = (), extent: float = DEFAULT_EXTENT
) -> Iterator["PatchSetWriter"]:
    """Open a writer that patches are appended to; the set appears at `path` when the `with` block ends.

    A build that fails or is killed leaves nothing at `path`. At most one shard is held in memory.

    Args:
        path: Folder to create; refused if it exists.
        size: Side of the patches in pixels.
        sequence_names: See `PatchSet`; the sequence may grow until the block ends.
        extent: See `PatchSet`.
    """
    with atomic_folder(path) as folder:
        writer = PatchSetWriter(folder, size, sequence_names, extent)
        yield writer
        writer.finish()


class PatchSetWriter:
    """Writer of `write_patch_set`: collects patches into shards in a folder."""

    def __init__(self, folder: Path, size: int, sequence_names: Sequence[str], extent: float) -> None:
        self.folder = folder
        self.size = size
        self.sequence_names = sequence_names  # read by `finish`, so that names may be added with the patches
        self.extent = float(extent)
        self.photo_names: Sequence[str] = ()
        self.overlaps: NDArray[np.int64] = np.zeros((0, 2), np.int64)
        self._per_shard = max(1, SHARD_BYTES // size**2)
        self._pending: list[NDArray[np.uint8]] = []
        self._arrays: dict[str, list[NDArray[Any]]] = {}
        self._shards: list[dict[str, str | int]] = []
        self._checksums: list[int] = []

    def append(
        self,
        patches: NDArray[np.uint8],
        groups: Sequence[int] | NDArray[np.int64],
        sequences: Sequence[int] | NDArray[np.int64],
        frames: NDArray[np.float32] | None = None,
        **labels: Sequence[int] | NDArray[np.int64],
    ) -> None:
        """Add (n, S, S) uint8 patches, with the group, sequence, frame and labels of each."""
        if patches.dtype != np.uint8 or patches.shape[1:] != (self.size, self.size):
            raise DoapError(f"expected uint8 (n, {self.size}, {self.size}), got {patches.dtype} {patches.shape}")
        ids = {"groups": groups, "sequences": sequences, **{f"label-{k}": v for k, v in labels.items()}}
        arrays: dict[str, NDArray[Any]] = {name: np.asarray(values, dtype=np.int64) for name, values in ids.items()}
        if frames is not None:
            arrays["frames"] = np.asarray(frames, np.float32)
        if self._arrays and set(arrays) != set(self._arrays):
            raise DoapError(f"labels differ from earlier ones: {sorted(arrays)}, not {sorted(self._arrays)}")
        for name, values in arrays.items():
            if len(values) != len(patches):
                raise DoapError(f"{name}: {len(values)} values for {len(patches)} patches")
            self._arrays.setdefault(name, []).append(values)
        self._pending.append(patches)
        while sum(map(len, self._pending)) >= self._per_shard:
            self._write_shard()

    def finish(self) -> None:
        """Write the pending patches, the ids and the manifest."""
        if self._pending:
            self._write_shard()
        if not self._shards:
            raise DoapError("a patch set needs at least one patch, but none was appended")
        arrays = {name: np.concatenate(chunks) for name, chunks in self._arrays.items()}
        arrays["checksums"] = np.array(self._checksums, np.uint32)
        arrays["overlaps"] = self.overlaps
        entries = {
            "size": self.size,
            "extent": self.extent,
            "patches": len(arrays["groups"]),
            "sequence_names": list(self.sequence_names),
            "photo_names": list(self.photo_names),
            "shards": self._shards,
        }
        write_set(self.folder, KIND, arrays, entries)

    def _write_shard(self) -> None:
        pending = np.concatenate(self._pending)
        shard, remainder = pending[: self._per_shard], pending[self._per_shard :]
        self._pending = [remainder] if len(remainder) else []
        name = f"patches-{len(self._shards):05d}.npy"
        self._checksums += save_shard(self.folder / name, shard)
        self._shards.append({"file": name, "patches": len(shard)})
