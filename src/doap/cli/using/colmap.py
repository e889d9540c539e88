"""`doap colmap`."""

import shlex
import statistics
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from doap.choices import CAMERA_MODELS, DEFAULT_DETECTOR, DETECTOR_NAMES, CameraMode, PairChoice
from doap.cli.console import say, step_bar
from doap.cli.options.engine import EngineOption, WorkersOption
from doap.cli.options.model import (
    DeviceOption,
    DimensionsOption,
    FramesOption,
    ModelOption,
    PrecisionOption,
    choose_model_device,
)
from doap.cli.options.unused import check_unused
from doap.errors import DoapError, inflect
from doap.networks import DEFAULT_MODEL, with_length

if TYPE_CHECKING:
    from doap.bridges.colmap import PairSettings, ProjectSummary
    from doap.bridges.colmap.reconstruction import ReconstructionSummary

EXAMPLE = "Example: doap colmap photos/ -o project --reconstruct"

MODELS = "sparse"  # folder beside the database

CHOICES: tuple[PairChoice, ...] = get_args(PairChoice)


def colmap(
    context: typer.Context,
    images: Annotated[Path, typer.Argument(metavar="IMAGES", help="Folder of images.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PROJECT", help="Folder for database.db and features.")
    ] = None,
    database: Annotated[
        Path | None, typer.Option(help="Instead of a project: an existing COLMAP database of these images.")
    ] = None,
    model: ModelOption = DEFAULT_MODEL,
    dimensions: DimensionsOption = None,
    pairs: Annotated[
        str,
        typer.Option(
            metavar="exhaustive|retrieval|sequential|FILE",
            help="exhaustive: all pairs; retrieval: similar images; sequential: images that follow each other by name; "
            "or a file with two names per line.",
        ),
    ] = "exhaustive",
    neighbours: Annotated[
        int, typer.Option(min=1, help="Number of similar images, or of following ones, to match each image with.")
    ] = 20,
    quadratic: Annotated[
        bool, typer.Option("--quadratic", help="sequential: also match with the images 1, 2, 4, 8, … later.")
    ] = False,
    reconstruct: Annotated[
        bool, typer.Option("--reconstruct", help="Make the sparse model, by pycolmap or the colmap program.")
    ] = False,
    camera_model: Annotated[
        str, typer.Option(metavar="NAME", help=f"Model of new cameras: {', '.join(CAMERA_MODELS)}.")
    ] = "SIMPLE_RADIAL",
    camera_params: Annotated[
        str | None, typer.Option(metavar="F,CX,CY,…", help="Their parameters; by default the focal length of EXIF.")
    ] = None,
    camera_mode: Annotated[
        CameraMode,
        typer.Option(help="Images that share a camera; auto: those with the same device and focal length in EXIF."),
    ] = "auto",
    precision: PrecisionOption = "fast",
    detector: Annotated[str, typer.Option(help=f"Detector: {', '.join(DETECTOR_NAMES)}.")] = DEFAULT_DETECTOR,
    frames: FramesOption = "detected",
    max_keypoints: Annotated[int, typer.Option(min=1, help="Number of strongest keypoints per image.")] = 8192,
    min_response: Annotated[
        float, typer.Option(min=0, help="Smallest response of a keypoint; the default gives about as many as COLMAP.")
    ] = 0.005,
    max_size: Annotated[int, typer.Option(min=16, help="Reduce larger images to this longer side in pixels.")] = 3200,
    masks: Annotated[
        Path | None, typer.Option(help="Folder of masks NAME.png; keypoints where a mask is 0 are left out.")
    ] = None,
    ratio: Annotated[
        float,
        typer.Option(min=0.01, max=1.0, help="Keep matches below this ratio of distance to second distance."),
    ] = 0.95,
    max_distance: Annotated[
        float | None, typer.Option(min=0, help="Keep matches up to this distance: 0 to 2, or a number of bits.")
    ] = None,
    max_error: Annotated[
        float, typer.Option(help="Largest error of a verified match, relative to the longer side of the images.")
    ] = 0.0015,
    refine: Annotated[
        bool,
        typer.Option(
            "--refine/--no-refine", help="Move keypoints to where the patches of their matches align; drop the others."
        ),
    ] = True,
    min_share: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Drop pairs with less than this share of the matches of their images' best pairs, unless other pairs "
            "confirm their rotation.",
        ),
    ] = 0.1,
    device: DeviceOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    force: Annotated[
        bool, typer.Option("--force", help="Replace features and matches of other settings or programs, and models.")
    ] = False,
) -> None:
    """Make a COLMAP project: database with features, matches and verified geometry, and the sparse model.

    Real-valued descriptors are matched by Euclidean distance, binary ones by Hamming distance. An interrupted run
    continues when it is started again, also with new images. COLMAP 3.8 to 4.2 open the database.
    docs/bridges/colmap.md describes its tables.
    """
    from doap.bridges.colmap import CameraSettings, ProjectSettings, build_project, import_into_database
    from doap.bridges.colmap.cameras import parse_params
    from doap.folders import DescribeSettings, MatchSettings

    if (output is None) == (database is None):
        raise DoapError("name the project to write with -o, or a database of COLMAP with --database")
    if database is not None:
        check_unused(context, ("camera_model", "camera_params", "camera_mode"), "a database, whose cameras are kept")
    if pairs not in ("retrieval", "sequential"):
        check_unused(context, ("neighbours",), "other pairs than those of retrieval and sequential")
    if pairs != "sequential":
        check_unused(context, ("quadratic",), "other pairs than those of sequential")
    if reconstruct:
        _check_reconstruction(images, database, output or Path(), force)
    name = with_length(model, dimensions)
    settings = ProjectSettings(
        DescribeSettings(name, precision, detector, frames, max_keypoints, min_response, max_size),
        _pair_settings(pairs, neighbours, quadratic),
        MatchSettings(ratio=ratio, max_distance=max_distance),
        CameraSettings(camera_model, parse_params(camera_params) if camera_params else None, camera_mode),
        max_error,
        refine,
        min_share,
    )
    chosen = choose_model_device(device, precision, engine)
    if database is not None:
        make = partial(import_into_database, database, images)
    else:
        make = partial(build_project, images, output or Path())
    with step_bar() as progress:
        summary = make(
            settings, masks=masks, device=chosen, engine=engine, workers=workers, force=force, progress=progress
        )
    _report(summary)
    if reconstruct:
        _reconstruct(summary, images, force)
    else:
        say(f"next: {_command('gui', summary.database, images)}, or the same command with --reconstruct")


