"""`doap data pairs`: image pairs to judge by, from photos that were set aside."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import counting_bar, say
from doap.cli.data_show import open_with_bar
from doap.datasets.build.image_pairs import Wanted, make_pairs
from doap.datasets.sets.frame_set import FrameSet
from doap.errors import DoapError

EXAMPLE = "Example: doap data pairs sets/split/aside -o sets/aside-pairs"
SAID = {"i": "of still views", "v": "of single photos with copies", "s": "of overlapping photos"}


def pairs(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A frame set: photos that nothing is trained on.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make, for doap eval pairs.")],
    per_scene: Annotated[
        int, typer.Option(min=1, help="Pairs of overlapping photos a scene at most.")
    ] = Wanted.per_scene,
    copies: Annotated[
        int, typer.Option(min=1, help="Pairs a still view or single photo gives; 5 make sequences for data hpatches.")
    ] = Wanted.copies,
    singles: Annotated[int, typer.Option(min=0, help="Single photos to copy at most.")] = Wanted.singles,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the choice, the warps and the light.")] = Wanted.seed,
) -> None:
    """Make image pairs whose geometry is known, to judge descriptors by, from a frame set.

    Still views give pictures under different light, as they are and warped; overlapping photos the pairs that moved
    more, where the points they share prove a geometry; single photos are matched with warped and relit copies.
    """
    found = open_with_bar(path)
    if not isinstance(found, FrameSet):
        raise DoapError(f"{path}: pairs are made of photos, and a patch set has none; build it with --frames")
    with counting_bar() as bar:
        task = bar.add_task("making pairs", total=None)
        rows = make_pairs(
            found,
            output,
            Wanted(per_scene, copies, singles, seed),
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    scenes = Counter(row.scene for row in rows)
    for kind, what in SAID.items():
        counts = [pairs for scene, pairs in scenes.items() if scene.startswith(f"{kind}_")]
        if counts:
            say(f"{kind}_: {sum(counts)} pairs {what}, {len(counts)} scenes")
    say(f"{len(rows)} pairs of {len(scenes)} scenes in {output}")
