"""`doap data list`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from doap.cli.console import console, errors, say
from doap.errors import DoapError

EXAMPLE = "Example: doap data list data"


def list_sets(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", envvar="DOAP_DATA", help="Folder of data sets to search.")
    ] = Path("data"),
) -> None:
    """List the official data sets, and the sets that are in a folder.

    The content of a folder is counted, not decoded; `doap data download NAME` checks every pixel.
    """
    from doap.datasets.download.catalogue import describe_plain_http

    console.print(_catalogue_table())
    if line := describe_plain_http():
        say(line, style="yellow")
    with errors.status("searching"):
        lines = _find_official(folder) + _find_own(folder)
    for line in lines or [f"no sets in {folder}; get one with doap data download NAME -o {folder}"]:
        say(line)


def _catalogue_table() -> Table:
    from doap.datasets.download.catalogue import CATALOGUE

    table = Table(header_style="bold")
    for column in ("name", "description"):
        table.add_column(column)
    for column in ("size", "content"):
        table.add_column(column, justify="right")
    for data in CATALOGUE.values():
        content = "\n".join(f"{count:,} {name}" for name, count in data.expected.items())
        table.add_row(data.name, data.description, f"{data.size / 1e9:.2g} GB", content)
    return table


def _find_official(folder: Path) -> list[str]:
    """Describe the official data sets in a folder, one line each."""
    from doap.datasets.download.catalogue import CATALOGUE
    from doap.datasets.download.downloading import complete_content

    lines = []
    for name, data in CATALOGUE.items():
        path = folder / name
        if path.is_dir():
            try:
                lines.append(f"{name} is in {path}: {complete_content(data, path)}")
            except DoapError as error:
                lines.append(f"{name} is in {path}, but not complete: {error}")
    return lines


def _find_own(folder: Path) -> list[str]:
    """Describe the patch sets and frame sets in a folder and up to two levels below, one line each."""
    from doap.datasets.sets.storage import MANIFEST, kind_of

    lines = []
    for pattern in ("", "*/", "*/*/"):
        for manifest in sorted(folder.glob(pattern + MANIFEST)):
            if (kind := kind_of(manifest.parent)) is not None:
                lines.append(f"{kind} in {manifest.parent}")
    return lines
