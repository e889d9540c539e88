"""A table of figures, the same for the terminal and for the report."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Row:
    """The cells of a row as they are shown, and whether its figures were published rather than measured."""

    cells: tuple[str, ...]
    quoted: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under the names of their columns.

    Attributes:
        columns: a line break in a name is one in the heading.
        rows: in the order to show them.
        words: how many of the first columns hold words; the others hold numbers.
        note: what a reader must know to read it.
        better: which numbers are the better ones, if that is known.
        title: over it.
        sources: of the quoted rows.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    words: int = 1
    note: str = ""
    better: Literal["less", "more"] | None = None
    title: str = ""
    sources: tuple[str, ...] = ()


def number(value: float | None, digits: int) -> str:
    """A figure with so many digits, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"
