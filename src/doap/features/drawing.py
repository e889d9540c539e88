"""Pictures of keypoints and matches, drawn with OpenCV and Pillow."""

from bisect import bisect_right
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from doap.errors import DoapError, check_path
from doap.features.image_input import ImageLike, read_image, shrink_image
from doap.files import atomic_file, check_output, printable
from doap.images.fonts import font_for, join_accents
from doap.types import Frames, Grey

Points = NDArray[np.floating]
Picture = NDArray[np.uint8]
"""An RGB picture, (H, W, 3) uint8."""

FORMATS = (".png", ".jpg", ".jpeg", ".pdf")
MAX_LINES = 150  # more would hide the images
CORRECT, WRONG = (0x1A, 0x98, 0x50), (0xD7, 0x30, 0x27)

GAP = 10  # pixels between the images
TITLE_HEIGHT = 34
TITLE_SIZES = range(18, 9, -1)  # the largest that fits is used
MIN_WIDTH, MAX_WIDTH = 1200, 2400  # pictures outside are scaled: small images up, large ones down
MAX_HEIGHT = 4800  # of high and narrow images
LINE_OPACITY = 0.6
DOT_RADIUS = 2.5
ELLIPSE_POINTS = 24
SUBPIXEL_BITS = 4  # OpenCV's fixed-point coordinates
MAX_COORDINATE = 1e7  # of points in pixels: far outside of any picture, and in the range of OpenCV's integers


def check_picture_format(path: str | Path) -> None:
    """Raise a `DoapError` if `draw_matches` cannot write this file, or not in its format."""
    check_path("the file", path)
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise DoapError(f"{path}: figures are written as .png, .jpg or .pdf")
    check_output(path)


def draw_matches(
    first: Grey,
    second: Grey,
    first_points: Points,
    second_points: Points,
    title: str,
    path: Path,
    correct: NDArray[np.bool_] | None = None,
) -> None:
    """Write a picture of matches, atomically; see `render_matches`.

    Args:
        first: First image.
        second: Second image.
        first_points: (P, 2) matched points (x, y) in the first image.
        second_points: (P, 2) matched points (x, y) in the second image.
        title: Text above the images.
        path: File to write: .png, .jpg or .pdf.
        correct: (P,) bool, which matches are correct, where ground truth is available.

    Raises:
        DoapError: If the format is not supported.
    """
    check_picture_format(path)
    _write(render_matches(first, second, first_points, second_points, title, correct), path)


def draw_image_matches(
    images: tuple[ImageLike, ImageLike],
    sizes: tuple[tuple[int, int], tuple[int, int]],
    points: tuple[Points, Points],
    title: str,
    path: str | Path | None = None,
) -> Picture:
    """Draw matches of two images of any form, reduced one after the other, so that large images fit into memory.

    Args:
        images: The two images.
        sizes: (height, width) of the images to which the points belong.
        points: (P, 2) matched points (x, y) in each image.
        title: Text above the images.
        path: File to write as well: .png, .jpg or .pdf.

    Returns:
        (H, W, 3) uint8 RGB picture.
    """
    if path is not None:
        check_picture_format(path)
    reduced = [_reduce(image, size, ends) for image, size, ends in zip(images, sizes, points, strict=True)]
    (first, first_points), (second, second_points) = reduced
    picture = render_matches(first, second, first_points, second_points, title)
    _write(picture, path)
    return picture


def draw_keypoints(image: ImageLike, frames: Frames, size: tuple[int, int], path: str | Path | None = None) -> Picture:
    """Draw the ellipses of frames and their orientations on an image.

    Args:
        image: The image, in any form.
        frames: (N, 2, 3).
        size: (height, width) of the image to which the frames belong.
        path: File to write as well: .png, .jpg or .pdf.

    Returns:
        (H, W, 3) uint8 RGB picture; images wider or higher than 2,400 pixels are reduced.
    """
    if path is not None:
        check_picture_format(path)
    # The centre, the end of the x axis, and points of the ellipse, in the frame's own coordinates.
    angles = np.linspace(0, 2 * np.pi, ELLIPSE_POINTS, endpoint=False)
    unit = np.vstack([[(0, 0), (1, 0)], np.stack([np.cos(angles), np.sin(angles)], 1)])
    outlines = np.einsum("nij,kj->nki", frames[:, :, :2].astype(np.float64), unit) + frames[:, None, :, 2]
    grey, points = _reduce(image, size, outlines.reshape(-1, 2))
    picture = np.repeat(grey[:, :, None], 3, 2)
    for outline, colour in zip(
        _to_fixed(points.reshape(outlines.shape)),
        _rainbow(frames[:, 1, 2].astype(np.float64)).tolist(),
        strict=True,
    ):
        lines = [outline[:2], np.vstack([outline[2:], outline[2:3]])]
        cv2.polylines(picture, lines, False, colour, 1, cv2.LINE_AA, SUBPIXEL_BITS)
    _write(picture, path)
    return picture


def _reduce(image: ImageLike, size: tuple[int, int], points: Points) -> tuple[Grey, Points]:
    """Return an image of at most 2,400 pixels to a side, and points of the original in its pixels."""
    full = read_image(image)
    if tuple(full.shape) != tuple(size):
        (height, width), (other_height, other_width) = full.shape, size
        raise DoapError(f"the image has {width}x{height} pixels, but its features {other_width}x{other_height}")
    small = shrink_image(full, MAX_WIDTH)
    grey = small.cpu().numpy() if isinstance(small, Tensor) else small
    factors = np.array(grey.shape[::-1]) / np.array(size[::-1])
    return grey, (np.asarray(points, np.float64) + 0.5) * factors - 0.5


