"""`doap data build`: a set from anybody's photos."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import counting_bar, say, say_overlaps
from doap.datasets.build.assembly import BuildSettings
from doap.datasets.build.building import build as build_set
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.patch_set import PatchSet
from doap.images.reconstruction.colmap import has_colmap

EXAMPLE = "Example: doap data build photos/ -o sets/mine"
DEFAULT = BuildSettings()


def build(
    photos: Annotated[list[Path], typer.Argument(metavar="PHOTOS…", help="Pictures, or folders of them.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The set to make, a folder.")],
    frames: Annotated[
        bool, typer.Option("--frames", help="Hold photos and frames instead of pixels: a frame set.")
    ] = False,
    points: Annotated[int, typer.Option(min=20, help="Groups a photo or still view gives at most.")] = DEFAULT.points,
    views: Annotated[bool, typer.Option(help="Take jittered views of single photos.")] = DEFAULT.views,
    fixed: Annotated[bool, typer.Option(help="Take pictures of still views: brackets, webcams.")] = DEFAULT.fixed,
    tracks: Annotated[bool, typer.Option(help="Track points through overlapping photos.")] = DEFAULT.tracks,
    longest: Annotated[int, typer.Option(min=64, help="Shrink photos to this longer side.")] = DEFAULT.longest,
    extent: Annotated[float, typer.Option(min=0.1, help="Half the patch's side in keypoint scales.")] = DEFAULT.extent,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the build.")] = DEFAULT.seed,
) -> None:
    """Make a set from photos, from whatever they offer.

    Photos of a scene, and pictures of a still view, must share a folder. Overlapping photos are reconstructed and their
    points tracked; pictures of a still view give the same frames under different light; every other photo gives
    jittered views. A stopped build goes on when it is started again. summary.html in the set shows what came of it.
    """
    settings = BuildSettings(points, views, fixed, tracks, longest, extent, seed)
    with counting_bar() as bar:
        task = bar.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        built = build_set(photos, output, settings, not frames, show)
    say(f"{(FrameSet if frames else PatchSet).open(output)} in {output}")
    for scene in built.scenes:
        if scene.found.source != "views":
            say(f"  {scene.name}: {scene.found.note}")
    say_overlaps()
    if tracks and not has_colmap():
        say("pycolmap is not installed (pip install 'doap[colmap]'): tracks come from homographies alone", "yellow")
    for line in built.left_out:
        say(f"left out: {line}", style="yellow")
    say(f"how it looks: {output / 'summary.html'}")
