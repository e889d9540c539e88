"""`doap data split`: a training set and a validation set, split by scene."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from doap.choices import MAX_SEED
from doap.cli.console import console, errors, say
from doap.cli.opening import open_with_bar

if TYPE_CHECKING:
    from doap.datasets.build.splitting import SplitPart

EXAMPLE = "Example: doap data split sets/photos --val-fraction 0.125 -o sets/split"


def split(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, a frame set, or an official folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to create, for the sets train and val.")],
    val_fraction: Annotated[
        float, typer.Option(min=0.001, max=0.999, help="Fraction of the scenes for validation.")
    ] = 0.125,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the choice of scenes.")] = 0,
) -> None:
    """Split a set into two sets that share no scene, train and val.

    Photos of one folder stay together, unless the folder is a collection of unrelated photos. The fraction applies to
    each source of groups: views of single photos, static views, tracks. split.csv lists the part of each scene.
    """
    from doap.datasets.build.splitting import TABLE, write_split

    data = open_with_bar(path)
    with errors.status("writing both sets"):
        parts = write_split(data, output, val_fraction, seed)
    console.print(_scene_table(parts))
    for name, part in parts.items():
        say(f"{output / name}: {part.data}")
    say(f"part of each scene: {output / TABLE}")


def _scene_table(parts: dict[str, "SplitPart"]) -> Table:
    """Return a table with the number of scenes per source and part."""
    from doap.datasets.sets.frame_set import SOURCES

    table = Table(header_style="bold")
    table.add_column("scenes")
    for name in parts:
        table.add_column(name, justify="right")
    for source in ("", *SOURCES):
        counts = [sum(scene.source == source for scene in part.scenes) for part in parts.values()]
        if any(counts):
            table.add_row(source or "all", *(f"{count:,}" for count in counts))
    return table
