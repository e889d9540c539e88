"""Arrays that a step keeps in a file for the next, and for a run that continues."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from doap.errors import DoapError
from doap.parsing.array_files import read_archive


def read_cached(file: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays of a .npz file that an earlier step or run has written.

    Args:
        file: The file.
        names: Its arrays.

    Raises:
        DoapError: If it was damaged since then.
    """
    try:
        arrays = read_archive(file)
        if not set(names) <= set(arrays):
            raise ValueError("an array is missing")
        return arrays
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DoapError(f"{file}: {error}; remove it and run the command again") from error
