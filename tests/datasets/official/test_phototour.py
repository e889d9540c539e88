import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from doap import DoapError, PatchSet
from doap.datasets.official.phototour import convert_phototour, read_pairs, write_phototour
from support.sets.official_formats import some_phototour, write_bmp


def test_patches_points_and_padding(tmp_path: Path) -> None:
    patches, points = some_phototour(tmp_path / "liberty", 300)
    assert (tmp_path / "liberty" / "patches0001.bmp").stat().st_size == 1_049_654  # as the official ones
    calls: list[tuple[int, int]] = []
    convert_phototour(tmp_path / "liberty", tmp_path / "set", lambda done, total: calls.append((done, total)))
    converted = PatchSet.open(tmp_path / "set")
    np.testing.assert_array_equal(converted.take(np.arange(300)), patches)
    np.testing.assert_array_equal(converted.groups, points)
    assert (len(converted), converted.sequence_names) == (300, ["liberty"])
    assert calls == [(1, 2), (2, 2)]


def test_a_last_sheet_that_is_full(tmp_path: Path) -> None:
    patches, _ = some_phototour(tmp_path / "yosemite", 256)
    convert_phototour(tmp_path / "yosemite", tmp_path / "set")
    np.testing.assert_array_equal(PatchSet.open(tmp_path / "set").take([255])[0], patches[255])


def test_hidden_files_are_no_sheets(tmp_path: Path) -> None:
    some_phototour(tmp_path / "liberty", 300)
    (tmp_path / "liberty" / "._patches0000.bmp").write_bytes(b"\0\5\x16\7")  # of macOS
    convert_phototour(tmp_path / "liberty", tmp_path / "set")
    assert len(PatchSet.open(tmp_path / "set")) == 300


def test_sheets_are_taken_in_the_order_of_their_names(tmp_path: Path) -> None:
    patches, _ = some_phototour(tmp_path / "s", 300)
    first, second = tmp_path / "s" / "patches0000.bmp", tmp_path / "s" / "patches0001.bmp"
    first.rename(tmp_path / "s" / "patches0002.bmp")
    second.rename(tmp_path / "s" / "patches0003.bmp")
    convert_phototour(tmp_path / "s", tmp_path / "set")
    np.testing.assert_array_equal(PatchSet.open(tmp_path / "set").take([0, 299]), patches[[0, 299]])


