"""Arrays in NumPy's formats that others may have written or damaged: no more is allocated than the file holds.

Every error of the content is a ValueError of one line. `np.load` raises many others, returns other objects for other
formats, and allocates what a header claims.
"""

import io
import math
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

MAX_BYTES = 1 << 34  # of the arrays of an archive; those of our own are smaller


@dataclass(frozen=True)
class ArrayHeader:
    """Header of a .npy file.

    Attributes:
        shape: Shape of the array.
        dtype: Its data type, without objects.
        order: Order of its axes.
        offset: Start of the data in the file.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Literal["C", "F"]
    offset: int

    @property
    def nbytes(self) -> int:
        """Number of bytes of the data."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes]) -> ArrayHeader:
    """Read the header at the start of an array file.

    Raises:
        ValueError: If it is not the header of an array of numbers.
    """
    try:
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
        shape, is_fortran, dtype = read(file)
        header = ArrayHeader(shape, dtype, "F" if is_fortran else "C", file.tell())
    except Exception as error:  # damaged headers cause all kinds of exceptions in NumPy's parser
        raise ValueError("not an array file") from error
    if dtype.hasobject or not dtype.itemsize or any(length < 0 for length in shape):
        raise ValueError("not an array of numbers")
    return header


def parse_array(content: bytes) -> NDArray[Any]:
    """Return the array of a .npy file, from its content.

    Raises:
        ValueError: If it is not an array file, or shorter than its header says.
    """
    header = read_header(io.BytesIO(content))
    if header.nbytes > len(content) - header.offset:
        raise ValueError(_too_short(header, len(content)))
    data = content[header.offset : header.offset + header.nbytes]
    return np.ndarray(header.shape, header.dtype, data, order=header.order).copy(order="K")


def map_array(file: Path) -> NDArray[Any]:
    """Memory-map the array of a .npy file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not an array file, or shorter than its header says.
    """
    with file.open("rb") as content:
        header = read_header(content)
    size = file.stat().st_size
    if header.nbytes > size - header.offset:
        raise ValueError(_too_short(header, size))
    return np.memmap(file, header.dtype, "r", header.offset, header.shape, header.order)


def read_archive(
    file: Path, max_bytes: int = MAX_BYTES, names: Collection[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Read the arrays of a .npz file by name.

    Args:
        file: The file.
        max_bytes: Limit of the size of all arrays, since a small compressed file can claim gigabytes.
        names: Arrays to read, those of them that there are; None for all.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not an archive of arrays, or larger than the limit.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > max_bytes:
                raise ValueError(f"unpacks to more than {max_bytes:,} bytes")
            named = {member.filename.removesuffix(".npy"): member for member in members}
            return {name: parse_array(archive.read(named[name])) for name in named if names is None or name in names}
    except (OSError, ValueError):
        raise
    except Exception as error:  # damaged archives cause all kinds of exceptions in zipfile and its decompressors
        raise ValueError("not an archive of arrays, or damaged") from error


def _too_short(header: ArrayHeader, size: int) -> str:
    return f"shorter than its header says: {size - header.offset:,} of {header.nbytes:,} bytes of data"
