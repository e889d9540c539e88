"""`doap data list`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from doap.cli.console import console, errors, say
from doap.datasets.download.catalogue import CATALOGUE
from doap.datasets.download.downloading import complete_content
from doap.datasets.sets.storage import MANIFEST, kind_of
from doap.errors import DoapError

EXAMPLE = "Example: doap data list data"


def list_sets(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", envvar="DOAP_DATA", help="Folder of data sets to look into.")
    ] = Path("data"),
) -> None:
    """Show the official data sets, and which of them and which sets of one's own are in a folder.

    What is there is counted, not decoded; `doap data download NAME` checks every pixel.
    """
    table = Table(header_style="bold")
    for column in ("name", "what"):
        table.add_column(column)
    for column in ("about", "holds"):
        table.add_column(column, justify="right")
    for data in CATALOGUE.values():
        holds = "\n".join(f"{count:,} {what}" for what, count in data.expected.items())
        table.add_row(data.name, data.what, f"{data.size / 1e9:.2g} GB", holds)
    console.print(table)
    with errors.status("looking"):
        lines = _official(folder) + _own(folder)
    for line in lines or [f"none is in {folder} yet; get one with doap data download NAME -o {folder}"]:
        say(line)


def _official(folder: Path) -> list[str]:
    lines = []
    for name, data in CATALOGUE.items():
        place = folder / name
        if place.is_dir():
            try:
                lines.append(f"{name} is in {place}: {complete_content(data, place)}")
            except DoapError as error:
                lines.append(f"{name} is in {place}, but not whole: {error}")
    return lines


def _own(folder: Path) -> list[str]:
    """Patch sets and frame sets in a folder and in the folders below it, by their manifests."""
    lines = []
    for depth in ("", "*/", "*/*/"):
        for manifest in sorted(folder.glob(depth + MANIFEST)):
            if (kind := kind_of(manifest.parent)) is not None:
                lines.append(f"{kind} in {manifest.parent}")
    return lines
