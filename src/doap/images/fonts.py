"""Fonts of text on pictures."""

import unicodedata
from importlib.util import find_spec
from pathlib import Path

from PIL import ImageFont

FONT = "mpl-data/fonts/ttf/DejaVuSans.ttf"  # in the folder of matplotlib

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def join_accents(text: str) -> str:
    """Return a text with each letter and its accents as one character; macOS stores them apart in names."""
    return unicodedata.normalize("NFC", text)


def font_for(text: str, size: int) -> Font:
    """Return a font that has the letters of a text: that of Pillow has little more than ASCII.

    Other texts are written in DejaVu Sans, which has Latin, Greek and Cyrillic letters, if matplotlib is installed.
    """
    matplotlib = None if text.isascii() else find_spec("matplotlib")
    path = Path(matplotlib.origin).parent / FONT if matplotlib and matplotlib.origin else None
    if path is None or not path.is_file():  # distributions may have the fonts elsewhere
        return ImageFont.load_default(size)
    return ImageFont.truetype(path, size)
