import io
import os
import re
import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from doap import DoapError
from doap.bridges.colmap.cameras import read_image_camera
from doap.datasets.official.reading import read_exact_grey
from doap.datasets.sets.frame_set import decode_photo
from doap.features.image_input import read_image
from doap.images import reading
from doap.images.reading import FORMATS, PHOTO_SUFFIXES, find_photos, read_grey, read_mask, to_grey

RAMP = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5


def test_grey_is_read_as_it_is(tmp_path: Path) -> None:
    Image.fromarray(RAMP).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png"), RAMP)


def test_colour_becomes_luma(tmp_path: Path) -> None:
    colour = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(colour).save(tmp_path / "a.png")
    expected = colour @ np.array([0.299, 0.587, 0.114])
    assert np.abs(read_grey(tmp_path / "a.png") - expected).max() <= 1


def test_modes_that_pillow_cannot_convert_to_grey_are_read() -> None:
    lab = Image.merge("LAB", [Image.fromarray(values) for values in (RAMP, RAMP[::-1], RAMP)])
    np.testing.assert_array_equal(to_grey(lab), RAMP)
    opaque = Image.merge("LA", [Image.fromarray(RAMP), Image.new("L", (8, 6), 255)])
    np.testing.assert_array_equal(to_grey(opaque.convert("La")), RAMP)


def test_transparent_pixels_are_mid_grey_whatever_their_colour(tmp_path: Path) -> None:
    image = np.dstack([RAMP, RAMP, RAMP, np.where(RAMP > 100, 255, 0)]).astype(np.uint8)
    Image.fromarray(image, "RGBA").save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png"), np.where(RAMP > 100, RAMP, 128))


@pytest.mark.parametrize("maximum", [65535, 4095])
def test_deep_images_use_the_whole_range(tmp_path: Path, maximum: int) -> None:
    deep = np.linspace(0, maximum, 48).reshape(6, 8).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png"), np.round(deep * (255 / maximum)))


MASK = np.array([[0, 0, 4], [0, 1000, 0]], np.uint16)


def as_palette(mask: Image.Image) -> Image.Image:
    palette = mask.convert("P")
    palette.putpalette([0, 0, 0, *[9] * 765])
    return palette


@pytest.mark.parametrize(
    "image",
    [
        Image.fromarray(MASK),
        Image.fromarray((MASK != 0).astype(np.uint8)),
        Image.fromarray(MASK != 0),
        Image.fromarray(np.dstack([0 * MASK, 0 * MASK, MASK != 0]).astype(np.uint8)),
        Image.fromarray(np.dstack([MASK != 0] * 3 + [np.arange(6).reshape(2, 3)]).astype(np.uint8)),
        Image.fromarray(np.dstack([MASK != 0, MASK == 0]).astype(np.uint8), "LA"),
        as_palette(Image.fromarray((MASK != 0).astype(np.uint8))),
    ],
    ids=["16 bit", "grey", "1 bit", "blue", "colour and alpha", "grey and alpha", "palette"],
)
def test_a_mask_is_where_any_colour_is_not_0(tmp_path: Path, image: Image.Image) -> None:
    image.save(tmp_path / "mask.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.png"), MASK != 0)


