"""`doap data show`, and the opening of any set with a progress bar."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.choices import MAX_SEED
from doap.cli.console import counting_bar, say

if TYPE_CHECKING:
    from doap.datasets.sets.frame_set import FrameSet
    from doap.datasets.sets.patch_set import PatchSet

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
    say(f"{min(groups, len(data.members_start) - 1)} groups of {data} in {output}")


def open_with_bar(path: Path) -> "PatchSet | FrameSet":
    """Open a patch set, a frame set or an official folder, with a progress bar if the latter is converted."""
    from doap.datasets.official.opening import open_dataset
    from doap.datasets.sets.frame_set import KIND, FrameSet
    from doap.datasets.sets.storage import kind_of

    if kind_of(path) == KIND:
        return FrameSet.open(path)
    with counting_bar() as bar:
        task = bar.add_task("converting", total=None, visible=False)
        return open_dataset(path, lambda done, total: bar.update(task, completed=done, total=total, visible=True))


def open_training_with_bar(paths: list[Path], split: str | None) -> "PatchSet | FrameSet":
    """Open the folders to train on, see `open_training_set`, with a progress bar if one is converted."""
    from doap.datasets.official.training_set import open_training_set

    with counting_bar() as bar:
        task = bar.add_task("converting", total=None, visible=False)
        return open_training_set(
            paths, split, lambda done, total: bar.update(task, completed=done, total=total, visible=True)
        )
