"""Reading images as grey: colour, alpha, 16 bit and EXIF rotation are handled, unsafe files are rejected."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.ExifTags import Base

from doap.errors import DoapError, check_path
from doap.types import Grey

HAS_AVIF = find_spec("PIL.AvifImagePlugin") is not None  # from Pillow 11.3
PHOTO_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp", ".ppm", ".pgm", ".gif", ".jp2"}
) | (frozenset({".avif"}) if HAS_AVIF else frozenset())
"""Suffixes, in lower case, of the files that are photos of a folder."""

# All that Pillow may decode, whatever a file is called: for EPS, it would run Ghostscript. The first ones are found
# without loading all of Pillow.
FORMATS = ("JPEG", "PNG", "WEBP", "PPM", "BMP", "GIF", "TIFF", "JPEG2000") + (("AVIF",) if HAS_AVIF else ())
BAND_PIXELS = 1 << 22  # that are converted at a time, where the conversion takes many bytes per pixel

ORIENTATION = int(Base.Orientation)
AS_STORED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""What takes an upright image back to its pixels as stored, by the orientation of EXIF."""

SIZE_WARNING_FILTER = ("ignore", None, Image.DecompressionBombWarning, None, 0)  # as in `warnings.filters`

_warning_filters = threading.Lock()  # they are those of all threads


def read_grey(path: Path | str, exif_rotation: bool = True) -> Grey:
    """Read an image as (H, W) uint8 luma.

    Transparent pixels become mid-grey, whatever colour is stored in them. Grey images of more than 8 bit are
    scaled so that their largest finite value becomes 255, because files of 16 bit often hold data of 12 bit. Of colour
    images of 16 bit, Pillow reads the upper 8 bits.

    Args:
        path: The file, in one of `FORMATS`.
        exif_rotation: Rotate the image upright as its EXIF data say; otherwise its pixels are returned as stored.

    Raises:
        DoapError: If it is no path, or the file does not exist or cannot be decoded.
    """
    check_path("the image", path)
    with open_image(Path(path), path) as image:
        return to_grey(_turn(image, exif_rotation))


def read_mask(path: Path | str, exif_rotation: bool = True) -> NDArray[np.bool_]:
    """Read a mask as (H, W) bool: where any channel but alpha is not 0, of whatever depth; alpha is ignored.

    Args:
        path: The file, in one of `FORMATS`; of a palette, the colours count.
        exif_rotation: As of `read_grey`.

    Raises:
        DoapError: If the file does not exist or cannot be decoded.
    """
    with open_image(Path(path), path) as image:
        turned = _turn(image, exif_rotation)
        pixels = np.asarray(turned.convert("RGB") if turned.mode in ("P", "PA", "CMYK", "YCbCr", "LAB") else turned)
        channels = pixels.reshape(*pixels.shape[:2], -1)
        return np.asarray((channels[:, :, :-1] if turned.mode in ("RGBA", "LA", "La") else channels).any(2))


def _turn(image: Image.Image, upright: bool) -> Image.Image:
    """Return an image upright as its EXIF data say, or its pixels as stored."""
    if upright:
        return ImageOps.exif_transpose(image)
    if image.format != "TIFF":
        return image
    orientation = image.getexif().get(ORIENTATION, 1)
    image.load()  # Pillow may turn images of this format upright; they have no orientation any more
    is_turned = orientation in AS_STORED and ORIENTATION not in image.getexif()
    return image.transpose(AS_STORED[orientation]) if is_turned else image


def stored_size(image: Image.Image) -> tuple[int, int]:
    """Return the (width, height) of an opened image as its pixels are stored."""
    tags = getattr(image, "tag_v2", None)  # of TIFF, where Pillow gives the size of the upright image
    return image.size if tags is None else (tags[Base.ImageWidth], tags[Base.ImageLength])


@contextmanager
def open_image(
    source: Path | IO[bytes], name: Path | str, advice: str = "remove or replace it"
) -> Iterator[Image.Image]:
    """Open an image in one of `FORMATS`; it is decoded when its pixels are first used in the block.

    Args:
        source: The file.
        name: Name of the image in errors.
        advice: What to do with an image that cannot be decoded.

    Raises:
        DoapError: If the file does not exist or cannot be decoded, also by an error in the block.
    """
    with _decoding_errors(name, advice):
        _ignore_size_warning()
        with _open_file(source) as file, Image.open(file, formats=FORMATS) as image:
            yield image