def _write(picture: Picture, path: str | Path | None) -> None:
    if path is not None:
        with atomic_file(Path(path)) as temporary:
            Image.fromarray(picture).save(temporary)


def render_matches(
    first: Grey,
    second: Grey,
    first_points: Points,
    second_points: Points,
    title: str,
    correct: NDArray[np.bool_] | None = None,
) -> Picture:
    """Draw two images side by side, a dot at every matched point, and lines between at most 150 matches.

    The lines are evenly spread over the first image. Without ground truth, colours follow the height in the first
    image; with it, correct matches are green and wrong ones red. Small images are enlarged and large ones reduced, so
    that the picture is 1,200 to 2,400 pixels wide, or less if the images would be higher than 4,800 pixels.

    Args:
        first: First image.
        second: Second image.
        first_points: (P, 2) matched points (x, y) in the first image.
        second_points: (P, 2) matched points (x, y) in the second image.
        title: Text above the images.
        correct: (P,) bool, which matches are correct, where ground truth is available.

    Returns:
        (H, W, 3) uint8 RGB picture.
    """
    width = first.shape[1] + second.shape[1]
    scale = float(np.clip(width, MIN_WIDTH - GAP, MAX_WIDTH - GAP)) / width
    scale = min(scale, MAX_HEIGHT / max(first.shape[0], second.shape[0]))
    images = [_resize(image, scale) for image in (first, second)]
    corners = [(0, TITLE_HEIGHT), (images[0].shape[1] + GAP, TITLE_HEIGHT)]
    picture = _canvas(images, corners)
    # A pixel centre (x, y) of the image is ((x + 0.5) scale - 0.5) in the resized one.
    first_ends, second_ends = (
        (np.asarray(points, np.float64).reshape(-1, 2) + 0.5) * scale - 0.5 + corner
        for points, corner in zip((first_points, second_points), corners, strict=True)
    )
    heights = np.asarray(first_points, np.float64).reshape(-1, 2)[:, 1]
    colours = _rainbow(heights) if correct is None else np.where(correct[:, None], CORRECT, WRONG)
    spread = np.argsort(heights)[:: max(1, -(-len(heights) // MAX_LINES))]
    _draw_lines(picture, first_ends, second_ends, colours, spread)
    for ends in (first_ends, second_ends):
        for point, colour in zip(ends, colours, strict=True):
            cv2.circle(picture, _fixed(point), round(DOT_RADIUS * 2**SUBPIXEL_BITS), _scalar(colour), cv2.FILLED,
                       cv2.LINE_AA, SUBPIXEL_BITS)  # fmt: skip
    return _write_title(picture, title)


def _resize(image: Grey, scale: float) -> Grey:
    if scale == 1:
        return image
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC), np.uint8)


def _canvas(images: list[Grey], corners: list[tuple[int, int]]) -> Picture:
    """Paste grey images with these top left corners (x, y) on a white RGB picture."""
    height = max(y + image.shape[0] for image, (_, y) in zip(images, corners, strict=True))
    width = max(x + image.shape[1] for image, (x, _) in zip(images, corners, strict=True))
    picture = np.full((height, width, 3), 255, np.uint8)
    for image, (x, y) in zip(images, corners, strict=True):
        picture[y : y + image.shape[0], x : x + image.shape[1]] = image[:, :, None]
    return picture


def _draw_lines(
    picture: Picture, first: Points, second: Points, colours: NDArray[np.integer], indices: NDArray[np.int64]
) -> None:
    """Draw half-transparent, anti-aliased lines between some of the points, in place."""
    layer = picture.copy()
    for index in indices:
        ends = _fixed(first[index]), _fixed(second[index])
        cv2.line(layer, *ends, _scalar(colours[index]), 1, cv2.LINE_AA, SUBPIXEL_BITS)
    cv2.addWeighted(layer, LINE_OPACITY, picture, 1 - LINE_OPACITY, 0, dst=picture)


def _rainbow(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Map values, from the smallest to the largest, to RGB colours of the turbo colour map, (P, 3)."""
    if not len(values):
        return np.zeros((0, 3), np.uint8)
    levels = np.round(255 * (values - values.min()) / max(float(np.ptp(values)), 1e-9)).astype(np.uint8)
    return np.asarray(cv2.applyColorMap(levels[:, None], cv2.COLORMAP_TURBO)[:, 0, ::-1], np.uint8)


def _write_title(picture: Picture, title: str) -> Picture:
    """Write a line of text at the top left, in a size that fits; longer text is cut off."""
    title = join_accents(printable(title))
    canvas = Image.fromarray(picture)
    draw, width = ImageDraw.Draw(canvas), picture.shape[1] - 2 * GAP
    fonts = [font_for(title, size) for size in TITLE_SIZES]
    font = next((font for font in fonts if draw.textlength(title, font) <= width), fonts[-1])
    if draw.textlength(title, font) > width:
        fitting = bisect_right(range(len(title)), width, key=lambda length: draw.textlength(f"{title[:length]}…", font))
        title = f"{title[: max(0, fitting - 1)]}…"
    draw.text((GAP, TITLE_HEIGHT / 2), title, fill="black", font=font, anchor="lm")
    return np.asarray(canvas)


def _to_fixed(points: Points) -> NDArray[np.int32]:
    """Convert coordinates to OpenCV's fixed point; points far outside are moved to within its range."""
    inside = np.clip(points, -MAX_COORDINATE, MAX_COORDINATE)
    return np.asarray(np.round(inside * 2**SUBPIXEL_BITS), np.int32)


def _fixed(point: Points) -> tuple[int, int]:
    x, y = _to_fixed(point).tolist()
    return x, y


def _scalar(colour: NDArray[np.integer]) -> tuple[int, int, int]:
    red, green, blue = colour.tolist()
    return red, green, blue
