"""The options that the verbs which match real images share."""

from typing import Annotated

import typer

from doap.errors import DoapError
from doap.images.detectors import DETECTORS

Detector = Annotated[str, typer.Option(metavar="NAME", help=f"What finds the keypoints: {', '.join(DETECTORS)}.")]
Extent = Annotated[
    str,
    typer.Option(
        metavar="FACTOR|own",
        help="Half a patch's side in units of the keypoint's scale, the same for all descriptors; "
        "own: each at its own, SIFT in the image.",
    ),
]
Keypoints = Annotated[int, typer.Option(min=1, help="Strongest keypoints of each image.")]


def check_detector(name: str) -> None:
    """Refuse a detector that does not exist."""
    if name not in DETECTORS:
        raise DoapError(f"--detector: {name} is none of {', '.join(DETECTORS)}")


def extent_from(text: str) -> float | None:
    """What `--extent` asks for; None is each descriptor's own."""
    if text == "own":
        return None
    try:
        extent = float(text)
    except ValueError:
        extent = 0.0
    if not 0 < extent <= 1000:
        raise DoapError(f"--extent: a factor over 0, or own; not {text}")
    return extent
