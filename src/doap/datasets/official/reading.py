"""Exact reading of the images of official data sets."""

from pathlib import Path

import numpy as np

from doap.errors import DoapError
from doap.images.reading import open_image
from doap.types import Grey

ADVICE = "get the official file again"


def read_exact_grey(file: Path) -> Grey:
    """Read an 8-bit grey image as it is stored, (H, W) uint8.

    Other images are refused rather than converted, since converted pixels would change a benchmark. The checksums of
    PNG files are verified, which decoding alone does not do.

    Raises:
        DoapError: If the file is missing, damaged or not 8-bit grey.
    """
    with open_image(file, file, ADVICE) as image:
        if image.mode != "L":
            raise DoapError(f"{file}: pixels are {_describe_mode(image.mode)}, not 8-bit grey; {ADVICE}")
        image.verify()
    with open_image(file, file, ADVICE) as image:  # an image cannot be decoded after verify()
        return np.asarray(image)


def _describe_mode(mode: str) -> str:
    if mode == "1":
        return "black and white"
    return "deeper than 8 bit" if mode[0] in "IF" else f"in colour ({mode})"
