"""Images, sheets and strips of patches."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from campaign.fuzz.formats import Format
from doap.bridges.colmap.cameras import read_image_camera
from doap.datasets.official.hpatches import read_strip
from doap.datasets.official.phototour import read_sheet
from doap.images.reading import FORMATS, is_compact, read_grey


def _pixels(height: int = 24, width: int = 32) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 7, y * 5, (x ^ y) * 3], -1).astype(np.uint8)


def _image(name: str, mode: str = "RGB", **options: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        image = Image.fromarray(_pixels())
        if mode == "I;16":
            image = Image.fromarray(_pixels()[..., 0].astype(np.uint16) * 257)
        elif mode == "EXIF":
            exif = Image.Exif()
            exif[0x0112], exif[0x010F], exif[0x0110] = 6, "maker", "model"
            exif.get_ifd(0x8769)[0xA405] = 28
            options["exif"] = exif.tobytes()
        else:
            image = image.convert(mode)
        image.save(folder / name, **options)  # type: ignore[arg-type]
        return folder / name

    return make


def _sheet(folder: Path) -> Path:
    Image.fromarray(_pixels(1024, 1024)[..., 0]).save(folder / "patches0000.bmp")
    return folder / "patches0000.bmp"


def _strip(folder: Path) -> Path:
    Image.fromarray(_pixels(65 * 2, 65)[..., 0]).save(folder / "ref.png")
    return folder / "ref.png"


def image_formats() -> list[Format]:
    """Return the formats of images, those of them that this Pillow writes."""
    formats = [
        Format("png", _image("a.png"), read_grey),
        Format("png-16", _image("a.png", "I;16"), read_grey),
        Format("png-alpha", _image("a.png", "RGBA"), read_grey),
        Format("png-palette", _image("a.png", "P"), read_grey),
        Format("jpeg", _image("a.jpg"), read_grey),
        Format("jpeg-exif", _image("a.jpg", "EXIF"), read_image_camera),
        Format("jpeg-rotated", _image("a.jpg", "EXIF"), read_grey),
        Format("jpeg-compact", _image("a.jpg", "EXIF"), partial(is_compact, longest=100)),
        Format("webp", _image("a.webp"), read_grey),
        Format("tiff", _image("a.tif"), read_grey),
        Format("tiff-lzw", _image("a.tif", compression="tiff_lzw"), read_grey),
        Format("tiff-16", _image("a.tif", "I;16"), read_grey),
        Format("tiff-float", _image("a.tif", "F"), read_grey),
        Format("ppm", _image("a.ppm"), read_grey),
        Format("pgm", _image("a.pgm", "L"), read_grey),
        Format("bmp", _image("a.bmp"), read_grey),
        Format("gif", _image("a.gif", "P"), read_grey),
        Format("phototour-sheet", _sheet, read_sheet),
        Format("hpatches-strip", _strip, read_strip),
    ]
    if "AVIF" in FORMATS:
        formats.append(Format("avif", _image("a.avif"), read_grey))
    from PIL import features

    if features.check("jpg_2000"):
        formats.append(Format("jpeg2000", _image("a.jp2"), read_grey))
    return formats
