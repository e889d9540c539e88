"""`doap data split`: a set in two, by scene."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from doap.cli.console import console, errors, say
from doap.cli.data_show import open_with_bar
from doap.datasets.build.splitting import HALVES, TABLE, TRAIN, VAL, Half, write_split
from doap.datasets.sets.frame_set import SOURCES

EXAMPLE = "Example: doap data split sets/photos --share 0.125 -o sets/split"


def split(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, a frame set, or an official folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make, with train and aside in it.")],
    share: Annotated[float, typer.Option(min=0.001, max=0.999, help="Of the scenes, to set aside.")] = 0.125,
    seed: Annotated[int, typer.Option(min=0, help="Fixes which scenes are set aside.")] = 0,
) -> None:
    """Set scenes aside, to judge by: makes two sets that share no scene, train and aside.

    Photos of one folder stay together, unless they are plainly a collection of different things. Each way groups were
    found (views of single photos, still views, tracks) gives its share. split.csv says where each scene went.
    """
    found = open_with_bar(path)
    with errors.status("writing both halves"):
        halves = write_split(found, output, share, seed)
    console.print(_table(halves))
    for name, half in halves.items():
        say(f"{output / name}: {half.data}")
    say(f"which scene went where: {output / TABLE}")


def _table(halves: dict[str, Half]) -> Table:
    """How many scenes of each source went where."""
    table = Table(header_style="bold")
    table.add_column("scenes")
    for name in HALVES:
        table.add_column(name, justify="right")
    for source in ("", *SOURCES):
        counts = {name: sum(scene.source == source for scene in half.scenes) for name, half in halves.items()}
        if any(counts.values()):
            table.add_row(source or "all", f"{counts[TRAIN]:,}", f"{counts[VAL]:,}")
    return table
