"""`doap match`: two images, or many pairs of a collection."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from doap.cli.options.engine import EngineOption, ForceOption, WorkersOption
from doap.cli.options.model import DeviceOption, DimensionsOption, FramesOption, ModelOption, PrecisionOption
from doap.cli.options.unused import check_unused
from doap.errors import DoapError
from doap.networks import DEFAULT_MODEL, with_length

EXAMPLE = "Example: doap match left.jpg right.jpg -o matches.png, or doap match features.h5 --retrieve 20 -o matches.h5"

DESCRIBING_OPTIONS = ("model", "dimensions", "precision", "frames", "max_keypoints", "max_size", "device")
DESCRIBED = "features, which are described already"

GeometryChoice = Literal["fundamental", "homography", "essential", "none"]


def match(
    context: typer.Context,
    first: Annotated[Path, typer.Argument(metavar="A", help="Image, its features (.npz, .h5), or those of a folder.")],
    second: Annotated[Path | None, typer.Argument(metavar="B", help="Second image or its features.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Picture (.png, .jpg, .pdf) of two images, by default matches.png; or .h5 file of many pairs.",
        ),
    ] = None,
    figure: Annotated[bool, typer.Option("--figure/--no-figure", help="Draw the matches of two images.")] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write points and geometry of two images to this file.")
    ] = None,
    pairs: Annotated[Path | None, typer.Option(help="Match the pairs of this file, two names per line.")] = None,
    exhaustive: Annotated[bool, typer.Option("--exhaustive", help="Match all pairs.")] = False,
    retrieve: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="Match each image with the K most similar ones.")
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="Synthesise tilted views of two images, step by step, until they match.")
    ] = False,
    model: ModelOption = DEFAULT_MODEL,
    dimensions: DimensionsOption = None,
    precision: PrecisionOption = "fast",
    frames: FramesOption = "detected",
    max_keypoints: Annotated[int, typer.Option(min=1, help="Number of strongest keypoints per image.")] = 2000,
    max_size: Annotated[
        int | None, typer.Option(min=16, help="Reduce larger images to this longer side in pixels.")
    ] = None,
    mutual: Annotated[bool, typer.Option(help="Keep only mutual nearest neighbours.")] = True,
    ratio: Annotated[
        float | None, typer.Option(help="Keep matches below this ratio of distance to second distance, e.g. 0.9.")
    ] = None,
    max_distance: Annotated[
        float | None, typer.Option(min=0, help="Keep matches up to this distance: 0 to 2, or a number of bits.")
    ] = None,
    geometry: Annotated[
        GeometryChoice,
        typer.Option(
            help="fundamental: any scene; homography: planar scene or rotating camera; essential: with intrinsics."
        ),
    ] = "fundamental",
    threshold: Annotated[float, typer.Option(min=0.01, help="Largest error of an inlier, in pixels.")] = 1.5,
    intrinsics: Annotated[
        str | None, typer.Option(metavar="FX,FY,CX,CY", help="Focal lengths and principal point, for essential.")
    ] = None,
    device: DeviceOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    force: ForceOption = False,
) -> None:
    """Match two images, or many pairs of images that doap describe has described.

    Finding no matches is a result, not an error: it is reported, and the exit status is 0. Many pairs are matched by
    all cores, and an interrupted run continues when it is started again; docs/folders.md describes the file.
    """
    from doap.folders import MatchSettings

    chosen = None if geometry == "none" else geometry
    if chosen is None:
        check_unused(context, ("threshold",), "matches that are not verified")
    settings = MatchSettings(mutual, ratio, max_distance, chosen, threshold, parse_intrinsics(intrinsics))
    if pairs is not None or exhaustive or retrieve is not None:
        from doap.cli.using.match_many import match_many

        if second is not None:
            raise DoapError("--pairs, --exhaustive and --retrieve take one argument, the features of a folder")
        if wide:
            raise DoapError("--wide takes two images, not --pairs, --exhaustive or --retrieve")
        check_unused(context, DESCRIBING_OPTIONS, DESCRIBED)
        check_unused(context, ("json_file", "figure"), "many pairs, whose matches are written to a .h5 file")
        match_many(first, output or Path("matches.h5"), (pairs, exhaustive, retrieve), settings, engine, workers, force)
        return
    if second is None:
        raise DoapError(
            f"{first}: name a second image, or which pairs of a folder to match: --pairs, --exhaustive or --retrieve"
        )
    from doap.cli.using.match_two import Describing, match_two
    from doap.features.storage import SUFFIXES

    if all(path.suffix in SUFFIXES for path in (first, second)):
        check_unused(context, DESCRIBING_OPTIONS, DESCRIBED)
    check_unused(context, ("workers", "engine", "force"), "two images")
    if not figure:
        check_unused(context, ("output",), "matches that are not drawn")
    describing = Describing(with_length(model, dimensions), precision, frames, max_keypoints, max_size, device)
    match_two((first, second), describing, settings, output, figure, json_file, wide)


def parse_intrinsics(text: str | None) -> tuple[float, float, float, float] | None:
    """Read "FX,FY,CX,CY".

    Raises:
        DoapError: If these are not four numbers.
    """
    if text is None:
        return None
    try:
        fx, fy, cx, cy = (float(part) for part in text.split(","))
    except ValueError as error:
        raise DoapError(f"--intrinsics {text}: must be four numbers, FX,FY,CX,CY") from error
    return fx, fy, cx, cy
