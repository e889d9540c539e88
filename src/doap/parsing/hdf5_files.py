"""HDF5 files that others may have written or damaged.

No link is followed that can lead to another file or in a circle, and no more is allocated than the file holds.
"""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import h5py

HDF5_SUFFIXES = (".h5", ".hdf5")
MAX_RATIO = 1032  # of deflate, the compression of HDF5


def get_child(group: "h5py.Group", path: str) -> Any:
    """Return the group or dataset of a path in a group; None if there is none.

    Raises:
        ValueError: If a part of the path is a soft or external link.
    """
    import h5py

    item: Any = group
    for name in filter(None, path.split("/")):
        if not isinstance(item, h5py.Group) or (link := item.get(name, getlink=True)) is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"{path} is a link")
        item = item[name]
    return item


def children(group: "h5py.Group") -> dict[str, Any]:
    """Return the groups and datasets in a group by name, sorted.

    Raises:
        ValueError: If one of them is a soft or external link.
    """
    return {name: get_child(group, name) for name in sorted(group)}


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

    if not isinstance(item, h5py.Dataset):
        raise ValueError(f"{name} is not an array of numbers")
    if item.is_virtual or item.external:  # first: to know the shape of a virtual one can mean to open the others
        raise ValueError(f"{name} is stored in other files")
    if item.dtype.kind not in "biufS" or item.shape is None:
        raise ValueError(f"{name} is not an array of numbers")
    claimed: int = math.prod(item.shape) * item.dtype.itemsize
    stored = min(item.id.get_storage_size(), item.file.id.get_filesize())
    if claimed > MAX_RATIO * stored:
        raise ValueError(f"{name} claims {claimed:,} bytes, but {stored:,} are stored")
    if item.chunks and math.prod(item.chunks) * item.dtype.itemsize > max_bytes:
        raise ValueError(f"{name} is stored in blocks of more than {max_bytes:,} bytes")
    return claimed
