"""Descriptors on disk, named by the content they were made of, so that nothing is described twice.

They lie in the folder `descriptors` of the cache (DOAP_CACHE, or ~/.cache/doap), one .npy file each; the oldest go when
there are too many. Removing any of them is safe.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.files import atomic_file, cache_root
from doap.types import Descriptors

MOST_BYTES = 20 << 30


class DescriptorCache:
    """Arrays by key, memory-mapped.

    Args:
        folder: where they lie; in the cache by default.
        fresh: make everything anew, and replace what is there.
    """

    def __init__(self, folder: Path | None = None, fresh: bool = False) -> None:
        self.folder = folder or cache_root() / "descriptors"
        self.fresh = fresh

    def get(self, key: str) -> Descriptors | None:
        """What is kept under a key, read-only; None if there is nothing, or nothing whole."""
        file = self._file(key)
        if self.fresh:
            return None
        try:
            found: Descriptors = np.load(file, mmap_mode="r")
        except (OSError, ValueError, EOFError):
            return None
        os.utime(file)  # used just now: the last to go
        return found

    def make(
        self, key: str, shape: tuple[int, ...], dtype: np.dtype[np.generic], fill: Callable[[Descriptors], None]
    ) -> Descriptors:
        """Keep a new array under a key, filled by a function; on disk whole or not at all.

        Args:
            key: from `content_key`.
            shape: of the array, not empty.
            dtype: of the array.
            fill: is given the array, memory-mapped, to write to.
        """
        file = self._file(key)
        with atomic_file(file) as temporary:
            array = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
            fill(array)
            array.flush()
            del array
        self._make_room()
        kept: Descriptors = np.load(file, mmap_mode="r")
        return kept

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.npy"

    def _make_room(self) -> None:
        """Remove the longest unused until all are within bounds; never the newest."""
        found = sorted((about.st_mtime, about.st_size, f) for f in self.folder.glob("*.npy") if (about := _stat(f)))
        total = sum(size for _, size, _ in found)
        for _, size, file in found[:-1]:
            if total <= MOST_BYTES:
                return
            file.unlink(missing_ok=True)
            total -= size


def content_key(*parts: str | bytes | float | NDArray[np.generic]) -> str:
    """A name for a content: SHA-256 of the parts, each with its length, type and shape."""
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
    except OSError:  # another process removed it
        return None
