"""`doap data`: making patch sets and looking at them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from doap.cli import data_hpatches, data_show
from doap.cli.console import counting_bar, errors, say, say_overlaps
from doap.errors import DoapError
from doap.patches.from_photos import build_from_photos
from doap.patches.official import locate
from doap.patches.patchset import PatchSet
from doap.patches.writer import DEFAULT_EXTENT
from doap.photos.images import Grey, find_photos, read_grey

app = typer.Typer(no_args_is_help=True, help="Make patch sets and look at them.")
app.command("show", epilog=data_show.EXAMPLE)(data_show.show)
app.command("hpatches", epilog=data_hpatches.EXAMPLE)(data_hpatches.hpatches)


@app.command(epilog="Example: doap data build photos/ -o sets/mine")
def build(
    photos: Annotated[list[Path], typer.Argument(metavar="PHOTOS…", help="Pictures, or folders of them.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The patch set to make, a folder.")],
    points: Annotated[int, typer.Option(min=1, help="Groups a photo at most, its strongest keypoints.")] = 1200,
    extent: Annotated[float, typer.Option(min=0.1, help="Half the patch's side in keypoint scales.")] = DEFAULT_EXTENT,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the views.")] = 0,
) -> None:
    """Make a patch set from photos: each keypoint seen plainly and under three jittered views.

    Photos that cannot be read or have no keypoint are named at the end and left out.
    """
    found = find_photos(photos)
    faults: list[str] = []

    def readable() -> Iterator[tuple[str, Grey]]:
        for path in found:
            try:
                yield str(path), read_grey(path)
            except DoapError as fault:
                faults.append(str(fault))

    with counting_bar() as bar:
        task = bar.add_task("cutting patches", total=len(found))
        try:
            empty = build_from_photos(readable(), output, points, extent, seed, lambda _name: bar.advance(task))
        except DoapError as fault:
            raise DoapError("; ".join([*faults, str(fault)])) from fault
    faults += [f"{name}: no keypoint found" for name in empty]
    say(f"{PatchSet.open(output)} in {output}")
    say_overlaps()
    for line in faults:
        say(f"left out: {line}", style="yellow")


@app.command(epilog="Example: doap data info sets/mine --verify")
def info(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, or an official folder.")],
    verify: Annotated[bool, typer.Option(help="Check every byte against its checksum.")] = False,
) -> None:
    """Say what a patch set holds, and whether it is whole."""
    patches = data_show.open_with_bar(path)
    sizes = np.diff(patches.members_start)
    say(repr(patches))
    say(f"  groups of {sizes.min()} to {sizes.max()} patches, {sizes.mean():.1f} on average")
    say(f"  extent {patches.extent:g}; labels: {', '.join(patches.labels) or 'none'}")
    if verify:
        with errors.status("checking every byte"):
            PatchSet.verify(locate(path))
        say("  every checksum is right")
