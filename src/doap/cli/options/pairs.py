"""Options of the commands that match real images."""

from typing import Annotated

import typer

from doap.choices import DETECTOR_NAMES
from doap.errors import DoapError, check_choice
from doap.extents import check_extent

Detector = Annotated[str, typer.Option(metavar="NAME", help=f"Keypoint detector: {', '.join(DETECTOR_NAMES)}.")]
Extent = Annotated[
    str,
    typer.Option(
        metavar="FACTOR|own",
        help="Half a patch's side in units of the keypoint's scale, the same for all descriptors. "
        "own: each descriptor uses its own, and SIFT is computed in the image.",
    ),
]
Keypoints = Annotated[int, typer.Option(min=1, help="Number of strongest keypoints per image.")]


def check_detector(name: str) -> None:
    """Raise DoapError if there is no detector of this name."""
    check_choice("--detector", name, DETECTOR_NAMES)


def parse_extent(text: str) -> float | None:
    """Return the value of `--extent`; None is each descriptor's own."""
    if text == "own":
        return None
    try:
        return check_extent(float(text))
    except (ValueError, DoapError):
        raise DoapError(f"--extent: must be a number greater than 0, or own; not {text}") from None
