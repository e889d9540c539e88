"""One run at a time per output: two would remove each other's finished work."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from doap.errors import DoapError
from doap.files import make_folder, remove_temporary_files


@contextmanager
def only_writer(output: Path, inside: bool = False) -> Iterator[None]:
    """Hold a lock on an output, and remove the temporary files that a killed process left of it.

    The system frees the lock of a killed process.

    Args:
        output: File or folder that is written; a symbolic link is followed.
        inside: Lock the hidden file `.lock` in the folder, which is created if it is missing; otherwise `.NAME.lock`
            beside the output.

    Raises:
        DoapError: If another process holds it, or the file cannot be written.
    """
    final = Path(os.path.realpath(output))  # that of "." has a name, and two links to an output have the same
    if not final.name:
        raise DoapError(f"{output}: is the root of the file system; choose another output")
    path = final / ".lock" if inside else final.with_name(f".{final.name}.lock")
    make_folder(path.parent)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise DoapError(f"{output}: cannot be written ({error.strerror}); choose another path") from error
    try:
        is_locked = _lock(handle, path, output)
        try:
            if is_locked and inside:
                remove_temporary_files(final)
            elif is_locked:
                remove_temporary_files(final.parent, final.name)
            yield
        finally:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_UN)  # else a forked process would keep it
    finally:
        os.close(handle)


def _lock(handle: int, path: Path, output: Path) -> bool:
    """Return whether the lock is held; False on a file system without locks."""
    is_taken = False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have finished, and removed the file, after it was opened here.
        is_taken = not os.path.samestat(path.stat(), os.fstat(handle))
    except (BlockingIOError, FileNotFoundError):
        is_taken = True
    except OSError:  # a file system without locks
        return False
    if is_taken:
        raise DoapError(f"{output}: another process is writing it; wait for it, or choose another output")
    return True
