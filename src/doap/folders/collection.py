"""Features of many images, read by name from what `describe_folder` wrote."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from doap.errors import DoapError
from doap.folders.feature_store import FeatureFolder
from doap.folders.hdf5 import find_groups, open_file
from doap.parsing.hdf5_files import HDF5_SUFFIXES

if TYPE_CHECKING:
    from doap.features import Features

CACHED_IMAGES = 64  # images whose features a process keeps in memory


class FeatureCollection:
    """Features of many images, in an HDF5 file or in a folder of archives, by name; iterated over, it yields the names.

    Attributes:
        path: The file or folder.
        stamps: Names of the images, sorted, and for each a text that changes when its features change.
    """

    def __init__(self, path: str | Path) -> None:
        """Open a collection.

        Raises:
            DoapError: If there is none, or it is damaged.
        """
        self.path = Path(path)
        self.stamps = _file_stamps(self.path) if self.is_file else _folder_stamps(self.path)
        if not self.stamps:
            raise DoapError(f"{path}: no features in it; write some with doap describe")

    @property
    def is_file(self) -> bool:
        """Whether it is an HDF5 file."""
        return self.path.suffix in HDF5_SUFFIXES

    @property
    def names(self) -> list[str]:
        """Names of the images, sorted."""
        return list(self.stamps)

    def __len__(self) -> int:
        return len(self.stamps)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stamps)

    def __contains__(self, name: object) -> bool:
        return name in self.stamps

    def __getitem__(self, name: str) -> "Features":
        if name not in self.stamps:
            raise DoapError(f"{self.path}: no features of {name}")
        return read_features(self.path, name)


def read_features(path: Path, name: str) -> "Features":
    """Read the features of an image of a collection.

    Raises:
        DoapError: If they are missing or damaged.
    """
    from doap.features import Features

    if path.suffix in HDF5_SUFFIXES:
        return Features.load(path, image=name)
    return Features.load(FeatureFolder(path).path(name))


@functools.lru_cache(CACHED_IMAGES)
def cached_features(path: Path, name: str, stamp: str) -> "Features":  # noqa: ARG001 - tells versions apart
    """Read the features of an image, and keep those of the images read last in memory."""
    return read_features(path, name)


def _file_stamps(path: Path) -> dict[str, str]:
    with open_file(path) as file:
        return {name: str(group.attrs.get("stamp", "")) for name, group in find_groups(file, "frames")}


def _folder_stamps(path: Path) -> dict[str, str]:
    if not path.is_dir():
        raise DoapError(f"{path}: no such folder, nor an HDF5 file (.h5) of features; write one with doap describe")
    folder = FeatureFolder(path)
    return {name: folder.stamp(name) or _archive_stamp(folder.path(name)) for name in sorted(folder.names())}


def _archive_stamp(path: Path) -> str:
    """Return the size and time of an archive that has no stamp because `Features.save` wrote it."""
    status = path.stat()
    return f"{status.st_size}-{status.st_mtime_ns}"
