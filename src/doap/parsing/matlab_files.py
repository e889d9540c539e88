"""Numeric arrays of MATLAB files, read in bounded memory.

Files of version 7.3 are HDF5 and read with h5py. Those of version 5 to 7.2 are a header of 128 bytes and one element
per variable, usually compressed. An element is a tag (type and number of bytes) and its data; those of a variable are
elements again: flags, dimensions, name, values. They are parsed here, since SciPy allocates what a tag claims. Other
variables, such as text, structures and complex numbers, are skipped.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from doap.parsing.hdf5_files import check_dataset

HEADER_BYTES = 128
MATRIX, COMPRESSED = 14, 15  # types of elements
DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMERIC_CLASSES = range(6, 16)  # double, single, int8 … uint64
COMPLEX_FLAG = 0x0800
MAX_NAME_BYTES = 4096
BLOCK_BYTES = 1 << 16  # given to the decompressor at a time


def read_arrays(file: Path, max_bytes: int) -> dict[str, NDArray[Any]]:
    """Read the numeric arrays of a MATLAB file of version 5 to 7.3 by name, with MATLAB's order of axes.

    Args:
        file: The file.
        max_bytes: Limit of the size of all arrays, since a small file can claim gigabytes.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not a MATLAB file, damaged, or larger than the limit.
    """
    return {name: values for name, _, values in _variables(file, max_bytes, with_values=True)}


def read_shapes(file: Path, max_bytes: int) -> dict[str, tuple[int, ...]]:
    """Read the shapes of the arrays that `read_arrays` returns; the values are not read. The errors are the same."""
    return {name: shape for name, shape, _ in _variables(file, max_bytes, with_values=False)}


_Variable = tuple[str, tuple[int, ...], NDArray[Any]]


def _variables(file: Path, max_bytes: int, with_values: bool) -> Iterator[_Variable]:
    import h5py

    with file.open("rb") as source:
        header = source.read(HEADER_BYTES)
    try:
        if h5py.is_hdf5(file):
            yield from _read_hdf5(file, max_bytes, with_values)
        else:
            yield from _read_elements(file, header, max_bytes, with_values)
    except Exception as error:  # damaged files cause all kinds of exceptions in h5py
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0]) from error


def _read_hdf5(file: Path, max_bytes: int, with_values: bool) -> Iterator[_Variable]:
    import h5py

    total = 0
    with h5py.File(file, "r") as store:
        for name in store:
            if not isinstance(store.get(name, getlink=True), h5py.HardLink):  # others may lead to other files
                continue
            item = store[name]
            if isinstance(item, h5py.Dataset) and item.dtype.kind in "biuf":
                total += check_dataset(name, item, max_bytes)
                _check_total(total, max_bytes)
                shape = tuple(reversed(item.shape))
                yield name, shape, item[()].T if with_values else np.zeros(0)


def _read_elements(file: Path, header: bytes, max_bytes: int, with_values: bool) -> Iterator[_Variable]:
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(header[124:])
    if order is None:
        raise ValueError("no header of version 5 to 7.3")
    size, total = file.stat().st_size, 0
    with file.open("rb") as source:
        source.seek(HEADER_BYTES)
        while tag := source.read(8):
            kind, length = struct.unpack(f"{order}II", tag)
            start = source.tell()
            if length > size - start:
                raise ValueError(f"truncated: {size - start:,} of {length:,} bytes after byte {start:,}")
            if kind in (MATRIX, COMPRESSED):
                stream = _Inflated(source.read(length)) if kind == COMPRESSED else _Plain(tag + source.read(length))
                matrix = _Matrix.read(stream, order)
                if matrix is not None:
                    total += matrix.nbytes
                    _check_total(total, max_bytes)
                    yield matrix.name, matrix.shape, matrix.values(stream) if with_values else np.zeros(0)
            source.seek(start + length)


@dataclass(frozen=True)
class _Matrix:
    """A real numeric variable, as its header describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    small: bytes | bytearray | None  # up to four bytes of values, which are stored in their tag

    @classmethod
    def read(cls, stream: "_Plain", order: str) -> Self | None:
        """Read the header of a variable from the start of its element; None if it is of another kind."""
        kind, length = struct.unpack(f"{order}II", stream.read(8))
        if kind != MATRIX:
            raise ValueError(f"an element of type {kind} instead of a variable")
        flags = struct.unpack(f"{order}I", _subelement(stream, order, 8)[:4])[0]
        if flags & 0xFF not in NUMERIC_CLASSES or flags & COMPLEX_FLAG:
            return None
        dimensions = _subelement(stream, order, 4 * 32)
        shape = struct.unpack(f"{order}{len(dimensions) // 4}i", dimensions[: len(dimensions) // 4 * 4])
        name = _subelement(stream, order, MAX_NAME_BYTES).decode("utf-8", "replace")
        data_kind, nbytes, small = _tag(stream, order)
        if data_kind not in DTYPES:
            raise ValueError(f"{name} has values of the unknown type {data_kind}")
        dtype = np.dtype(DTYPES[data_kind]).newbyteorder("<" if order == "<" else ">")
        end = stream.position + (nbytes if small is None else 0)
        if min(shape, default=-1) < 0 or math.prod(shape) * dtype.itemsize != nbytes or end > length + 8:
            raise ValueError(f"{name} of {shape} has {nbytes:,} bytes")
        return cls(name, shape, dtype, nbytes, small)

    def values(self, stream: "_Plain") -> NDArray[Any]:
        """Read the values, which follow the header, and the rest of the element, which ends with a checksum."""
        content = stream.read(self.nbytes) if self.small is None else self.small
        stream.finish()
        return np.frombuffer(content, self.dtype).reshape(self.shape, order="F")


def _subelement(stream: "_Plain", order: str, max_bytes: int) -> bytes | bytearray:
    """Read an element within that of a variable."""
    _, length, small = _tag(stream, order)
    if small is not None:
        return small
    if length > max_bytes:
        raise ValueError(f"{length:,} bytes in the header of a variable")
    return stream.read(length + -length % 8)[:length]


def _tag(stream: "_Plain", order: str) -> tuple[int, int, bytes | bytearray | None]:
    """Read a tag: type, number of bytes, and the data if they are stored in it."""
    content = stream.read(8)
    kind, length = struct.unpack(f"{order}II", content)
    if kind >> 16:
        return kind & 0xFFFF, kind >> 16, content[4 : 4 + (kind >> 16)]
    return kind, length, None


class _Plain:
    """Content of an element."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def read(self, length: int) -> bytes | bytearray:
        """Return the next bytes; a ValueError if there are fewer."""
        content = self._next(length)
        if len(content) != length:
            raise ValueError(f"ends after {len(content):,} of {length:,} bytes")
        self.position += length
        return content

    def finish(self) -> None:
        """Check the end of the element."""

    def _next(self, length: int) -> bytes | bytearray:
        return self._content[self.position : self.position + length]


class _Inflated(_Plain):
    """Content of a compressed element; no more is decompressed than is read."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._stream = zlib.decompressobj()
        self._used = 0  # bytes that were given to the stream

    def finish(self) -> None:
        """Decompress the padding, and compare the checksum."""
        if len(self._next(9)) > 8 or not self._stream.eof:
            raise ValueError("compressed data of another length than their tag says")

    def _next(self, length: int) -> bytearray:
        content = bytearray()
        while len(content) < length and not self._stream.eof:
            block = self._stream.unconsumed_tail or self._content[self._used : self._used + BLOCK_BYTES]
            self._used += 0 if self._stream.unconsumed_tail else len(block)
            more = self._stream.decompress(block, length - len(content))
            if not (block or more):
                break
            content += more
        return content


def _check_total(total: int, max_bytes: int) -> None:
    if total > max_bytes:
        raise ValueError(f"claims {total:,} bytes of numbers, over the limit of {max_bytes:,}")
