"""Pictures of a visitor: what is kept of them while their matches are shown."""

import base64
import hashlib
import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from doap.app.match.examples import list_examples
from doap.app.settings import AppSettings
from doap.app.uploads import read_upload_grey
from doap.features.image_input import shrink_image
from doap.files import printable
from doap.types import Grey

SHOWN_SIDE = 800  # pixels of the longer side on the page
QUALITY = 82  # of JPEG


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture.

    Attributes:
        path: The file on the server.
        source: Path or name of the file for the visitor: an example's path, or the name of an upload.
        is_example: Whether it is one of the examples.
        size: (height, width).
        shown: The picture at the size of the page, grey.
    """

    path: Path
    source: str
    is_example: bool
    size: tuple[int, int]
    shown: Grey

    @property
    def name(self) -> str:
        """Name of the file."""
        return printable(Path(self.source).name)


def read_picture(path: str, settings: AppSettings) -> tuple[Picture, Grey]:
    """Decode a picture safely; return what the page keeps, and the grey image in full size.

    Raises:
        DoapError: If it is too large, damaged, or not a picture.
    """
    grey = read_upload_grey(path, settings)
    example = _example_paths().get(_digest(Path(path)))
    shown = np.asarray(shrink_image(grey, SHOWN_SIDE))
    source = str(example) if example else Path(path).name
    return Picture(Path(path), source, example is not None, (grey.shape[0], grey.shape[1]), shown), grey


def jpeg_uri(image: Grey, quality: int = QUALITY) -> str:
    """Return an image as a data URI."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


@lru_cache(1)
def _example_paths() -> dict[str, Path]:
    return {_digest(path): path for example in list_examples() for path in example.paths}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
