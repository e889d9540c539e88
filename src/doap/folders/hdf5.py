"""HDF5 files of many records: written atomically and reproducibly, read with errors of one line.

The same records give the same bytes: they are written in sorted order, and HDF5 stores no times.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from doap.errors import DoapError
from doap.files import atomic_file, make_folder
from doap.folders.settings import Identity, check_identity
from doap.parsing.hdf5_files import children, get_child
from doap.parsing.json_files import parse_json
from doap.types import Record

if TYPE_CHECKING:
    import h5py


@contextmanager
def create_file(path: Path, size: int) -> Iterator["h5py.File"]:
    """Create an HDF5 file that appears under its name when the block succeeds.

    Args:
        path: File to write.
        size: About how many bytes it will have. HDF5 can crash on a full disk, hence less room is an error at once.

    Raises:
        DoapError: If it cannot be written.
    """
    import h5py

    try:
        if shutil.disk_usage(make_folder(path.parent)).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with atomic_file(path) as temporary, h5py.File(temporary, "w") as file:
            yield file
            file.flush()  # a full disk is an error here, and not when the file is closed
    except (OSError, RuntimeError) as error:  # RuntimeError: when the file is closed
        if "errno = " not in str(error) and not isinstance(error, OSError):
            raise
        raise unwritable(path, error) from error


@contextmanager
def open_file(path: Path) -> Iterator["h5py.File"]:
    """Open an HDF5 file for reading.

    Raises:
        DoapError: If it is missing or damaged.
    """
    import h5py

    if not path.is_file():
        raise DoapError(f"{path}: no such file")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError, RuntimeError, ValueError) as error:  # what h5py raises for damaged content
        raise damaged(path) from error


def unwritable(path: Path, error: BaseException | None) -> DoapError:
    """Return the error of an output that cannot be written, for example because the disk is full."""
    # h5py hides the message of the system in its own.
    _, is_hidden, rest = str(error).partition("error message = '")
    reason = rest.partition("'")[0] if is_hidden else getattr(error, "strerror", None) or error
    return DoapError(f"{path}: cannot be written ({reason}); what is done is kept: make room and run the command again")


def damaged(path: Path) -> DoapError:
    """Return the error of an HDF5 file with invalid content."""
    return DoapError(f"{path}: damaged or not an HDF5 file of doap; make it again, or restore a copy")


def find_groups(file: "h5py.File", entry: str) -> Iterator[tuple[str, "h5py.Group"]]:
    """Yield name and group of every record in a file, sorted: groups with this entry, at any depth.

    Raises:
        ValueError: If there is a link in the file, or a group leads back to one that it is in.
    """
    yield from _find_below(file, entry, "", set())


def _find_below(group: "h5py.Group", entry: str, prefix: str, seen: set[int]) -> Iterator[tuple[str, "h5py.Group"]]:
    import h5py

    for name, child in children(group).items():
        if not isinstance(child, h5py.Group):
            continue
        address = int(h5py.h5o.get_info(child.id).addr)
        if address in seen:
            raise ValueError(f"{prefix}{name} is in the file twice")
        seen.add(address)
        if isinstance(get_child(child, entry), h5py.Dataset):  # else it is a folder of images of this name
            yield f"{prefix}{name}", child
        else:
            yield from _find_below(child, entry, f"{prefix}{name}/", seen)


def read_stamps(path: Path, entry: str, content: str) -> tuple[Identity, dict[str, str]]:
    """Read the settings of a file of records, and the stamp of every record by the name of its group.

    Args:
        path: The file.
        entry: Entry that all records have.
        content: What the file must hold, for the error.

    Raises:
        DoapError: If it is not such a file.
    """
    with open_file(path) as file:
        if "settings" not in file.attrs:
            raise DoapError(f"{path}: not {content}; choose another file")
        stamps = {name: str(group.attrs["stamp"]) for name, group in find_groups(file, entry)}
        return parse_json(file.attrs["settings"]), stamps


def read_kept_stamps(path: Path, entry: str, content: str, identity: Identity, force: bool) -> dict[str, str] | None:
    """Read the stamps of the records in an output, if they are to be kept.

    Args:
        path: The output.
        entry: Entry that all records have.
        content: What the output must hold; its first word is what the records are.
        identity: Settings of this run.
        force: Whether to replace an output of other settings or a damaged one.

    Returns:
        The stamps by the name of the group; None without an output, or if `force` replaces it.

    Raises:
        DoapError: If the output is damaged or of other settings, without `force`.
    """
    if not path.exists():
        return None
    try:
        old, stamps = read_stamps(path, entry, content)
        check_identity(path, old, identity, content.partition(" ")[0])
    except DoapError:
        if force:
            return None
        raise
    return stamps


def write_sorted(group: "h5py.Group", record: Record) -> None:
    """Write a record to a group of a file, its entries in sorted order."""
    from doap.features.storage import write_group

    write_group(group, dict(sorted(record.items())))
