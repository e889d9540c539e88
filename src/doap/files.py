"""Atomic writing of files and folders, the cache folder, and figures.

An output appears under its final name only when it is complete.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from doap.errors import DoapError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `target`, and rename it to `target` when the block succeeds.

    The temporary name keeps the suffix, because many writers choose the format by it.
    """
    make_folder(target.parent)
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush_to_disk(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder next to `target`, and rename it to `target` when the block succeeds.

    Args:
        target: The folder to write.
        replace: Remove the folder that `target` is then, with all it contains.

    Raises:
        DoapError: If `target` exists and is not to be replaced.
    """
    if target.exists() and not replace:
        raise DoapError(f"{target}: exists already; remove it or choose another name")
    make_folder(target.parent)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    old = temporary.with_name(f"{temporary.name}-old")
    try:
        yield temporary
        for path in temporary.rglob("*"):
            if path.is_file():
                _flush_to_disk(path)
        temporary.chmod(0o777 & ~_umask())
        if replace and target.is_dir():
            target.rename(old)
        temporary.replace(target)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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


def cache_root() -> Path:
    """Return the folder of files that can be recomputed: the environment variable DOAP_CACHE, or ~/.cache/doap."""
    folder = os.environ.get("DOAP_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "doap"


def write_text(target: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_figure_format(path: Path) -> None:
    """Check that figures can be written in the format of `path`, before the work for the figure is done.

    Raises:
        DoapError: For an unknown suffix.
    """
    if path.suffix.lower() not in (".png", ".jpg", ".jpeg", ".pdf", ".svg"):
        raise DoapError(f"{path}: figures are written as .png, .jpg, .pdf or .svg")


def write_figure(figure: "Figure", path: Path, dpi: int = 110) -> None:
    """Write a Matplotlib figure atomically; the suffix selects the format."""
    check_figure_format(path)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
