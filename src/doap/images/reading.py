"""Reading images as grey: colour, alpha, 16 bit and EXIF rotation are handled, unsafe files are rejected."""

import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from doap.errors import DoapError
from doap.types import Grey

PHOTO_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".ppm", ".pgm"})


def read_grey(path: Path | str, exif_rotation: bool = True) -> Grey:
    """Read an image as (H, W) uint8 luma.

    Transparent pixels become mid-grey, whatever colour is stored in them. Images of more than 8 bit are scaled so that
    their largest value becomes 255, because files of 16 bit often hold data of 12 bit.

    Args:
        path: The file.
        exif_rotation: Rotate the image upright as its EXIF data say; otherwise its pixels are returned as stored.

    Raises:
        DoapError: If the file does not exist or cannot be decoded.
    """
    path = Path(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # large, but below the limit
            with Image.open(path) as image:
                return to_grey(ImageOps.exif_transpose(image) if exif_rotation else image)
    except FileNotFoundError as error:
        raise DoapError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise DoapError(f"{path}: is a folder, not an image") from error
    except UnidentifiedImageError as error:
        raise DoapError(f"{path}: not an image in a known format; convert it to PNG or JPEG") from error
    except Image.DecompressionBombError as error:  # raised before decoding, from the size in the header
        raise DoapError(f"{path}: too large to be read safely ({error}); shrink it") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise DoapError(f"{path}: cannot be decoded ({error}); remove or replace it") from error


def to_grey(image: Image.Image) -> Grey:
    """Convert a decoded image to (H, W) uint8 luma; see `read_grey` for alpha and depth."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        deep = np.nan_to_num(np.asarray(image, dtype=np.float64)).clip(min=0)
        return np.asarray(np.round(deep * (255 / max(deep.max(), 1e-12))), np.uint8)
    if image.mode == "LAB":
        return np.asarray(image.getchannel("L"))
    if image.mode == "La":
        image = image.convert("LA")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        composite = Image.new("RGBA", image.size, (128, 128, 128, 255))
        composite.alpha_composite(image.convert("RGBA"))
        image = composite.convert("RGB")
    return np.asarray(image.convert("L"))


def is_compact(path: Path, longest: int) -> bool:
    """Return whether a file can be stored unchanged.

    It must be upright, WebP, JPEG or PNG, with sides up to `longest` pixels and at most one byte per pixel.
    """
    with Image.open(path) as image:
        width, height = image.size
        upright = image.getexif().get(0x0112, 1) == 1
        small = max(width, height) <= longest and path.stat().st_size <= width * height
        return upright and small and image.format in ("WEBP", "JPEG", "PNG")


def shrink(image: Grey, longest: int) -> Grey:
    """Shrink an image by area averaging so that its longer side has at most `longest` pixels."""
    factor = longest / max(image.shape)
    if factor >= 1:
        return image
    height, width = (max(1, round(side * factor)) for side in image.shape)
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BOX))


def find_photos(paths: list[Path]) -> list[Path]:
    """List image files: the named files, and those in the named folders and below, sorted.

    Raises:
        DoapError: If a path does not exist, or there is no image.
    """
    photos: list[Path] = []
    for path in paths:
        if path.is_dir():
            photos += sorted(p for p in path.rglob("*") if p.suffix.lower() in PHOTO_SUFFIXES and p.is_file())
        elif path.exists():
            photos.append(path)
        else:
            raise DoapError(f"{path}: no such file or folder")
    if not photos:
        raise DoapError(f"no image in {', '.join(map(str, paths))}; name files or folders with images")
    return photos
