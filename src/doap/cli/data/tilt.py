"""`doap data tilt`: views from the side of the photos of a frame set."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import DEFAULT_DETECTOR, MAX_SEED
from doap.cli.console import say, step_bar
from doap.cli.options.engine import WorkersOption
from doap.cli.options.pairs import Detector, check_detector
from doap.errors import check_choice

EXAMPLE = "Example: doap data tilt sets/split/train -o sets/tilted"


def tilt(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A frame set.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to create.")],
    photos: Annotated[int | None, typer.Option(min=1, help="Number of photos, sampled at random; default all.")] = None,
    views: Annotated[int, typer.Option(min=1, help="Number of views per photo.")] = 4,
    max_tilt: Annotated[float, typer.Option(min=1.0, max=20.0, help="Largest tilt of a view.")] = 8.0,
    max_size: Annotated[int, typer.Option(min=64, help="Longer side to which photos are reduced, in pixels.")] = 640,
    keypoints: Annotated[int, typer.Option(min=1, help="Number of strongest keypoints per view.")] = 1500,
    detector: Detector = DEFAULT_DETECTOR,
    light: Annotated[str, typer.Option(help="Change of light in the views: easy, hard or tough.")] = "tough",
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the views.")] = 0,
    workers: WorkersOption = None,
) -> None:
    """Make tilted views of photos, and a set of the frames that are detected in several of them.

    The set trains networks that correct frames (doap train-frames). It is a frame set, so doap train takes it, too.
    """
    from doap.datasets.sets.frame_set import FrameSet
    from doap.datasets.tilted.tilted_set import make_tilted_set
    from doap.datasets.tilted.views import TiltSettings
    from doap.files import check_output
    from doap.images.jitter.views import LEVELS

    check_output(output)
    check_detector(detector)
    check_choice("--light", light, LEVELS)
    data = FrameSet.open(path)
    settings = TiltSettings(views, max_tilt, keypoints, max_size, detector, light, seed)
    with step_bar() as progress:
        tilted = make_tilted_set(data, settings, photos, workers, lambda done, total: progress("views", done, total))
    tilted.save(output)
    say(f"{output}: {tilted.frames}")
