"""`doap data show`: a picture of some groups of a set; and opening any set with a progress bar."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import counting_bar, say
from doap.patches.official import open_any
from doap.patches.patchset import PatchSet
from doap.patches.sheets import draw_sheet

EXAMPLE = "Example: doap data show sets/mine -o sheet.png --groups 20"


def show(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, or an official folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The picture to write.")],
    groups: Annotated[int, typer.Option(min=1, max=500, help="Rows, a group each.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Fixes which groups are drawn.")] = 0,
) -> None:
    """Draw a contact sheet: groups drawn at random, one a row, at most 16 patches of each.

    An official folder of Phototour, HPatches or RomePatches is converted the first time and remembered.
    """
    patches = open_with_bar(path)
    draw_sheet(patches, output, groups, seed)
    say(f"{min(groups, len(patches.members_start) - 1)} groups of {patches} in {output}")


def open_with_bar(path: Path) -> PatchSet:
    """`open_any`, with a bar while an official folder is converted."""
    with counting_bar() as bar:
        task = bar.add_task("converting", total=None, visible=False)
        return open_any(path, lambda done, total: bar.update(task, completed=done, total=total, visible=True))
