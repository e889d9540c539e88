"""Tables in which measured and quoted figures stand together."""

from doap.cli.console import say
from doap.cli.eval_options import show_table
from doap.evaluation.published import sources
from doap.evaluation.table import Table


def show_with_quoted(title: str, table: Table, published_as: str) -> None:
    """Print a table, its quoted rows marked, and where they come from.

    Args:
        title: over it.
        table: the measured rows, then the quoted ones.
        published_as: the name of the quoted table in published.yaml.
    """
    rows = [(f"{row.cells[0]}†" if row.quoted else row.cells[0], *row.cells[1:]) for row in table.rows]
    show_table(title, table.columns, rows, table.words)
    say(table.note)
    say(f"† quoted, not measured: {'; '.join(sources(published_as))}")
