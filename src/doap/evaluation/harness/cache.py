"""Descriptors on disk, keyed by the content they were computed from.

They are stored in the folder `descriptors` of the cache (DOAP_CACHE, or ~/.cache/doap), one .npy file per array. The
least recently used are deleted when the total size exceeds `MAX_BYTES`. Any file may be deleted by hand.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.files import atomic_file, cache_root
from doap.types import Descriptors

MAX_BYTES = 20 << 30


class DescriptorCache:
    """Memory-mapped arrays by key.

    Args:
        folder: Folder of the arrays; by default in the user's cache.
        overwrite: Ignore arrays of earlier runs and replace them. Arrays made by this object are used.
    """

    def __init__(self, folder: Path | None = None, overwrite: bool = False) -> None:
        self.folder = folder or cache_root() / "descriptors"
        self.overwrite = overwrite
        self._made: set[str] = set()

    def get(self, key: str) -> Descriptors | None:
        """Return the array stored under a key, read-only; None if there is none or the file is damaged."""
        if self.overwrite and key not in self._made:
            return None
        file = self._file(key)
        try:
            cached: Descriptors = np.load(file, mmap_mode="r")
        except (OSError, ValueError, EOFError):
            return None
        os.utime(file)  # mark as recently used
        return cached

    def make(
        self, key: str, shape: tuple[int, ...], dtype: np.dtype[np.generic], fill: Callable[[Descriptors], None]
    ) -> Descriptors:
        """Store a new array under a key, atomically.

        Args:
            key: Key from `content_key`.
            shape: Shape of the array, not empty.
            dtype: Type of the array.
            fill: Function that writes the values into the memory-mapped array.
        """
        file = self._file(key)
        with atomic_file(file) as temporary:
            array = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
            fill(array)
            array.flush()
            del array
        self._made.add(key)
        self._evict()
        cached: Descriptors = np.load(file, mmap_mode="r")
        return cached

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.npy"

    def _evict(self) -> None:
        """Delete the least recently used arrays until the total is within bounds; never the newest."""
        entries = sorted((stat.st_mtime, stat.st_size, f) for f in self.folder.glob("*.npy") if (stat := _stat(f)))
        total = sum(size for _, size, _ in entries)
        for _, size, file in entries[:-1]:
            if total <= MAX_BYTES:
                return
            file.unlink(missing_ok=True)
            total -= size


def content_key(*parts: str | bytes | float | NDArray[np.generic]) -> str:
    """Return a key of some content: SHA-256 of the parts, each with its length, or its type and shape."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"{part.dtype}{part.shape}".encode())
            state.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        else:
            content = part if isinstance(part, bytes) else repr(part).encode()
            state.update(f"{len(content)}:".encode())
            state.update(content)
    return state.hexdigest()


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:  # deleted by another process
        return None
