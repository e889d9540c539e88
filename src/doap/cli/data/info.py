"""`doap data info`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import errors, say
from doap.cli.opening import open_with_bar
from doap.errors import inflect

EXAMPLE = "Example: doap data info sets/mine --verify"


def info(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, a frame set, or an official folder.")],
    verify: Annotated[bool, typer.Option(help="Check every byte against its checksum.")] = False,
) -> None:
    """Print the content of a set."""
    import numpy as np

    from doap.datasets.official.opening import locate
    from doap.datasets.sets.frame_set import SOURCES, FrameSet
    from doap.datasets.sets.patch_set import PatchSet

    data = open_with_bar(path)
    sizes = np.diff(data.members_start)
    say(repr(data))
    items = "patches" if isinstance(data, PatchSet) else "frames"
    say(f"  groups of {sizes.min()} to {sizes.max()} {items}, {sizes.mean():.1f} on average")
    if pairs := len(data.overlaps):
        say(f"  {pairs:,} {inflect(pairs, 'pair of groups overlaps', 'pairs of groups overlap')} in a photo")
    if isinstance(data, PatchSet):
        say(f"  extent {data.extent:g}; labels: {', '.join(data.labels) or 'none'}")
    else:
        counts = np.bincount(data.sources, minlength=len(SOURCES))
        by_source = ", ".join(f"{name} {count:,}" for name, count in zip(SOURCES, counts, strict=True))
        say(f"  extent {data.extent:g}; frames by source: {by_source}")
    if verify:
        with errors.status("checking every byte"):
            if isinstance(data, PatchSet):
                PatchSet.verify(locate(path))
            else:
                FrameSet.verify(path)
        say("  every checksum is correct")
