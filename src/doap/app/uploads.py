"""Pictures of visitors: a component that decodes nothing, and safe decoding within limits."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
from gradio import component_meta
from numpy.typing import NDArray
from PIL import Image, ImageOps

from doap.app.settings import AppSettings
from doap.errors import DoapError
from doap.files import printable
from doap.images.reading import open_image, to_grey
from doap.types import Grey

RgbImage = NDArray[np.uint8]
"""An RGB picture, (H, W, 3) uint8."""

ADVICE = "choose another picture"


@contextmanager
def without_stub() -> Iterator[None]:
    """Keep Gradio from writing a .pyi file beside a module when a component is defined."""
    write = component_meta.create_or_modify_pyi
    component_meta.create_or_modify_pyi = lambda *_: None
    try:
        yield
    finally:
        component_meta.create_or_modify_pyi = write


with without_stub():

    class UploadedImage(gr.Image):
        """An image of the visitor that reaches events as the path of its file, undecoded.

        Gradio's component opens files with all decoders of Pillow, of which one runs Ghostscript; `read_upload`
        decodes safely.
        """

        is_template = True  # shown by the parts of gr.Image

        def __init__(self, label: str, **options: Any) -> None:
            options = {
                "type": "filepath",
                "sources": ["upload", "clipboard"],
                "buttons": [],
                "alt_text": label,
            } | options
            super().__init__(label=label, **options)

        def get_config(self, cls: Any = None) -> dict[str, Any]:
            """Return the options for the browser: those that the constructor of gr.Image names."""
            return super().get_config(cls or gr.Image)

        def preprocess(self, payload: Any) -> str | None:
            """Return the path of the uploaded file, which Gradio has checked to be one of its own files."""
            return None if payload is None else payload.path


def check_upload(path: str | Path, settings: AppSettings) -> tuple[int, int]:
    """Check the format and the size of a picture by its header, without decoding it.

    Returns:
        Width and height as stored.

    Raises:
        DoapError: If it is not a picture in a known format, or too large.
    """
    name = printable(Path(path).name)
    try:
        size = Path(path).stat().st_size
    except OSError as error:
        raise DoapError(f"{name}: is no longer on the server; choose the picture again") from error
    if size > settings.max_upload_bytes:
        raise DoapError(f"{name}: has {size:,} bytes, more than {settings.max_upload_bytes:,}; shrink it")
    with open_image(Path(path), name, ADVICE) as image:
        width, height = image.size
    if width * height > settings.max_pixels or max(width, height) > settings.max_side:
        raise DoapError(
            f"{name}: has {width:,}x{height:,} pixels; at most {settings.max_pixels:,} pixels and "
            f"{settings.max_side:,} to a side are accepted, shrink it"
        )
    return width, height


def read_upload(path: str | Path, settings: AppSettings, longest: int | None = None) -> RgbImage:
    """Decode a picture upright as RGB, to show it; transparent pixels become mid-grey.

    Args:
        path: File of the picture.
        settings: Limits.
        longest: Largest side of the result; larger pictures are reduced. None keeps the size.

    Raises:
        DoapError: If it is not a picture in a known format, too large, or damaged.
    """
    check_upload(path, settings)
    with open_image(Path(path), printable(Path(path).name), ADVICE) as image:
        if longest is not None:
            image.draft("RGB", (longest, longest))  # of a JPEG file, fewer pixels are decoded
        upright = ImageOps.exif_transpose(image)
        if longest is not None and max(upright.size) > longest:
            upright = _eight_bit(upright)
            upright.thumbnail((longest, longest), Image.Resampling.BOX)
        return _rgb(_eight_bit(upright))


def read_upload_grey(path: str | Path, settings: AppSettings) -> Grey:
    """Decode a picture as `doap.read_grey` does, to describe it.

    Raises:
        DoapError: If it is not a picture in a known format, too large, or damaged.
    """
    check_upload(path, settings)
    with open_image(Path(path), printable(Path(path).name), ADVICE) as image:
        return to_grey(ImageOps.exif_transpose(image))


def _eight_bit(image: Image.Image) -> Image.Image:
    """Convert images of more than 8 bit, scaled to their largest value, and palettes, which cannot be resized."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.nan_to_num(np.asarray(image, np.float32), posinf=0.0, neginf=0.0).clip(0)
        return Image.fromarray((values * (255 / max(float(values.max()), 1e-9))).round().astype(np.uint8))
    if image.mode in ("P", "PA", "1") or "transparency" in image.info:
        return image.convert("RGBA")
    return image


def _rgb(image: Image.Image) -> RgbImage:
    if image.mode in ("RGBA", "LA", "La", "RGBa"):
        grey = Image.new("RGBA", image.size, (128, 128, 128, 255))
        grey.alpha_composite(image.convert("RGBA"))
        image = grey
    return np.asarray(image.convert("RGB"))
