"""`doap data build`: a set from photos."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import MAX_SEED
from doap.cli.console import say, say_overlaps, step_bar
from doap.cli.options.engine import EngineOption, WorkersOption
from doap.datasets.build.settings import MAX_LONGEST, MIN_LONGEST, BuildSettings

EXAMPLE = "Example: doap data build photos/ -o sets/mine"
DEFAULT = BuildSettings()


def build(
    photos: Annotated[list[Path], typer.Argument(metavar="PHOTOS…", help="Photos, or folders of them.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The set to create, a folder.")],
    frames: Annotated[
        bool, typer.Option("--frames", help="Create a frame set, of photos and frames, instead of a patch set.")
    ] = False,
    points: Annotated[
        int, typer.Option(min=20, help="Maximum number of groups per photo or static view.")
    ] = DEFAULT.points,
    views: Annotated[bool, typer.Option(help="Use jittered views of single photos.")] = DEFAULT.views,
    static: Annotated[
        bool, typer.Option(help="Use photos of static views: exposure brackets, webcams.")
    ] = DEFAULT.static,
    tracks: Annotated[bool, typer.Option(help="Use points tracked through overlapping photos.")] = DEFAULT.tracks,
    longest: Annotated[
        int, typer.Option(min=MIN_LONGEST, max=MAX_LONGEST, help="Shrink photos to this longer side in pixels.")
    ] = DEFAULT.longest,
    extent: Annotated[
        float, typer.Option(min=0.1, help="Half the side of a patch in keypoint scales.")
    ] = DEFAULT.extent,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the build.")] = DEFAULT.seed,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
) -> None:
    """Build a set from photos.

    Photos of one scene, and photos of one static view, must be in one folder. Overlapping photos are reconstructed and
    their points tracked. Photos of a static view give the same frames under different light. All other photos give
    jittered views. All cores are used. An interrupted build continues when it is started again. summary.html in the set
    shows the result.
    """
    from doap.datasets.build.building import build as build_set
    from doap.datasets.sets.frame_set import FrameSet
    from doap.datasets.sets.patch_set import PatchSet
    from doap.images.reconstruction.colmap import has_colmap

    settings = BuildSettings(points, views, static, tracks, longest, extent, seed)
    with step_bar() as progress:
        result = build_set(photos, output, settings, not frames, progress, engine, workers)
    say(f"{(FrameSet if frames else PatchSet).open(output)} in {output}")
    for scene in result.scenes:
        if scene.frames.source != "views":
            say(f"  {scene.name}: {scene.frames.note}")
    say_overlaps()
    if tracks and not has_colmap():
        say("pycolmap is not installed (pip install 'doap[sfm]'): tracks come from homographies only", "yellow")
    for line in result.skipped:
        say(f"skipped: {line}", style="yellow")
    say(f"summary: {output / 'summary.html'}")
