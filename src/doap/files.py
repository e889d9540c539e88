"""Atomic writing of files and folders, names of files, the cache folder, and figures.

An output appears under its final name only when it is complete. An output that is a symbolic link stays one: the file
or folder that it leads to is written.
"""

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from doap.errors import DoapError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARK = ".doap-tmp-"  # first part of temporary names; no file of a user has it
TEMPORARY = ".tmp"  # suffixes of the folders of `atomic_folder`: what is written, and what it replaces
OLD = ".old"
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
MAX_NAME = 255  # bytes of a name in common file systems
MAX_STEM = 180  # bytes of a target's name that its temporary name repeats
MAX_SUFFIX = 16  # bytes; a longer one is no file format


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `target`, and rename it to `target` when the block succeeds.

    The temporary name keeps the suffix, because many writers choose the format by it.

    Raises:
        OSError: If the file cannot be written, such as on a full disk; it names the target.
    """
    final = _follow(target)
    make_folder(final.parent)
    with _naming(target, final.with_name(_temporary_prefix(final.name))):
        temporary = _make_temporary(final, _temporary_suffix(final.name), _create_file)
        try:
            yield temporary
            _flush_to_disk(temporary)
            temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)


def _follow(target: Path) -> Path:
    """Return what a symbolic link leads to, which need not exist; other paths as they are."""
    return Path(os.path.realpath(target)) if target.is_symlink() else target


@contextmanager
def _naming(target: Path, temporary: Path) -> Iterator[None]:
    """Name the target in errors that name a temporary path, or none: those of writing to an open file.

    Args:
        target: The output as the caller names it.
        temporary: First part of all temporary paths.
    """
    try:
        yield
    except OSError as error:
        if type(error) is OSError and error.errno is None:  # NumPy's error of a full disk
            raise OSError(errno.EIO, str(error), str(target)) from error
        if error.errno is not None and (error.filename is None or str(error.filename).startswith(str(temporary))):
            error.filename = str(target)
        raise


def _temporary_prefix(name: str) -> str:
    """Return the first part of temporary names, MARK and `NAME-`; a long name is cut, and a digest of it added."""
    encoded = os.fsencode(name)
    if len(encoded) > MAX_STEM:
        name = encoded[:MAX_STEM].decode("utf-8", "ignore") + hashlib.sha256(encoded).hexdigest()[:16]
    return f"{MARK}{name}-"


def _temporary_suffix(name: str) -> str:
    suffix = Path(name).suffix
    return suffix if len(os.fsencode(suffix)) <= MAX_SUFFIX else ""


def _make_temporary(target: Path, suffix: str, create: Callable[[Path], None]) -> Path:
    """Create a file or folder with a new temporary name, and the permissions that the process gives new ones.

    The functions of `tempfile` create private ones. To change that needs the umask, which cannot be read without
    changing it for files that other threads create at the same time.
    """
    while True:
        path = target.with_name(f"{_temporary_prefix(target.name)}{secrets.token_hex(4)}{suffix}")
        try:
            create(path)
        except FileExistsError:
            continue
        return path


def _create_file(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))


@contextmanager
def atomic_folder(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder next to `target`, and rename it to `target` when the block succeeds.

    Temporary folders of killed processes that wrote the same target are removed first.

    Args:
        target: The folder to write.
        replace: Remove the folder that `target` is then, with all it contains.

    Raises:
        DoapError: If `target` exists and is not to be replaced.
    """
    final = _follow(target)
    _remove_leftovers(final)
    if final.exists() and not replace:
        raise DoapError(f"{target}: exists already; remove it or choose another name")
    make_folder(final.parent)
    with _naming(target, final.with_name(_temporary_prefix(final.name))):
        temporary, handle = _make_locked_folder(final)
    old = temporary.with_suffix(OLD)
    try:
        yield temporary
        for path in temporary.rglob("*"):
            if path.is_file():
                _flush_to_disk(path)
        if replace and final.is_dir():
            final.rename(old)
        temporary.replace(final)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(handle)


