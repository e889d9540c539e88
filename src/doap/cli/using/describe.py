"""`doap describe`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.choices import DEFAULT_DETECTOR, DETECTOR_NAMES, StoredPrecision
from doap.cli.console import say, step_bar
from doap.cli.options.engine import EngineOption, ForceOption, WorkersOption
from doap.cli.options.model import (
    DeviceOption,
    DimensionsOption,
    FramesOption,
    ModelOption,
    PrecisionOption,
    choose_model_device,
)
from doap.errors import DoapError, inflect
from doap.networks import DEFAULT_MODEL, with_length

if TYPE_CHECKING:
    from doap.folders import DescribeSummary

EXAMPLE = "Example: doap describe photos/ -o features.h5 --model doap-256b"


def describe(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES…", help="Folder of images, or images.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="HDF5 file (.h5), or folder for one NAME.npz per image.")
    ],
    model: ModelOption = DEFAULT_MODEL,
    dimensions: DimensionsOption = None,
    precision: PrecisionOption = "fast",
    detector: Annotated[str, typer.Option(help=f"Detector: {', '.join(DETECTOR_NAMES)}.")] = DEFAULT_DETECTOR,
    frames: FramesOption = "detected",
    max_keypoints: Annotated[int, typer.Option(min=1, help="Number of strongest keypoints per image.")] = 2000,
    min_response: Annotated[float, typer.Option(min=0, help="Smallest response of a keypoint.")] = 0.0,
    max_size: Annotated[
        int | None, typer.Option(min=16, help="Reduce larger images to this longer side in pixels.")
    ] = None,
    masks: Annotated[
        Path | None, typer.Option(help="Folder of masks NAME.png; keypoints where a mask is 0 are left out.")
    ] = None,
    store: Annotated[
        StoredPrecision,
        typer.Option(help="Format of real-valued descriptors: float16 halves the file, uint8 quarters it."),
    ] = "float32",
    device: DeviceOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    force: ForceOption = False,
) -> None:
    """Detect keypoints in all images of a folder and describe them.

    All cores are used, or the GPU. An interrupted run continues when it is started again: only new and changed images
    are described. An image is named by its path in the folder. Images that cannot be read are listed; the exit status
    is 1 only if none can be read. docs/folders.md describes the files.
    """
    from doap.folders import DescribeSettings, describe_folder

    name = with_length(model, dimensions)
    settings = DescribeSettings(name, precision, detector, frames, max_keypoints, min_response, max_size, store)
    with step_bar() as progress:
        summary = describe_folder(
            images,
            output,
            settings,
            masks=masks,
            device=choose_model_device(device, precision, engine),
            engine=engine,
            workers=workers,
            force=force,
            progress=lambda done, total: progress("describing", done, total),
        )
    _report(summary, output)


def _report(summary: "DescribeSummary", output: Path) -> None:
    """Print what was done.

    Raises:
        DoapError: If no image could be described.
    """
    for line in summary.failures:
        say(f"skipped: {line}", style="yellow")
    for name in summary.without_keypoints:
        say(f"no keypoint: {name}", style="yellow")
    done = summary.described + summary.unchanged
    total = done + len(summary.failures)
    images = inflect(total, "image")
    if not done:
        raise DoapError(f"none of {total} {images} could be described, the first: {summary.failures[0]}")
    earlier = f", {summary.unchanged} of them by an earlier run" if summary.unchanged else ""
    kept = inflect(summary.others, "image in it is kept", "images in it are kept")
    others = f"; {summary.others} other {kept}" if summary.others else ""
    say(f"{done} of {total} {images} described in {output}{earlier}{others}")
