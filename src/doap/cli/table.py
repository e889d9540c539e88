"""Tables on the console."""

from typing import TYPE_CHECKING

from rich.console import Console

from doap.cli.console import console, say
from doap.files import printable

if TYPE_CHECKING:
    from doap.evaluation.harness.table import Table

tables = Console(width=max(160, console.width))  # wide enough that no name or number is folded


def print_table(table: "Table") -> None:
    """Print a table, its note, and the sources of its quoted rows, which are marked."""
    from rich.table import Table as RichTable
    from rich.text import Text

    def text(cell: str) -> Text:  # without markup, which a name may resemble; lines of a cell stay lines
        return Text("\n".join(map(printable, cell.split("\n"))))

    rich_table = RichTable(title=table.title or None, title_justify="left", header_style="bold")
    for index, column in enumerate(table.columns):
        rich_table.add_column(text(column), justify="left" if index < table.text_columns else "right")
    for row in table.rows:
        cells = [f"{row.cells[0]}†" if row.quoted else row.cells[0], *row.cells[1:]]
        rich_table.add_row(*map(text, cells))
    tables.print(rich_table)
    if table.note:
        say(table.note)
    if table.sources:
        say(f"† quoted, not measured: {'; '.join(table.sources)}")
