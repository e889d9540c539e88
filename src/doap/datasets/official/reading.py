"""Exact reading of the images of official data sets."""

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from doap.errors import DoapError
from doap.types import Grey


def read_exact_grey(file: Path) -> Grey:
    """Read an 8-bit grey image as it is stored, (H, W) uint8.

    Other images are refused rather than converted, since converted pixels would change a benchmark. The checksums of
    PNG files are verified, which decoding alone does not do.

    Raises:
        DoapError: If the file is missing, damaged or not 8-bit grey.
    """
    try:
        with Image.open(file) as image:
            if image.mode != "L":
                raise DoapError(
                    f"{file}: pixels are {_describe_mode(image.mode)}, not 8-bit grey; get the official file again"
                )
            image.verify()
        with Image.open(file) as image:  # an image cannot be decoded after verify()
            return np.asarray(image)
    except FileNotFoundError as error:
        raise DoapError(f"{file}: no such file; get the official data again") from error
    except UnidentifiedImageError as error:
        raise DoapError(f"{file}: not an image, or in an unknown format; get the official file again") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DoapError(f"{file}: damaged, cannot be decoded ({error}); get the official file again") from error


def _describe_mode(mode: str) -> str:
    if mode == "1":
        return "black and white"
    return "deeper than 8 bit" if mode[0] in "IF" else f"in colour ({mode})"
