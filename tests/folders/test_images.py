"""Names of images."""

import os
from pathlib import Path

import pytest

from doap.errors import DoapError
from doap.folders.images import find_images


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def names(*paths: Path) -> list[str]:
    return [image.name for image in find_images(paths)]


def test_names_are_paths_in_the_folder(tmp_path: Path) -> None:
    touch(tmp_path / "x.jpg", tmp_path / "a b" / "x.jpg", tmp_path / "a b" / "ü.PNG", tmp_path / "notes.txt")
    touch(tmp_path / ".hidden.jpg", tmp_path / ".thumbnails" / "x.jpg")
    assert names(tmp_path) == ["a b/x.jpg", "a b/ü.PNG", "x.jpg"]
    assert names(tmp_path / "a b" / ".." / "a b") == ["x.jpg", "ü.PNG"]


def test_several_folders_are_part_of_the_names(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "cam" / "x.jpg", tmp_path / "b" / "cam" / "x.jpg", tmp_path / "b" / "y.jpg")
    assert names(tmp_path / "a", tmp_path / "b" / "cam") == ["a/cam/x.jpg", "b/cam/x.jpg"]
    assert names(tmp_path / "a" / "cam", tmp_path / "b" / "y.jpg") == ["a/cam/x.jpg", "b/y.jpg"]


def test_single_images_are_named_by_file_name_unless_two_are_equal(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("a/x.jpg", "b/x.jpg", "b/y.jpg"))
    touch(first, second, third)
    assert names(first, third) == ["x.jpg", "y.jpg"]
    assert names(third) == ["y.jpg"]
    assert names(first, second, first) == ["a/x.jpg", "b/x.jpg"]


def test_an_image_that_is_named_twice_is_listed_once(tmp_path: Path) -> None:
    touch(tmp_path / "x.jpg")
    assert names(tmp_path, tmp_path / "x.jpg") == ["x.jpg"]


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    touch(tmp_path / "photos" / "x.jpg", tmp_path / "elsewhere" / "y.jpg")
    (tmp_path / "photos" / "loop").symlink_to(tmp_path / "photos")
    (tmp_path / "photos" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos" / "again").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos" / "broken.jpg").symlink_to(tmp_path / "nowhere.jpg")
    assert names(tmp_path / "photos") == ["again/y.jpg", "x.jpg"]


def test_names_that_are_not_text_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    path = os.fsencode(tmp_path / "photos") + b"/\xff\n.jpg"
    with open(path, "wb"):  # noqa: PTH123 - a path of bytes
        pass
    assert names(tmp_path / "photos") == ["\\xff\\x0a.jpg"]
    touch(tmp_path / "photos" / "\\xff\\x0a.jpg")
    with pytest.raises(DoapError, match="two images have this name"):
        names(tmp_path / "photos")


def test_no_image_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="no image in"):
        find_images([tmp_path])
    with pytest.raises(DoapError, match="no such file"):
        find_images([tmp_path / "nowhere"])