def _make_locked_folder(target: Path) -> tuple[Path, int]:
    """Create a temporary folder and lock it; the system frees the lock when the process ends, however it ends."""
    while True:
        temporary = _make_temporary(target, TEMPORARY, Path.mkdir)
        handle = os.open(temporary, os.O_RDONLY)
        try:
            # Shared, since a network file system grants no exclusive lock of a folder: no other process gets one there.
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            is_own = temporary.exists()
        except BlockingIOError:
            is_own = False
        except OSError:  # a file system without locks
            is_own = True
        if is_own:
            return temporary, handle
        os.close(handle)  # another process took it for a leftover before it was locked


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary folders of killed processes beside a target.

    If a process was killed while it replaced the target, the previous content becomes the target again.
    """
    prefix = re.escape(_temporary_prefix(target.name))
    names = re.compile(rf"{prefix}[0-9a-f]{{8}}(?={re.escape(TEMPORARY)}$|{re.escape(OLD)}$)")
    try:
        stems = {match[0] for path in target.parent.iterdir() if (match := names.match(path.name))}
    except OSError:  # no such folder yet
        return
    for stem in sorted(stems):
        temporary, old = (target.with_name(stem + suffix) for suffix in (TEMPORARY, OLD))
        with _leftover(temporary) as is_leftover:
            if not is_leftover:
                continue
            if old.exists() and not target.exists():
                old.rename(target)
            for path in (temporary, old):
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _leftover(temporary: Path) -> Iterator[bool]:
    """Yield whether no process writes a temporary folder any more, and keep others from it."""
    try:
        handle = os.open(temporary, os.O_RDONLY)
    except FileNotFoundError:  # the process was killed after it renamed the folder
        yield True
        return
    except OSError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked by its process, or a file system without locks
        yield False
    else:
        yield True
    finally:
        os.close(handle)


def remove_temporary_files(folder: Path, target: str | None = None) -> None:
    """Remove what killed processes left of `atomic_file` in a folder; no other process may write there.

    Args:
        folder: The folder, without those in it.
        target: Name of the file that they wrote; by default of any.
    """
    for path in folder.iterdir():
        if is_temporary_file(path.name, target) and path.is_file():
            path.unlink(missing_ok=True)


def is_temporary_file(name: str, target: str | None = None) -> bool:
    """Return whether a name is one that `atomic_file` gives its temporary files; `target` as above."""
    if target is None:
        prefix, suffix = rf"{re.escape(MARK)}.+-", r"(\.[^.]*)?"
    else:
        prefix, suffix = re.escape(_temporary_prefix(target)), re.escape(_temporary_suffix(target))
    return re.fullmatch(rf"{prefix}[0-9a-f]{{8}}{suffix}", name, re.DOTALL) is not None


def make_folder(path: Path) -> Path:
    """Create a folder and its parents, and return its path.

    Raises:
        DoapError: If it cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DoapError(f"{path}: cannot create this folder ({error.strerror}); choose another path") from error
    return path


def check_output(path: Path) -> None:
    """Check that a file can be written, before the work for it is done; nothing remains of the check.

    Raises:
        DoapError: If it is a folder, its name is too long, or its folder cannot be written to or created.
    """
    if any(len(os.fsencode(name)) > MAX_NAME for name in path.parts):
        raise DoapError(f"{path}: a name with more than {MAX_NAME} bytes; choose another path")
    if path.is_dir():
        raise DoapError(f"{path}: is a folder, not a file; choose another path")
    existing = next(folder for folder in _follow(path).absolute().parents if os.path.lexists(folder))
    if not existing.is_dir():
        raise DoapError(f"{path}: {existing} is a file, not a folder; choose another path")
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise DoapError(f"{path}: cannot be written to {existing} ({error.strerror}); choose another path") from error


def cache_root() -> Path:
    """Return the folder of files that can be recomputed: the environment variable DOAP_CACHE, or ~/.cache/doap."""
    folder = os.environ.get("DOAP_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "doap"


def write_text(target: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def printable(name: str) -> str:
    r"""Escape the control characters of a name, and its bytes that are not UTF-8 (`\xff`).

    The result can be stored, and does nothing to a terminal. Python represents such bytes of a file name by surrogates,
    which cannot be encoded.
    """
    return UNPRINTABLE.sub(lambda match: _escape(ord(match[0])), name)


def _escape(code: int) -> str:
    is_byte = 0xDC80 <= code <= 0xDCFF
    return f"\\x{code - 0xDC00 if is_byte else code:02x}" if is_byte or code < 0x80 else f"\\u{code:04x}"


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def check_figure_format(path: Path) -> None:
    """Check that figures can be written to `path` and in its format, before the work for the figure is done.

    Raises:
        DoapError: For an unknown suffix, or a path that cannot be written.
    """
    if path.suffix.lower() not in (".png", ".jpg", ".jpeg", ".pdf", ".svg"):
        raise DoapError(f"{path}: figures are written as .png, .jpg, .pdf or .svg")
    check_output(path)


def write_figure(figure: "Figure", path: Path, dpi: int = 110) -> None:
    """Write a Matplotlib figure atomically; the suffix selects the format.

    Texts in it are never formulas: names of models and files may have dollar signs.
    """
    import matplotlib
    from matplotlib.text import Text

    check_figure_format(path)
    with atomic_file(path) as temporary, matplotlib.rc_context({"text.parse_math": False}):
        for text in figure.findobj(Text):
            assert isinstance(text, Text)
            text.set_parse_math(False)
        figure.savefig(temporary, dpi=dpi)
