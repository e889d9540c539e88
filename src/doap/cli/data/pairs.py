"""`doap data pairs`: image pairs with ground truth, for evaluation."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from doap.choices import MAX_SEED
from doap.cli.console import counting_bar, say
from doap.cli.opening import open_with_bar
from doap.datasets.build.settings import PairSettings
from doap.errors import DoapError, inflect

EXAMPLE = "Example: doap data pairs sets/split/val -o sets/val-pairs"
DEFAULT = PairSettings()
MEANINGS = {"i": "of static views", "v": "of single photos with copies", "s": "of overlapping photos"}


def pairs(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A frame set of photos that nothing is trained on.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to create, for doap eval pairs.")],
    per_scene: Annotated[
        int, typer.Option(min=1, help="Maximum number of pairs of overlapping photos per scene.")
    ] = DEFAULT.per_scene,
    copies: Annotated[
        int, typer.Option(min=1, help="Pairs per static view or single photo; 5 give sequences for data hpatches.")
    ] = DEFAULT.copies,
    singles: Annotated[int, typer.Option(min=0, help="Maximum number of single photos to copy.")] = DEFAULT.singles,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Seed of the selection, the warps and the light.")
    ] = DEFAULT.seed,
) -> None:
    """Make image pairs with known geometry from a frame set, to evaluate descriptors on.

    Static views give photos under different light, unchanged and warped. Overlapping photos give the pairs with the
    larger camera motion, if the points they share determine the geometry. Single photos are paired with warped and
    relit copies.
    """
    from doap.datasets.build.image_pairs import count_left_out, make_pairs
    from doap.datasets.sets.frame_set import FrameSet
    from doap.datasets.sets.scenes import MIN_COLLECTION_PHOTOS

    data = open_with_bar(path)
    if not isinstance(data, FrameSet):
        raise DoapError(f"{path}: image pairs need photos, and a patch set has none; build it with --frames")
    settings = PairSettings(per_scene, copies, singles, seed)
    with counting_bar() as bar:
        task = bar.add_task("making pairs", total=None)
        rows = make_pairs(
            data,
            output,
            settings,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    scenes = Counter(row.scene for row in rows)
    for prefix, meaning in MEANINGS.items():
        counts = [count for scene, count in scenes.items() if scene.startswith(f"{prefix}_")]
        if counts:
            say(f"{prefix}_: {_pairs_text(sum(counts))} {meaning}, {_scenes_text(len(counts))}")
    left_out = count_left_out(data, settings)
    if left_out:
        say(
            f"left out: {left_out} {inflect(left_out, 'photo')} of folders with fewer than {MIN_COLLECTION_PHOTOS} "
            "photos or with overlapping ones: such a folder is one scene, and one photo or static view of it is used",
            style="yellow",
        )
    say(f"{_pairs_text(len(rows))} of {_scenes_text(len(scenes))} in {output}")


def _pairs_text(count: int) -> str:
    return f"{count} {inflect(count, 'pair')}"


def _scenes_text(count: int) -> str:
    return f"{count} {inflect(count, 'scene')}"