def new_image(mode: str, size: tuple[int, int] = (1024, 1024)) -> Image.Image:
    return Image.new(mode, size)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no info": (lambda f: (f / "info.txt").unlink(), r"info\.txt: cannot be read"),
    "empty info": (lambda f: (f / "info.txt").write_text(""), r"info\.txt: empty"),
    "words in info": (lambda f: (f / "info.txt").write_text("one two\n"), r"info\.txt: not a table of integers"),
    "bytes in info": (lambda f: (f / "info.txt").write_bytes(b"\xff\xfe\x00"), r"info\.txt: not a table of integers"),
    "ragged info": (lambda f: (f / "info.txt").write_text("1 0\n2\n"), r"info\.txt: not a table of integers"),
    "truncated info": (lambda f: (f / "info.txt").write_text("1 0\n"), r"2 sheets .* fill 1; .* truncated"),
    "missing sheet": (lambda f: (f / "patches0000.bmp").unlink(), "1 sheet .* 300 rows .* fill 2"),
    "truncated sheet": (lambda f: os.truncate(f / "patches0001.bmp", 500_000), r"patches0001\.bmp: cannot be decoded"),
    "empty sheet": (lambda f: os.truncate(f / "patches0001.bmp", 0), r"patches0001\.bmp: not an image"),
    "text as sheet": (lambda f: (f / "patches0001.bmp").write_text("no"), r"patches0001\.bmp: not an image"),
    "wrong size": (
        lambda f: write_bmp(f / "patches0001.bmp", np.zeros((64, 1024), np.uint8)),
        r"patches0001\.bmp: 1024x64 pixels, but a sheet is 1024x1024",
    ),
    "colour": (
        lambda f: new_image("RGB").save(f / "patches0001.bmp"),
        r"patches0001\.bmp: pixels are in colour \(RGB\)",
    ),
    "two colours": (
        lambda f: new_image("1").save(f / "patches0001.bmp"),
        r"patches0001\.bmp: pixels are black and white",
    ),
    "16 bit": (
        lambda f: new_image("I;16").save(f / "patches0001.bmp", format="PNG"),
        r"patches0001\.bmp: pixels are deeper than 8 bit",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_named_in_one_line(tmp_path: Path, damage: str) -> None:
    some_phototour(tmp_path / "liberty")
    apply, message = DAMAGES[damage]
    apply(tmp_path / "liberty")
    with pytest.raises(DoapError, match=message) as caught:
        convert_phototour(tmp_path / "liberty", tmp_path / "set")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["liberty"]


def test_pairs(tmp_path: Path) -> None:
    file = tmp_path / "m50_100000_100000_0.txt"
    file.write_text("4 10 0 7 10 0 0 \n0 3 0 9 4 0 0 \n9 4 0 2 4 0 0 \n")
    first, second, match = read_pairs(file, 10)
    assert (first.tolist(), second.tolist(), match.tolist()) == ([4, 0, 9], [7, 9, 2], [True, False, True])
    assert match.dtype == bool


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1 0 10 1 0 0\n", "line 1 names the patches 0 and 10, but the set has 10"),
        ("0 1 0 1 1 0 0\n-1 1 0 1 1 0 0\n", "line 2 names"),
        ("0 1 0 1\n", "4 columns, but a file of pairs needs 7"),
        ("0 1 0 1 1 0 0\n0 1 0 1\n", "not a table of integers"),
        ("0 1 0 1 1 0 x\n", "not a table of integers"),
        ("0.5 1 0 1 1 0 0\n", "not a table of integers"),
        ("", "empty"),
        (None, "cannot be read"),
    ],
)
def test_wrong_pairs_are_named_in_one_line(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "pairs.txt"
    if text is not None:
        file.write_text(text)
    with pytest.raises(DoapError, match=f"pairs.txt: .*{message}") as caught:
        read_pairs(file, 10)
    assert "\n" not in str(caught.value)


def test_written_folders_are_official(tmp_path: Path) -> None:
    """Compared with the independent writer, and the pixels of a sheet with the bytes of the BMP format."""
    patches, points = some_phototour(tmp_path / "expected", 300)
    pairs = np.array([[0, 1], [0, 299], [7, 6]])
    folder = tmp_path / "liberty"
    folder.mkdir()
    write_phototour(folder, patches, points, pairs)
    for name in ("patches0000.bmp", "patches0001.bmp"):
        content, expected = ((path / name).read_bytes() for path in (folder, tmp_path / "expected"))
        assert len(content) == 1_049_654
        assert (content[:14], content[14:38], content[54:]) == (expected[:14], expected[14:38], expected[54:])
    assert (folder / "info.txt").read_bytes() == (tmp_path / "expected" / "info.txt").read_bytes()
    assert (folder / "m50_100000_100000_0.txt").read_text().splitlines() == [
        "0 7 0 1 7 0 0", f"0 7 0 299 {points[299]} 0 0", "7 11 0 6 11 0 0"
    ]  # fmt: skip
    first, second, same = read_pairs(folder / "m50_100000_100000_0.txt", 300)
    assert (first.tolist(), second.tolist(), same.tolist()) == ([0, 0, 7], [1, 299, 6], [True, False, True])


def test_patches_of_another_size_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"patches are uint8 \(3, 65, 65\), not uint8 \(3, 64, 64\)"):
        write_phototour(tmp_path, np.zeros((3, 65, 65), np.uint8), np.arange(3), np.zeros((0, 2), np.int64))
