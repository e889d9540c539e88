"""`doap dbow`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.choices import DEFAULT_DETECTOR, DETECTOR_NAMES, MAX_SEED
from doap.cli.console import counting_bar, say, step_bar
from doap.cli.options.engine import ForceOption, WorkersOption
from doap.cli.options.model import (
    DeviceOption,
    DimensionsOption,
    FramesOption,
    ModelOption,
    PrecisionOption,
    choose_model_device,
    load_model,
)
from doap.errors import DoapError, inflect
from doap.networks import with_length

if TYPE_CHECKING:
    from doap.bridges.dbow import BuildSummary
    from doap.folders import DescribeSettings

EXAMPLE = "Example: doap dbow photos/ -o voc.txt --model doap-256b"
CALIBRATION_IMAGES = 12


def dbow(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES…", help="Folder of images, or images.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="voc.txt for ORB-SLAM, voc.dbow3 for DBoW3, voc.yml or voc.yml.gz for DBoW2 and 3."
        ),
    ],
    model: ModelOption = "doap-256b",
    dimensions: DimensionsOption = None,
    k: Annotated[int, typer.Option("-k", help="Number of children of a node.")] = 10,
    levels: Annotated[int, typer.Option("-L", "--levels", help="Number of levels; there are up to k^L words.")] = 6,
    features: Annotated[
        Path | None,
        typer.Option(help="Features of the images, .h5 file or folder; by default NAME-features beside the output."),
    ] = None,
    precision: PrecisionOption = "fast",
    detector: Annotated[str, typer.Option(help=f"Detector: {', '.join(DETECTOR_NAMES)}.")] = DEFAULT_DETECTOR,
    frames: FramesOption = "detected",
    max_keypoints: Annotated[int, typer.Option(min=1, help="Number of strongest keypoints per image.")] = 1000,
    max_size: Annotated[
        int | None, typer.Option(min=16, help="Reduce larger images to this longer side in pixels.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Seed of the clusters; the same seed gives the same file.")
    ] = 0,
    device: DeviceOption = None,
    workers: WorkersOption = None,
    force: ForceOption = False,
) -> None:
    """Train a vocabulary for ORB-SLAM, DBoW2 or DBoW3 on the images of a folder, and calibrate its thresholds.

    An interrupted run continues when it is started again. The thresholds TH_LOW and TH_HIGH of ORB-SLAM's matcher are
    those that accept the same share of wrong pairs as 50 and 100 do for ORB on the same images. docs/bridges/slam.md
    describes the files and how to use them.
    """
    from doap.bridges.dbow import build_vocabulary
    from doap.folders import DescribeSettings

    name = with_length(model, dimensions)
    settings = DescribeSettings(name, precision, detector, frames, max_keypoints, max_size=max_size)
    chosen = choose_model_device(device, precision)
    with step_bar() as progress:
        summary = build_vocabulary(
            images,
            output,
            settings,
            k=k,
            levels=levels,
            features=features,
            seed=seed,
            device=chosen,
            workers=workers,
            force=force,
            progress=progress,
        )
    _report(summary, output)
    _calibrate(summary.images, settings, chosen, seed)


def calibration_images(images: list[Path]) -> list[Path]:
    """Return the images to calibrate on: CALIBRATION_IMAGES evenly spaced ones, or all if there are fewer."""
    count = min(len(images), CALIBRATION_IMAGES)
    return [images[number * len(images) // count] for number in range(count)]


def _report(summary: "BuildSummary", output: Path) -> None:
    """Print what was described and trained."""
    described, vocabulary = summary.described, summary.vocabulary
    for line in described.failures:
        say(f"skipped: {line}", style="yellow")
    earlier = f", {described.unchanged} of them described by an earlier run" if described.unchanged else ""
    say(f"{summary.descriptors:,} descriptors of {len(summary.images)} images in {summary.features}{earlier}")
    say(f"{len(vocabulary):,} words (k = {vocabulary.branching}, L = {vocabulary.depth}) in {output}")
    if 2 * len(vocabulary) > summary.descriptors:
        say(
            "most words have a single descriptor: use more images, or a smaller L for a smaller and faster vocabulary",
            style="yellow",
        )


def _calibrate(images: list[Path], settings: "DescribeSettings", device: str, seed: int) -> None:
    """Calibrate the thresholds on some of the images, and print them; the vocabulary is of use without them."""
    from doap.bridges.dbow import calibrate_thresholds

    model = load_model(settings.model, device, settings.precision)
    chosen = calibration_images(images)
    try:
        with counting_bar() as bar:
            thresholds = calibrate_thresholds(
                bar.track(chosen, description="calibrating"),
                model,
                detector=settings.detector,
                frames=settings.frames,
                max_keypoints=settings.max_keypoints,
                seed=seed,
            )
    except DoapError as error:
        say(f"no thresholds: {error}", style="yellow")
        return
    count = len(thresholds.distances)
    say(f"thresholds that accept as many wrong pairs as ORB's, medians of {count} {inflect(count, 'image')}:")
    say(f"{'descriptor':<16} {'threshold':<14} {'wrong pairs':>12} {'correct pairs':>14}")
    for descriptor, name, threshold, wrong, correct in thresholds.table():
        label = model.name if descriptor == "model" else descriptor
        say(f"{label:<16} {name + ' = ' + str(threshold):<14} {100 * wrong:>10.3f} % {100 * correct:>12.1f} %")
