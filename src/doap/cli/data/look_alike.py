"""`doap data look-alike`: sets in the official formats from photos."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from doap.choices import MAX_SEED
from doap.cli.console import say, step_bar
from doap.datasets.build.settings import LookAlikeSettings
from doap.errors import inflect

EXAMPLE = "Example: doap data look-alike sets/frames -o sets/look-alike"
DEFAULT = LookAlikeSettings()


def look_alike(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A frame set with tracked points, or a folder of photos.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to create, or to continue.")],
    quick: Annotated[bool, typer.Option("--quick", help="Make small sets, to try a protocol.")] = False,
    jitter: Annotated[
        bool, typer.Option(help="Cut Phototour patches as easy and hard jittered views; plain ones are very easy.")
    ] = DEFAULT.jitter,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Seed of scenes, points, pairs, warps and jitter.")
    ] = DEFAULT.seed,
) -> None:
    """Make sets in the formats of Phototour, RomePatches and HPatches from photos, where the official data is missing.

    Phototour and RomePatches patches show points tracked through overlapping photos; HPatches sequences are warped and
    relit photos. Sets and halves share no scene. Figures on these sets compare methods with each other; they cannot be
    compared with figures on the official data. An interrupted run continues when it is started again.
    """
    from doap.datasets.build.look_alike import PHOTOTOUR_SETS, make_look_alike, read_record
    from doap.datasets.official.romepatches import HALVES

    sizes = LookAlikeSettings.quick() if quick else DEFAULT
    settings = replace(sizes, jitter=jitter, seed=seed)
    with step_bar() as progress:
        make_look_alike(source, output, settings, progress)
    sets = read_record(output)["sets"]
    for name in PHOTOTOUR_SETS:
        counts = sets[name]
        photos, scenes = counts["photos"], len(counts["scenes"])
        say(
            f"{output / name}: {counts['patches']:,} patches of {counts['points']:,} points in {photos:,} "
            f"{inflect(photos, 'photo')} of {scenes} {inflect(scenes, 'scene')}, {counts['pairs']:,} pairs"
        )
    for half in HALVES:
        counts = sets["romepatches"][half]
        filled, scenes = counts["groups filled with jittered views"], len(counts["scenes"])
        say(
            f"{output / 'romepatches'}, {half}: {counts['groups']:,} groups of 10 patches, {filled:,} of them filled "
            f"with jittered views, {scenes} {inflect(scenes, 'scene')}"
        )
    counts = sets["hpatches"]
    say(
        f"{output / 'hpatches'}: {len(counts['train'])} train and {len(counts['test'])} test sequences, "
        f"{counts['points']:,} points"
    )
