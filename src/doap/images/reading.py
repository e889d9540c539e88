"""Reading any picture as grey: colour, alpha, 16 bit and EXIF rotation handled, hostile files refused."""

import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from doap.errors import DoapError
from doap.types import Grey

PHOTO_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".ppm", ".pgm"})


def read_grey(path: Path | str) -> Grey:
    """Read a picture as (H, W) uint8 luma, upright.

    Transparent pixels show mid-grey, so that colours hidden under them leave no trace. Deeper than
    8 bit, the largest value becomes 255, so that 12 bit data in a 16 bit file is not left in the dark.

    Raises:
        DoapError: one line that names the file and the error.
    """
    path = Path(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # large, but under the limit
            with Image.open(path) as picture:
                return to_grey(ImageOps.exif_transpose(picture))
    except FileNotFoundError as error:
        raise DoapError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise DoapError(f"{path}: is a folder, not a picture") from error
    except UnidentifiedImageError as error:
        raise DoapError(f"{path}: not a picture in a format that can be read") from error
    except Image.DecompressionBombError as error:  # raised before decoding: a few bytes can claim any size
        raise DoapError(f"{path}: too large to be read safely ({error})") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise DoapError(f"{path}: cannot be read as a picture ({error})") from error


def to_grey(picture: Image.Image) -> Grey:
    """The luma of a decoded picture, (H, W) uint8; see `read_grey` for alpha and depth."""
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        deep = np.nan_to_num(np.asarray(picture, dtype=np.float64)).clip(min=0)
        return np.asarray(np.round(deep * (255 / max(deep.max(), 1e-12))), np.uint8)
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        shown = Image.new("RGBA", picture.size, (128, 128, 128, 255))
        shown.alpha_composite(picture.convert("RGBA"))
        picture = shown.convert("RGB")
    return np.asarray(picture.convert("L"))


def is_compact(path: Path, longest: int) -> bool:
    """Whether a file can be kept as it is: upright, no side over `longest`, at most a byte a pixel, a common format."""
    with Image.open(path) as picture:
        width, height = picture.size
        upright = picture.getexif().get(0x0112, 1) == 1
        small = max(width, height) <= longest and path.stat().st_size <= width * height
        return upright and small and picture.format in ("WEBP", "JPEG", "PNG")


def shrink(image: Grey, longest: int) -> Grey:
    """The picture, or a smaller copy whose longer side has `longest` pixels, each the mean of what it covers."""
    factor = longest / max(image.shape)
    if factor >= 1:
        return image
    height, width = (max(1, round(side * factor)) for side in image.shape)
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BOX))


def find_photos(paths: list[Path]) -> list[Path]:
    """Pictures among files and folders (searched below, sorted); a DoapError where there is none."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.suffix.lower() in PHOTO_SUFFIXES and p.is_file())
        elif path.exists():
            found.append(path)
        else:
            raise DoapError(f"{path}: no such file or folder")
    if not found:
        raise DoapError(f"no picture in {', '.join(map(str, paths))}")
    return found
