"""Features of many images while they are made, stored so that a killed run loses nothing.

A folder holds one archive NAME.npz per image, and `collection.json` with the settings. An HDF5 file is made from such a
folder: finished images are kept in a hidden folder beside it, and packed into the file at the end.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from doap.errors import DoapError
from doap.files import is_temporary_file, make_folder, remove_temporary_files, write_text
from doap.folders.hdf5 import create_file, read_kept_stamps, unwritable, write_sorted
from doap.folders.settings import Identity, check_identity
from doap.parsing.array_files import read_archive
from doap.parsing.hdf5_files import HDF5_SUFFIXES
from doap.parsing.json_files import read_json
from doap.types import Record

SETTINGS_FILE = "collection.json"
FORMAT = 1


class LongNameError(DoapError):
    """The name of an image is too long for the file system of the output."""


class FeatureStore(Protocol):
    """Output of `describe_folder`."""

    def open(self, identity: Identity, force: bool) -> None:
        """Prepare the output for features of these settings.

        Raises:
            DoapError: If it holds others and `force` is not set, or cannot be written.
        """

    def stamp(self, name: str) -> str | None:
        """Return the stamp of the features of an image; None if there are none or they are damaged."""

    def save(self, name: str, record: Record) -> None:
        """Store the features of an image.

        Raises:
            LongNameError: If its name is too long.
            DoapError: If the output cannot be written.
        """

    def remove(self, name: str) -> None:
        """Remove the features of an image, if there are any."""

    def finish(self) -> list[str]:
        """Complete the output and return the names of all images in it."""


def feature_store(output: Path) -> FeatureStore:
    """Return the store of an output: an HDF5 file by its suffix, otherwise a folder.

    Raises:
        DoapError: For a path with the suffix of another kind of file.
    """
    if output.suffix in HDF5_SUFFIXES:
        return FeatureFile(output)
    if output.suffix.lower() in (*HDF5_SUFFIXES, ".npz", ".npy", ".json", ".zip", ".pt", ".safetensors"):
        raise DoapError(f"{output}: features of a folder are stored in a .h5 file or in a folder")
    return FeatureFolder(output)


class FeatureFolder:
    """Folder of features, one archive per image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, identity: Identity, force: bool) -> None:
        """Write the settings, unless the folder holds features of others; `force` removes these."""
        if self.folder.exists() and not self.folder.is_dir():
            raise DoapError(f"{self.folder}: is a file, not a folder of features; choose another output")
        old = self._forced_identity(identity) if force else self.read_identity()
        if not force and not self.is_empty():
            if old is None:
                raise DoapError(
                    f"{self.folder}: holds .npz files of unknown settings; choose another output, or --force"
                )
            check_identity(self.folder, old, identity, "features")
        if old != identity:
            content = {"format": FORMAT, "settings": identity}
            write_text(make_folder(self.folder) / SETTINGS_FILE, json.dumps(content, indent=1) + "\n")

    def _forced_identity(self, identity: Identity) -> Identity | None:
        """Return the settings of the features if they are these; otherwise remove all features, and return None.

        Archives without a stamp were not written by `save`, and stay.
        """
        with suppress(DoapError):  # damaged settings
            if self.read_identity() == identity:
                return identity
        for name in list(self.names()):
            if self.stamp(name) is not None:
                self.remove(name)
        return None

    def read_identity(self) -> Identity | None:
        """Return the settings of the features in the folder; None if there are none.

        Raises:
            DoapError: If the file of the settings is damaged.
        """
        path = self.folder / SETTINGS_FILE
        try:
            return dict(read_json(path)["settings"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DoapError(f"{path}: damaged; --force describes all images again") from error

    def path(self, name: str) -> Path:
        """Return the path of an image's archive."""
        return self.folder / f"{name}.npz"

    def is_empty(self) -> bool:
        """Return whether there are no features in the folder; a run that failed may have left its settings."""
        return next(self.names(), None) is None

    def names(self) -> Iterator[str]:
        """Yield the names of the images in the folder, without what killed runs left in it, and hidden folders.

        Images that are given one by one may have hidden names, but not those of the files that macOS leaves.
        """
        for path in self.folder.rglob("*.npz"):
            name = path.relative_to(self.folder)
            is_hidden = any(part.startswith(".") for part in name.parts[:-1]) or name.name.startswith("._")
            if not is_hidden and not is_temporary_file(name.name):
                yield name.as_posix().removesuffix(".npz")

    def stamp(self, name: str) -> str | None:
        """Read the stamp of an archive."""
        try:
            return str(read_archive(self.path(name), names=("stamp",))["stamp"])
        except (OSError, ValueError, KeyError):
            return None

    def save(self, name: str, record: Record) -> None:
        """Write an archive, atomically."""
        from doap.features.storage import save_record

        try:
            save_record(self.path(name), record)
        except DoapError as error:
            if getattr(error.__cause__, "errno", None) == errno.ENAMETOOLONG:
                raise LongNameError(f"{name}: this name is too long for {self.folder}; rename the image") from error
            raise unwritable(self.path(name), error.__cause__) from error

    def remove(self, name: str) -> None:
        """Remove an archive."""
        if os.path.lexists(self.path(name)):  # false for a name that is too long
            self.path(name).unlink()

    def finish(self) -> list[str]:
        """Return all names, every archive is complete; and remove what killed runs left."""
        remove_temporary_files(self.folder)
        for path in self.folder.rglob(".*.npz"):
            if is_temporary_file(path.name):
                path.unlink()
        return sorted(self.names())


class FeatureFile:
    """HDF5 file of features, one group per image, and the hidden folder of those not yet in it."""

    def __init__(self, path: Path) -> None:
        self.target = path
        self.parts = FeatureFolder(path.with_name(f".{path.name}.parts"))
        self.stored: dict[str, str] = {}  # stamps of the images in the file
        self.is_complete = False  # nothing to be added or removed
        self.identity: Identity = {}

    def open(self, identity: Identity, force: bool) -> None:
        """Read the stamps of the file, and check the parts; `force` removes those of other settings."""
        self.identity = identity
        if self.target.is_dir():
            raise DoapError(f"{self.target}: is a folder, not a file of features; choose another output")
        stamps = read_kept_stamps(self.target, "frames", "features of a folder", identity, force)
        if stamps is not None:
            self.stored, self.is_complete = stamps, True
        if not force and not self.parts.is_empty() and (old := self.parts.read_identity()) is not None:
            check_identity(self.target, old, identity, "features", is_complete=False)
        self.parts.open(identity, force)

    def stamp(self, name: str) -> str | None:
        """Return the stamp of the part, or else that in the file."""
        return self.parts.stamp(name) or self.stored.get(name)

    def save(self, name: str, record: Record) -> None:
        """Write a part."""
        self.parts.save(name, record)

    def remove(self, name: str) -> None:
        """Remove the part, and leave the image out when the file is written anew."""
        if self.stored.pop(name, None):
            self.is_complete = False
        self.parts.remove(name)

    def finish(self) -> list[str]:
        """Pack the images of the old file and the parts into a new file, and remove the parts."""
        parts = {name for name in self.parts.names() if self.parts.stamp(name)}
        names = sorted({*parts, *self.stored})
        if parts or not self.is_complete:
            self._pack(names, parts)
        shutil.rmtree(self.parts.folder)
        return names

    def _pack(self, names: list[str], parts: set[str]) -> None:
        from doap.features.storage import load_record

        sources = [self.parts.path(name) for name in parts] + ([self.target] if self.stored else [])
        with create_file(self.target, sum(path.stat().st_size for path in sources)) as file:
            file.attrs["settings"] = json.dumps(self.identity, sort_keys=True)
            for name in names:
                record = load_record(self.parts.path(name)) if name in parts else load_record(self.target, name)
                write_sorted(file.create_group(name), record)