def test_masks_are_rotated_as_images(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray((MASK != 0).astype(np.uint8)).save(tmp_path / "mask.png", exif=exif)
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.png"), np.rot90(MASK != 0, -1))
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.png", exif_rotation=False), MASK != 0)
    with pytest.raises(DoapError, match=r"none\.png: no such file"):
        read_mask(tmp_path / "none.png")


def test_photos_of_all_formats_are_found_in_folders(tmp_path: Path) -> None:
    suffixes = {suffix for suffix, name in Image.registered_extensions().items() if name in FORMATS}
    assert {".jpg", ".jfif", ".png", ".gif", ".jp2"} <= PHOTO_SUFFIXES <= suffixes | {".pgm"}
    for suffix in PHOTO_SUFFIXES:
        Image.fromarray(RAMP).save(tmp_path / f"a{suffix}")
    assert len(find_photos([tmp_path])) == len(PHOTO_SUFFIXES)
    for path in find_photos([tmp_path]):
        assert read_grey(path).shape == RAMP.shape


def test_float_images_are_read(tmp_path: Path) -> None:
    Image.fromarray((RAMP / 1000).astype(np.float32)).save(tmp_path / "a.tiff")
    assert np.abs(read_grey(tmp_path / "a.tiff") - RAMP * (255 / 235)).max() <= 0.5


def test_values_that_are_not_finite_leave_the_others_as_they_are(tmp_path: Path) -> None:
    values = (RAMP / 1000).astype(np.float32)
    values[0, :3] = np.inf, -np.inf, np.nan
    Image.fromarray(values).save(tmp_path / "a.tiff")
    grey = read_grey(tmp_path / "a.tiff")
    assert grey[0, :3].tolist() == [255, 0, 0]
    assert np.abs(grey - RAMP * (255 / 235))[1:].max() <= 0.5
    np.testing.assert_array_equal(to_grey(Image.fromarray(np.full((2, 2), np.inf, np.float32))), 0)


@pytest.mark.parametrize("mode", ["I", "F", "I;16", "RGBA", "LA", "PA", "P"])
def test_bands_do_not_change_the_pixels(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    generator = np.random.default_rng(0)
    image = Image.fromarray(generator.integers(0, 256, (37, 20, 4), dtype=np.uint8))
    if mode == "I;16":
        image = Image.fromarray(generator.integers(0, 4096, (37, 20), dtype=np.uint16))
    elif mode != "RGBA":
        image = image.convert("RGB").convert("P" if mode == "PA" else mode).convert(mode)
    if mode == "P":
        image.info["transparency"] = 3
    assert image.mode == mode
    whole = to_grey(image)
    monkeypatch.setattr(reading, "BAND_PIXELS", 100)
    np.testing.assert_array_equal(to_grey(image), whole)


def test_deep_images_take_little_memory() -> None:
    image = Image.new("F", (4000, 4000))
    tracemalloc.start()
    to_grey(image)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 9 * 16e6  # bytes per pixel; in float64 at once it takes 24


@pytest.mark.parametrize("turn", range(1, 9))
def test_exif_rotation_is_applied(tmp_path: Path, turn: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(RAMP).save(tmp_path / "a.png", exif=exif)
    upright = {
        1: RAMP, 2: RAMP[:, ::-1], 3: RAMP[::-1, ::-1], 4: RAMP[::-1],
        5: RAMP.T, 6: np.rot90(RAMP, -1), 7: np.rot90(RAMP, 2).T, 8: np.rot90(RAMP),
    }[turn]  # fmt: skip
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png"), upright)
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png", exif_rotation=False), RAMP)


def huge_png() -> bytes:
    """Return a PNG of a few bytes that claims 100,000 x 100,000 pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def truncated_jpeg() -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)).save(content, "jpeg")
    return content.getvalue()[:600]


def damaged_avif() -> bytes:
    """Return an AVIF image without its pixels, for which Pillow raises a RuntimeError; text before Pillow 11.3."""
    content = io.BytesIO()
    try:
        Image.fromarray(RAMP).save(content, "avif")
    except (KeyError, OSError):
        return b"cannot be decoded"
    header, _, pixels = content.getvalue().partition(b"mdat")
    return header + b"mdat" + bytes(len(pixels))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"these are words", "not an image"),
        (b"", "not an image"),
        (truncated_jpeg(), "cannot be decoded"),
        (huge_png(), "too large to be read safely"),
        (damaged_avif(), "cannot be decoded|not an image"),
    ],
    ids=["text", "empty", "truncated", "huge", "avif"],
)
def test_bad_files_are_named_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(content)
    with pytest.raises(DoapError, match=message) as caught:
        read_grey(file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 6\n%%EndComments\nshowpage\n%%EOF\n"


def test_no_program_is_started_for_any_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    file = tmp_path / "photo.jpg"
    file.write_bytes(EPS)
    readers: list[Callable[[], object]] = [
        lambda: read_grey(file),
        lambda: reading.is_compact(file, 100),
        lambda: read_exact_grey(file),
        lambda: decode_photo(np.frombuffer(EPS, np.uint8), "photo.jpg"),
        lambda: read_image_camera(file),
        lambda: read_image(file),
    ]
    for read in readers:
        with pytest.raises(DoapError, match=r"photo\.jpg: not an image in a known format \(JPEG, "):
            read()
    assert not (tmp_path / "started").exists()


def test_images_are_opened_in_one_place() -> None:
    """Only there is the list of formats."""
    package = Path(reading.__file__).parents[1]
    opened = re.compile(r"\bImage\.open\(|\bim(read|decode)\w*\(")
    users = {path.name for path in package.rglob("*.py") if opened.search(path.read_text())}
    assert users == {"reading.py"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("suffix", ["png", "jpg", "tiff", "webp"])
def test_large_images_are_read_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(RAMP / np.float32(9) if suffix == "tiff" else RAMP).save(tmp_path / f"a.{suffix}", exif=exif)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", RAMP.size * 2 // 3)
    assert read_grey(tmp_path / f"a.{suffix}").shape == (8, 6)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="no such file"):
        read_grey(tmp_path / "nothing.jpg")
    with pytest.raises(DoapError, match="is a folder"):
        read_grey(tmp_path)


TURNED = {  # by the orientation of EXIF, from the pixels as stored
    1: RAMP,
    2: RAMP[:, ::-1],
    3: RAMP[::-1, ::-1],
    4: RAMP[::-1],
    5: RAMP.T,
    6: np.rot90(RAMP, -1),
    7: RAMP[::-1, ::-1].T,
    8: np.rot90(RAMP),
}


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("suffix", ["tif", "png"])
@pytest.mark.parametrize("orientation", TURNED)
def test_images_are_turned_by_exif_or_not(
    tmp_path: Path, orientation: int, suffix: str, compression: str | None
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(RAMP).save(tmp_path / f"a.{suffix}", exif=exif, compression=compression)
    for read in (read_grey, read_mask):
        for upright, expected in ((True, TURNED[orientation]), (False, RAMP)):
            pixels = read(tmp_path / f"a.{suffix}", exif_rotation=upright)
            np.testing.assert_array_equal(pixels, expected if read is read_grey else expected > 0)
    assert read_image_camera(tmp_path / f"a.{suffix}").size == (8, 6)


def test_the_transparent_value_of_a_deep_image_is_mid_grey(tmp_path: Path) -> None:
    deep = RAMP.astype(np.uint16) * 257
    Image.fromarray(deep).save(tmp_path / "a.png", transparency=int(deep[2, 3]))
    expected = np.round(deep * (255 / deep.max()))
    expected[2, 3] = 128
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png"), expected)


@pytest.mark.parametrize("mode", ["F", "I"])
def test_the_transparent_colour_of_an_image_before_its_conversion_is_ignored(tmp_path: Path, mode: str) -> None:
    Image.fromarray(np.stack([RAMP] * 3, 2)).save(tmp_path / "a.png", transparency=(3, 3, 3))
    with Image.open(tmp_path / "a.png") as image:
        converted = image.convert(mode)
    np.testing.assert_array_equal(to_grey(converted), np.round(RAMP * (255 / RAMP.max())))


def test_photos_are_found_below_folders(tmp_path: Path) -> None:
    for name in ("b.JPG", "sub/a.png", "notes.txt", "._b.JPG", ".trash/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert find_photos([tmp_path]) == [tmp_path / "b.JPG", tmp_path / "sub" / "a.png"]
    with pytest.raises(DoapError, match="no image"):
        find_photos([make_empty(tmp_path)])
    with pytest.raises(DoapError, match="no such file or folder"):
        find_photos([tmp_path / "nowhere"])


def make_empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_filters_of_warnings_that_another_thread_sets_meanwhile_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(RAMP).save(tmp_path / "a.png")
    original = Image.open

    def open_and_filter(*args: Any, **kwargs: Any) -> Image.Image:
        warnings.simplefilter("error", FutureWarning)  # as another thread would
        return original(*args, **kwargs)

    with warnings.catch_warnings():
        monkeypatch.setattr(Image, "open", open_and_filter)
        filters = warnings.filters
        read_grey(tmp_path / "a.png")
        assert warnings.filters is filters
        assert ("error", None, FutureWarning, None, 0) in warnings.filters
        count = len(warnings.filters)
        read_grey(tmp_path / "a.png")
        assert len(warnings.filters) == count


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "PA", "La", "I", "F", "I;16"])
def test_pil_images_without_pixels_are_refused(mode: str) -> None:
    with pytest.raises(DoapError, match=r"^an image must have at least one pixel, not 0x5$"):
        read_image(Image.new(mode, (0, 5)))


def test_pil_images_that_cannot_be_decoded_are_refused_in_one_line(tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (99, 99), dtype=np.uint8)).save(tmp_path / "a.jpg")
    truncated = Image.open(io.BytesIO((tmp_path / "a.jpg").read_bytes()[:2000]))
    closed = Image.open(tmp_path / "a.jpg")
    closed.close()
    for image in (truncated, closed):
        with pytest.raises(DoapError, match=r"^the PIL image: cannot be decoded \([^\n]*\); open another one$"):
            read_image(image)
