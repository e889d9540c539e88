"""Descriptors on disk, keyed by the content they were computed from.

They are stored in the folder `descriptors` of the cache (DOAP_CACHE, or ~/.cache/doap), one .npy file per array, with
the CRC-32 of the file after the values. A file without the correct one is made again. The least recently used are
deleted before the total size exceeds `MAX_BYTES`. Any file may be deleted by hand.
"""

import hashlib
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.files import atomic_file, cache_root
from doap.types import Descriptors

MAX_BYTES = 20 << 30
ROOM = 0.05  # share of MAX_BYTES that is free after arrays were deleted
BLOCK_BYTES = 1 << 20  # read at once
CHECKSUM_BYTES = 4

_Identity = tuple[int, int, int, int]
"""Device, number, size and time of a file."""


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
        self._intact: dict[str, _Identity] = {}  # files whose checksum was correct
        self._room = 0.0  # bytes that can be written before the folder is measured again

    def get(self, key: str) -> Descriptors | None:
        """Return the array stored under a key, read-only; None if there is none or the file is damaged."""
        if self.overwrite and key not in self._made:
            return None
        file = self._file(key)
        try:
            # Opened once: another process may replace the file at any time.
            with file.open("rb", buffering=0) as content:
                if self._intact.get(key) != _identify(content) and not _is_intact(content):
                    return None
                cached = _map(content)
                with suppress(OSError):  # a cache that can only be read
                    os.utime(content.fileno())  # mark as recently used
                self._intact[key] = _identify(content)
        except (OSError, ValueError, EOFError):
            return None
        return cached

    def make(
        self, key: str, shape: tuple[int, ...], dtype: np.dtype[np.generic], chunks: Iterable[Descriptors]
    ) -> Descriptors:
        """Store a new array under a key, atomically.

        Args:
            key: Key from `content_key`.
            shape: Shape of the array, not empty.
            dtype: Type of the array.
            chunks: Consecutive rows of the array; the space for all is allocated before the first is requested.

        Raises:
            DoapError: If the file cannot be written.
        """
        file = self._file(key)
        try:
            with atomic_file(file) as temporary:
                _write(temporary, shape, dtype, chunks)
                with temporary.open("rb", buffering=0) as content:
                    self._intact[key] = _identify(content)
                    cached = _map(content)
        except OSError as error:
            raise DoapError(
                f"{file}: cannot be written ({error.strerror}); free space, or set DOAP_CACHE to another folder"
            ) from error
        self._made.add(key)
        _, _, size, _ = self._intact[key]
        self._room -= size
        if self._room < 0:  # not for every array: a folder has many thousands
            self._evict(file)
            self._room = ROOM * MAX_BYTES
        return cached

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.npy"

    def _evict(self, newest: Path) -> None:
        """Delete the least recently used arrays, never the newest, until there is room for more."""
        entries = sorted(_measure(self.folder))
        total = sum(size for _, size, _ in entries)
        for _, size, file in entries:
            if total <= (1 - ROOM) * MAX_BYTES:
                return
            if file == newest:  # its time is not the last if the clock was set back
                continue
            with suppress(OSError):  # deleted by another process, or owned by another user
                file.unlink()
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


def _write(file: Path, shape: tuple[int, ...], dtype: np.dtype[np.generic], chunks: Iterable[Descriptors]) -> None:
    """Write an array in NumPy's format, then the CRC-32 of all bytes before it."""
    buffer = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, description)
    header = buffer.getvalue()
    size = len(header) + int(np.prod(shape)) * dtype.itemsize
    with file.open("wb") as output:
        if hasattr(os, "posix_fallocate"):  # a full disk is noticed before the descriptors are computed
            os.posix_fallocate(output.fileno(), 0, size + CHECKSUM_BYTES)
        output.write(header)
        checksum = zlib.crc32(header)
        for chunk in chunks:
            content = np.ascontiguousarray(chunk, dtype).data.cast("B")
            output.write(content)
            checksum = zlib.crc32(content, checksum)
        assert output.tell() == size, "the chunks are not the whole array"
        output.write(checksum.to_bytes(CHECKSUM_BYTES, "little"))


def _identify(file: io.FileIO) -> _Identity:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _map(file: io.FileIO) -> Descriptors:
    """Map the array of a file that `_write` wrote into memory."""
    file.seek(0)
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return np.memmap(file, dtype, "r", file.tell(), shape)


def _is_intact(file: io.FileIO) -> bool:
    """Return whether a file ends with the CRC-32 of all bytes before it."""
    checksum = 0
    left = os.fstat(file.fileno()).st_size - CHECKSUM_BYTES
    while left > 0 and (block := file.read(min(BLOCK_BYTES, left))):
        checksum = zlib.crc32(block, checksum)
        left -= len(block)
    return left == 0 and file.read() == checksum.to_bytes(CHECKSUM_BYTES, "little")


def _measure(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Return time, size and path of each array in a folder; none if it cannot be listed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".npy"):
                with suppress(OSError):  # deleted by another process
                    status = entry.stat()
                    yield status.st_mtime, status.st_size, folder / entry.name
