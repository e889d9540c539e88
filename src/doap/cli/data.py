"""`doap data`: getting and making sets, and looking at them."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from doap.cli import data_build, data_download, data_hpatches, data_list, data_mine, data_pairs, data_show, data_split
from doap.cli.console import errors, say
from doap.cli.data_show import open_with_bar
from doap.datasets.official.opening import locate
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.patch_set import PatchSet

app = typer.Typer(no_args_is_help=True, help="Get and make patch sets, and look at them.")
app.command("list", epilog=data_list.EXAMPLE)(data_list.list_sets)
app.command("download", epilog=data_download.EXAMPLE)(data_download.download)
app.command("build", epilog=data_build.EXAMPLE)(data_build.build)
app.command("mine", epilog=data_mine.EXAMPLE)(data_mine.mine)
app.command("show", epilog=data_show.EXAMPLE)(data_show.show)
app.command("split", epilog=data_split.EXAMPLE)(data_split.split)
app.command("pairs", epilog=data_pairs.EXAMPLE)(data_pairs.pairs)
app.command("hpatches", epilog=data_hpatches.EXAMPLE)(data_hpatches.hpatches)


@app.command(epilog="Example: doap data info sets/mine --verify")
def info(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, a frame set, or an official folder.")],
    verify: Annotated[bool, typer.Option(help="Check every byte against its checksum.")] = False,
) -> None:
    """Say what a set holds, and whether it is whole."""
    found = open_with_bar(path)
    sizes = np.diff(found.members_start)
    say(repr(found))
    held = "patches" if isinstance(found, PatchSet) else "frames"
    say(f"  groups of {sizes.min()} to {sizes.max()} {held}, {sizes.mean():.1f} on average")
    if len(found.overlaps):
        say(f"  {len(found.overlaps):,} pairs of groups overlap in a photo")
    if isinstance(found, PatchSet):
        say(f"  extent {found.extent:g}; labels: {', '.join(found.labels) or 'none'}")
    else:
        counts = np.bincount(found.sources, minlength=len(SOURCES))
        said = ", ".join(f"{name} {count:,}" for name, count in zip(SOURCES, counts, strict=True))
        say(f"  extent {found.extent:g}; frames by source: {said}")
    if verify:
        with errors.status("checking every byte"):
            if isinstance(found, PatchSet):
                PatchSet.verify(locate(path))
            else:
                FrameSet.verify(path)
        say("  every checksum is right")
