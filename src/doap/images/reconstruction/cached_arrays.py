"""Arrays that a step keeps in a file for the next, and for a run that continues."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from doap.errors import DoapError
from doap.parsing.array_files import read_archive


def read_cached(file: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a .npz file that an earlier step or run has written.

    Raises:
        DoapError: If it was damaged since then.
    """
    try:
        return read_archive(file)
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DoapError(f"{file}: {error}; remove it and run the command again") from error
