"""Arrays of HDF5 files that others may have written or damaged: no more is allocated than the file holds."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import h5py

MAX_RATIO = 1032  # of deflate, the compression of HDF5


def check_dataset(name: str, item: "h5py.Dataset", max_bytes: int) -> int:
    """Check the size of a dataset against what the file holds of it, before it is read.

    Args:
        name: Its name in errors.
        item: The dataset, or what a damaged file has in its place.
        max_bytes: Limit of the blocks that it is stored in, each of which is decompressed at once.

    Returns:
        Number of bytes of the array.

    Raises:
        ValueError: If it is not an array of numbers or characters in this file, or larger than the file can hold.
    """
    import h5py

    if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "biufS" or item.shape is None:
        raise ValueError(f"{name} is not an array of numbers")
    claimed: int = math.prod(item.shape) * item.dtype.itemsize
    if item.is_virtual or item.external:
        raise ValueError(f"{name} is stored in other files")
    stored = min(item.id.get_storage_size(), item.file.id.get_filesize())
    if claimed > MAX_RATIO * stored:
        raise ValueError(f"{name} claims {claimed:,} bytes, but {stored:,} are stored")
    if item.chunks and math.prod(item.chunks) * item.dtype.itemsize > max_bytes:
        raise ValueError(f"{name} is stored in blocks of more than {max_bytes:,} bytes")
    return claimed
