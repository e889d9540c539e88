"""Files of features and matches: NumPy archives and HDF5, with a format version.

A record is a dictionary of arrays, numbers and strings. In an archive (.npz) every entry is an array; in HDF5, arrays
are datasets of a group, numbers and strings its attributes. The HDF5 file of a folder has one group per image.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError, check_path
from doap.files import atomic_file
from doap.parsing.array_files import MAX_BYTES, read_archive
from doap.parsing.hdf5_files import HDF5_SUFFIXES, check_dataset, children, get_child
from doap.types import Record

if TYPE_CHECKING:
    import h5py

FORMAT = 2  # version of the records; archives of version 1 have no entry `format`
SUFFIXES = (".npz", *HDF5_SUFFIXES)


def save_record(path: str | Path, record: Record) -> None:
    """Write a record to a .npz or .h5 file, atomically.

    Raises:
        DoapError: If it is no path, for another suffix, or if the file cannot be written.
    """
    path = _to_path(path)
    try:
        with atomic_file(path) as temporary:
            if path.suffix == ".npz":
                with temporary.open("wb") as file:
                    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in _versioned(record).items()}
                    np.savez(file, **arrays)
            else:
                import h5py

                with h5py.File(temporary, "w") as file:
                    write_group(file, record)
    except OSError as error:
        raise DoapError(f"{path}: cannot be written ({error.strerror or error}); choose another path") from error


def load_record(path: str | Path, image: str | None = None, argument: str = "image") -> Record:
    """Read the record of a .npz or .h5 file.

    Args:
        path: File to read.
        image: Name of the group in an HDF5 file; None for the file itself.
        argument: What the caller names the group by, for messages.

    Raises:
        DoapError: If the file is missing, damaged, or of a newer version.
    """
    path = _to_path(path)
    if not path.is_file():
        raise DoapError(f"{path}: no such file")
    if image is not None and not isinstance(image, str):
        raise DoapError(f"{path}: the name of an image or a pair must be a string, not {type(image).__name__}")
    if image is not None and path.suffix == ".npz":
        raise DoapError(f"{path}: an archive of one record, without names; leave out {image}")
    try:
        if path.suffix == ".npz":
            arrays = read_archive(path)
            return _checked({name: _scalar(value) for name, value in arrays.items()}, str(path))
        import h5py

        with h5py.File(path, "r") as file:
            return read_group(_find_group(file, path, image, argument), f"{path}: {image}" if image else str(path))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:  # by h5py
        raise DoapError(f"{path}: damaged or not a file of features or matches; make it again") from error


def write_group(group: "h5py.Group", record: Record) -> None:
    """Write a record to an empty HDF5 group."""
    for name, value in _versioned(record).items():
        if isinstance(value, np.ndarray):
            group.create_dataset(name, data=value)
        else:
            group.attrs[name] = value


def read_group(group: "h5py.Group", where: str) -> Record:
    """Read the record of an HDF5 group.

    Raises:
        DoapError: If it is of a newer version; `where` names it.
    """
    arrays: Record = {
        name: _read_array(name, item) for name, item in children(group).items() if not hasattr(item, "items")
    }
    attributes: Record = {name: _scalar(np.asarray(value)) for name, value in group.attrs.items()}
    return _checked(arrays | attributes, where)


def _read_array(name: str, item: "h5py.Dataset") -> NDArray[Any]:
    check_dataset(name, item, MAX_BYTES)
    array: NDArray[Any] = item[()]
    return array


def _to_path(value: str | Path) -> Path:
    """Return a path; raise a `DoapError` if it is none, or its suffix is not one of `SUFFIXES`."""
    check_path("the file", value)
    path = Path(value)
    if path.suffix not in SUFFIXES:
        raise DoapError(f"{path}: features and matches are stored as .npz or .h5")
    return path


def _versioned(record: Record) -> Record:
    return {"format": FORMAT, **record}


def _checked(record: Record, where: str) -> Record:
    version = record.get("format", 1)
    if not isinstance(version, int) or version > FORMAT:
        raise DoapError(f"{where}: format {version} is newer than this doap, which reads up to {FORMAT}; update doap")
    return record


def _scalar(value: NDArray[Any]) -> Any:
    """Return the number or string of a 0-dimensional array, other arrays unchanged."""
    if value.ndim:
        return value
    item = value.item()
    return item.decode() if isinstance(item, bytes) else item


def _find_group(file: "h5py.File", path: Path, image: str | None, argument: str) -> "h5py.Group":
    if image is None:
        if not any(_is_array(file, name) for name in ("frames", "indices")):
            example = f"{argument}={_first_record(file)!r}"
            raise DoapError(f"{path}: holds several records; name one, for example {example}")
        return file
    group = get_child(file, image)
    if not hasattr(group, "items"):
        raise DoapError(f"{path}: has no {image}")
    return group


def _is_array(group: "h5py.Group", name: str) -> bool:
    """Return whether a group has an array of this name; a folder of images may have the same."""
    item = get_child(group, name)
    return item is not None and not hasattr(item, "items")


def _first_record(group: "h5py.Group") -> str:
    """Return the name of the first record in a group, '' if there is none."""
    name = next((name for name, child in children(group).items() if hasattr(child, "items")), "")
    below = _first_record(group[name]) if name else ""
    return f"{name}/{below}" if below else name


def check_real(name: str, array: object) -> None:
    """Raise a `DoapError` unless an object is an array of integers or floating-point numbers."""
    if not isinstance(array, np.ndarray):
        raise DoapError(f"{name} must be an array, not {type(array).__name__}")
    if array.dtype.kind not in "iuf":
        raise DoapError(f"{name} must be numbers, not {array.dtype}")


def require(record: Mapping[str, Any], names: tuple[str, ...], where: str, what: str) -> None:
    """Raise a `DoapError` if a record lacks one of the entries; `what` names the records that have them."""
    missing = [name for name in names if name not in record]
    if missing:
        raise DoapError(f"{where}: has no entry {missing[0]!r}; these are no {what} written by doap")
