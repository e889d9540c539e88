"""What the readers of official data sets share: files taken exactly as published, or refused."""

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from doap.errors import DoapError
from doap.types import Grey


def read_exact_grey(file: Path) -> Grey:
    """Read an 8-bit grey picture as it is stored, (H, W) uint8.

    Anything else is refused rather than converted: a benchmark whose pixels were changed on the way is
    another benchmark. A PNG's own checksums are compared too, which decoding alone does not do.

    Raises:
        DoapError: one line that names the file and the error.
    """
    try:
        with Image.open(file) as picture:
            if picture.mode != "L":
                raise DoapError(
                    f"{file}: pixels are {_kind(picture.mode)}, not 8-bit grey; get the official file again"
                )
            picture.verify()
        with Image.open(file) as picture:  # verify leaves a picture that cannot be read on
            return np.asarray(picture)
    except FileNotFoundError as error:
        raise DoapError(f"{file}: no such file; get the official data again") from error
    except UnidentifiedImageError as error:
        raise DoapError(f"{file}: not a picture in a format that can be read") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DoapError(f"{file}: damaged, cannot be read as a picture ({error})") from error


def _kind(mode: str) -> str:
    if mode == "1":
        return "black and white"
    return "deeper than 8 bit" if mode[0] in "IF" else f"in colour ({mode})"
