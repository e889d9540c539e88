"""Pictures of visitors: hostile files are refused in one line, odd ones are read."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import doap
from doap.app.settings import AppSettings
from doap.app.uploads import check_upload, read_upload, read_upload_grey
from doap.errors import DoapError

SETTINGS = AppSettings(max_upload_bytes=300_000, max_pixels=1_000_000, max_side=5000)


def png(width: int, height: int) -> bytes:
    """Return a PNG file that claims a size, with a few compressed zeros as its pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(9999))) + chunk(b"IEND", b"")
    )


def photo(folder: Path) -> bytes:
    path = folder / "photo.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (90, 120, 3), np.uint8)).save(path)
    return path.read_bytes()


HOSTILE = {
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EOF\nshowpage\n",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    "bomb": png(60_000, 60_000),
    "long": png(60_000, 3),
    "many pixels": png(3000, 3000),
    "empty": b"",
    "text": b"<b>not a picture</b>",
    "large": bytes(300_001),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}\n<img>.png"
    path.write_bytes(HOSTILE[name])
    for read in (check_upload, read_upload, read_upload_grey):
        with pytest.raises(DoapError) as caught:
            read(path, SETTINGS)
        assert len(str(caught.value).splitlines()) == 1
        assert str(tmp_path) not in str(caught.value)  # no path of the server


def test_a_truncated_photo_is_refused_when_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "cut.jpg"
    path.write_bytes(photo(tmp_path)[:2000])
    for read in (read_upload, read_upload_grey):
        with pytest.raises(DoapError, match=r"^cut\.jpg: cannot be decoded"):
            read(path, SETTINGS)


def test_a_missing_file_is_named_without_its_folder(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"^gone\.png: is no longer on the server"):
        check_upload(tmp_path / "gone.png", SETTINGS)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16", "F", "CMYK"])
@pytest.mark.parametrize("longest", [None, 20])
def test_pictures_of_all_modes_become_rgb(mode: str, longest: int | None, tmp_path: Path) -> None:
    grey = Image.fromarray(np.tile(np.linspace(0, 255, 40).astype(np.uint8), (30, 1)))
    if mode == "I;16":
        image = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    elif mode == "P":
        image = grey.convert("RGB").quantize(64)
    else:
        image = grey.convert("RGBA" if mode == "LA" else mode).convert(mode)
    image.save(tmp_path / "picture.tif")
    rgb = read_upload(tmp_path / "picture.tif", SETTINGS, longest)
    assert rgb.shape == ((30, 40, 3) if longest is None else (15, 20, 3))
    assert rgb.dtype == np.uint8
    expected = np.asarray(grey.convert("1").convert("L") if mode == "1" else grey, float)
    assert abs(rgb[..., 1].mean() - expected.mean()) < 12


def test_grey_pictures_are_those_of_the_library(tmp_path: Path) -> None:
    path = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(io.BytesIO(photo(tmp_path))).save(path, exif=exif)
    np.testing.assert_array_equal(read_upload_grey(path, SETTINGS), doap.read_grey(path))
    assert read_upload_grey(path, SETTINGS).shape == (120, 90)
