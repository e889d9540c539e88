"""`doap data show`: a picture of some groups of a set; and opening any set with a progress bar."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import counting_bar, say
from doap.datasets.official.opening import open_any
from doap.datasets.sets.contact_sheet import draw_frames_sheet, draw_sheet
from doap.datasets.sets.frame_set import KIND, FrameSet
from doap.datasets.sets.patch_set import PatchSet
from doap.datasets.sets.storage import kind_of

EXAMPLE = "Example: doap data show sets/mine -o sheet.png --groups 20"


def show(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, a frame set, or an official folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The picture to write.")],
    groups: Annotated[int, typer.Option(min=1, max=500, help="Rows, a group each.")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="Fixes which groups are drawn.")] = 0,
) -> None:
    """Draw a contact sheet: groups drawn at random, one a row, at most 16 patches of each.

    An official folder of Phototour, HPatches or RomePatches is converted the first time and remembered.
    """
    found = open_with_bar(path)
    if isinstance(found, FrameSet):
        draw_frames_sheet(found, output, groups, seed)
    else:
        draw_sheet(found, output, groups, seed)
    say(f"{min(groups, len(found.members_start) - 1)} groups of {found} in {output}")


def open_with_bar(path: Path) -> PatchSet | FrameSet:
    """Open any set, with a bar while an official folder is converted."""
    if kind_of(path) == KIND:
        return FrameSet.open(path)
    with counting_bar() as bar:
        task = bar.add_task("converting", total=None, visible=False)
        return open_any(path, lambda done, total: bar.update(task, completed=done, total=total, visible=True))
