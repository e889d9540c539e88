"""A table of results, for the terminal and for the report."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Row:
    """Formatted cells of one row.

    Attributes:
        cells: Text of each column.
        quoted: Whether the figures are quoted from a publication rather than measured.
    """

    cells: tuple[str, ...]
    quoted: bool = False


@dataclass(frozen=True)
class Table:
    """Rows and column names.

    Attributes:
        columns: Names of the columns; a line break is kept.
        rows: Rows in display order.
        text_columns: Number of leading columns that hold text; the others hold numbers.
        note: Explanation, shown below the table.
        better: Which numbers are better, if that is known.
        title: Title, shown above the table.
        sources: Sources of the quoted rows.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    text_columns: int = 1
    note: str = ""
    better: Literal["less", "more"] | None = None
    title: str = ""
    sources: tuple[str, ...] = ()


def number(value: float | None, digits: int) -> str:
    """Format a number with a fixed number of decimals; a dash stands for None."""
    return "-" if value is None else f"{value:.{digits}f}"
