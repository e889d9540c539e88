"""What a format under attack is: how a file of it is made, and what reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Format:
    """A file format that doap reads.

    Attributes:
        name: Name in results and in the corpus.
        make: Writes a small good file, with all that stands beside it, into an empty folder; returns the file that is
            to be damaged. The same bytes each time, or at least as many.
        read: Reads the file by the public function that does. Returns what is compared for formats that are checked.
        is_text: Whether words are replaced besides bytes.
        is_checked: Whether a checksum covers what is read: another result than that of the good file is a finding.
    """

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    is_text: bool = False
    is_checked: bool = False


def text_file(name: str, text: str) -> Callable[[Path], Path]:
    """Return a maker of a text file."""

    def make(folder: Path) -> Path:
        path = folder / name
        path.write_text(text, encoding="utf-8")
        return path

    return make


def file_in(make: Callable[[Path], object], name: str) -> Callable[[Path], Path]:
    """Return a maker that returns one of the files that another maker writes."""

    def make_and_choose(folder: Path) -> Path:
        make(folder)
        return folder / name

    return make_and_choose
