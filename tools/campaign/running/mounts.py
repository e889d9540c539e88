"""Small and read-only disks; they need root."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PAGE_BYTES = 4096  # of tmpfs


@contextmanager
def mounted(words: Sequence[str], folder: Path) -> Iterator[str]:
    """Mount for the block; yields why this is not possible, or ''."""
    error = "needs root, to mount a disk" if os.geteuid() else mount(*words)
    try:
        yield error
    finally:
        if not error:
            subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def mount(*words: str) -> str:
    """Mount, and return the error, '' for none."""
    ended = subprocess.run(["mount", *words], check=False, capture_output=True, text=True)
    return ended.stderr.strip() if ended.returncode else ""


def pages(folder: Path) -> int:
    """Return how many pages of a small disk the files of a folder take."""
    return sum(-(-path.stat().st_size // PAGE_BYTES) for path in folder.rglob("*") if path.is_file())