def _pair_settings(pairs: str, neighbours: int, quadratic: bool) -> "PairSettings":
    from doap.bridges.colmap import PairSettings

    for choice in CHOICES:
        if pairs == choice:
            return PairSettings(choice, neighbours, quadratic)
    if not Path(pairs).exists():
        raise DoapError(f"--pairs {pairs}: neither {', '.join(CHOICES)} nor a file; write two image names per line")
    return PairSettings(Path(pairs))


def _check_reconstruction(images: Path, database: Path | None, project: Path, force: bool) -> None:
    """Check that models can be written before hours of matching, as far as it can be known."""
    from doap.bridges.colmap.project import DATABASE, find_new_images
    from doap.bridges.colmap.reconstruction import check_output, choose_engine

    choose_engine()
    path = database or project / DATABASE
    models = path.with_name(MODELS)
    check_output(models, force=True)
    if _has_models(models) and not force and (new := find_new_images(path, images, added=database is None)):
        raise DoapError(
            f"{models}: holds models without {len(new)} new {inflect(len(new), 'image')}, such as {new[0]}; --force "
            "replaces the models, without --reconstruct they are kept"
        )


def _has_models(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _reconstruct(summary: "ProjectSummary", images: Path, force: bool) -> None:
    from doap.bridges.colmap.reconstruction import reconstruct

    output = summary.database.with_name(MODELS)
    if _has_models(output) and not force:
        if summary.described or summary.matched:  # images were replaced, or other pairs were chosen
            raise DoapError(f"{output}: holds models of earlier matches; --force replaces the models")
        say(f"{output}: holds models of an earlier run; --force replaces them")
        return
    with step_bar() as progress:
        made = reconstruct(
            summary.database,
            images,
            output,
            force=force,
            progress=lambda done, total: progress("reconstructing", done, total),
        )
    _report_models(made, output)
    say(f"next: {_command('gui', summary.database, images, output / '0')}")


def _report(summary: "ProjectSummary") -> None:
    for line in summary.failures:
        say(f"skipped: {line}", style="yellow")
    for name in summary.without_keypoints:
        say(f"no keypoint: {name}", style="yellow")
    earlier = summary.images - summary.described
    note = f", {earlier} of them described by an earlier run" if earlier else ""
    say(
        f"{summary.images} {inflect(summary.images, 'image')} of {summary.cameras} "
        f"{inflect(summary.cameras, 'camera')} with {summary.keypoints:,} {inflect(summary.keypoints, 'keypoint')} "
        f"in {summary.database}{note}"
    )
    pairs, agreeing = len(summary.verified), [count for count in summary.verified if count]
    note = f", {pairs - summary.matched} of them by an earlier run" if pairs > summary.matched else ""
    median = f", {statistics.median(agreeing):.0f} in the median" if agreeing else ""
    have = inflect(len(agreeing), "has", "have")
    say(f"{pairs} {inflect(pairs, 'pair')} matched{note}; {len(agreeing)} {have} verified matches{median}")
    if summary.weak:
        say(
            f"{summary.weak} {inflect(summary.weak, 'pair')} left out: few matches beside those of their images' best "
            "pairs, and not confirmed"
        )


def _report_models(made: "ReconstructionSummary", output: Path) -> None:
    for number, model in enumerate(made.models):
        say(
            f"{output / str(number)}: {model.registered_images} of {made.images} images, {model.points:,} points, "
            f"{model.observations:,} observations, error {model.mean_reprojection_error:.2f} pixels "
            f"({made.engine} {made.version})"
        )


def _command(name: str, database: Path, images: Path, model: Path | None = None) -> str:
    words = ["colmap", name, "--database_path", str(database), "--image_path", str(images)]
    return shlex.join(words + (["--import_path", str(model)] if model else []))