def _open_file(source: Path | IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """Open a path here: from a path, Pillow scrambles uncompressed TIFF images that EXIF data turn."""
    return source.open("rb") if isinstance(source, Path) else nullcontext(source)


def grey_from_pil(image: Image.Image) -> Grey:
    """Convert a PIL image to (H, W) uint8 luma, upright as its EXIF data say; it may be decoded only here.

    Raises:
        DoapError: If it has no pixels or cannot be decoded.
    """
    with _decoding_errors("the PIL image", "open another one"):
        return to_grey(_turn(image, True))


@contextmanager
def _decoding_errors(name: Path | str, advice: str) -> Iterator[None]:
    """Raise errors of decoding an image as a `DoapError`; see `open_image` for the arguments."""
    try:
        yield
    except DoapError:
        raise
    except FileNotFoundError as error:
        raise DoapError(f"{name}: no such file") from error
    except IsADirectoryError as error:
        raise DoapError(f"{name}: is a folder, not an image") from error
    except UnidentifiedImageError as error:
        known = ", ".join(FORMATS)
        raise DoapError(f"{name}: not an image in a known format ({known}); {advice}") from error
    except Image.DecompressionBombError as error:  # raised before decoding, from the size in the header
        raise DoapError(f"{name}: too large to be read safely ({error}); shrink it") from error
    except MemoryError as error:
        raise DoapError(f"{name}: not enough memory to decode it; shrink it") from error
    except Exception as error:  # damaged files cause all kinds of exceptions in the decoders
        lines = str(getattr(error, "strerror", None) or error).strip().splitlines() or [type(error).__name__]
        raise DoapError(f"{name}: cannot be decoded ({lines[0]}); {advice}") from error


def _ignore_size_warning() -> None:
    """Suppress the warning that an image is large: only above twice the limit of the warning is it refused.

    The filter stays: to restore the filters afterwards would discard those that other threads have set meanwhile.
    """
    with _warning_filters:
        if warnings.filters[:1] != [SIZE_WARNING_FILTER]:
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)


def to_grey(image: Image.Image) -> Grey:
    """Convert an image to (H, W) uint8 luma; see `read_grey` for alpha and depth.

    Raises:
        DoapError: If it has no pixels.
    """
    if 0 in image.size:
        raise DoapError(f"an image must have at least one pixel, not {image.width}x{image.height}")
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        largest = max(_largest_finite(band) for band in _bands(image))
        # A value of 16-bit PNG files; images that were converted may still have the colour or index of their origin.
        value = image.info.get("transparency") if image.mode.startswith("I;16") else None
        transparent = value if isinstance(value, int) else None
        return np.concatenate([_scale_to_bytes(band, largest, transparent) for band in _bands(image)])
    if image.mode == "LAB":
        return np.asarray(image.getchannel("L"))
    if image.mode in ("RGBA", "LA", "La", "PA") or "transparency" in image.info:
        return np.concatenate([_composite(band) for band in _bands(image)])
    return np.asarray(image.convert("L"))


def _bands(image: Image.Image) -> Iterator[Image.Image]:
    """Yield an image in horizontal bands."""
    rows = max(1, BAND_PIXELS // image.width)
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))


def _largest_finite(image: Image.Image) -> float:
    values = np.asarray(image)
    return float(np.max(values, initial=0, where=np.isfinite(values)))


def _scale_to_bytes(image: Image.Image, largest: float, transparent: int | None) -> Grey:
    """Map 0 to 0, the largest value and infinity to 255, the transparent value to 128; NaN, and below 0, become 0."""
    values = np.asarray(image, np.float64)
    deep = np.nan_to_num(values, posinf=largest).clip(min=0)
    grey = np.round(deep * (255 / max(largest, 1e-12)))
    return np.asarray(grey if transparent is None else np.where(values == transparent, 128, grey), np.uint8)


def _composite(image: Image.Image) -> Grey:
    """Return the luma of an image with alpha in front of mid-grey."""
    if image.mode == "La":
        image = image.convert("LA")
    composite = Image.new("RGBA", image.size, (128, 128, 128, 255))
    composite.alpha_composite(image.convert("RGBA"))
    return np.asarray(composite.convert("RGB").convert("L"))


def is_compact(path: Path, longest: int) -> bool:
    """Return whether a file can be stored unchanged.

    It must be upright, WebP, JPEG or PNG, with sides up to `longest` pixels and at most one byte per pixel.
    """
    with open_image(path, path) as image:
        width, height = image.size
        upright = image.getexif().get(ORIENTATION, 1) == 1
        small = max(width, height) <= longest and path.stat().st_size <= width * height
        return upright and small and image.format in ("WEBP", "JPEG", "PNG")


def shrink(image: Grey, longest: int) -> Grey:
    """Shrink an image by area averaging so that its longer side has at most `longest` pixels."""
    factor = longest / max(image.shape)
    if factor >= 1:
        return image
    height, width = (max(1, round(side * factor)) for side in image.shape)
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BOX))


def is_photo(name: Path) -> bool:
    """Return whether a path within a folder is called like a photo; macOS leaves hidden files of such names."""
    return name.suffix.lower() in PHOTO_SUFFIXES and not any(part.startswith(".") for part in name.parts)


def find_photos(paths: list[Path]) -> list[Path]:
    """List image files: the named files, and those in the named folders and below, sorted, without hidden ones.

    Raises:
        DoapError: If a path does not exist, or there is no image.
    """
    photos: list[Path] = []
    for path in paths:
        if path.is_dir():
            photos += sorted(p for p in path.rglob("*") if is_photo(p.relative_to(path)) and p.is_file())
        elif path.exists():
            photos.append(path)
        else:
            raise DoapError(f"{path}: no such file or folder")
    if not photos:
        raise DoapError(f"no image in {', '.join(map(str, paths))}; name files or folders with images")
    return photos
