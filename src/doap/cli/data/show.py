"""`doap data show`: a contact sheet of a set."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import MAX_SEED
from doap.cli.console import say
from doap.cli.opening import open_with_bar
from doap.errors import inflect

EXAMPLE = "Example: doap data show sets/mine -o sheet.png --groups 20"


def show(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, a frame set, or an official folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The image to write.")],
    groups: Annotated[int, typer.Option(min=1, max=500, help="Number of rows, one group each.")] = 12,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the sampled groups.")] = 0,
) -> None:
    """Draw a contact sheet: randomly sampled groups, one per row, at most 16 patches of each.

    An official folder of Phototour, HPatches or RomePatches is converted the first time and cached.
    """
    from doap.datasets.sets.contact_sheet import draw_frames_sheet, draw_sheet
    from doap.datasets.sets.frame_set import FrameSet

    data = open_with_bar(path)
    if isinstance(data, FrameSet):
        draw_frames_sheet(data, output, groups, seed)
    else:
        draw_sheet(data, output, groups, seed)
    shown = min(groups, len(data.members_start) - 1)
    say(f"{shown} {inflect(shown, 'group')} of {data} in {output}")
