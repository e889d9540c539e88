"""`doap describe` and `doap match` of folders and of saved features, as a user runs them."""

import json
from pathlib import Path

import numpy as np
import pytest
import skimage
from PIL import Image

from support.command_line import Doap

MODEL = ("--model", "doap-demo-128", "--max-keypoints", "200", "--device", "cpu", "--workers", "1")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two overlapping crops of a photo with the same file name, and a third file that is no image."""
    camera = skimage.data.camera()
    for name, crop in (("a/x.png", camera[:300, :300]), ("b b/x.png", camera[40:340, 30:330])):
        (tmp_path / "photos" / name).parent.mkdir(parents=True)
        Image.fromarray(np.ascontiguousarray(crop)).save(tmp_path / "photos" / name)
    (tmp_path / "photos" / "words.jpg").write_text("words")
    return tmp_path / "photos"


def test_a_folder_is_described_matched_and_continued(doap: Doap, photos: Path) -> None:
    status, shown, _ = doap("describe", photos, "-o", "f.h5", *MODEL)
    assert status == 0
    assert f"skipped: {photos / 'words.jpg'}: not an image" in shown
    assert "2 of 3 images described in f.h5\n" in shown
    status, shown, _ = doap("describe", photos, "-o", "f.h5", *MODEL)
    assert "2 of 3 images described in f.h5, 2 of them by an earlier run" in shown
    status, _, errors = doap("describe", photos, "-o", "f.h5", *MODEL[2:])
    assert (status, errors.count("\n")) == (1, 1)
    assert "holds features of doap-demo-128" in errors
    Path("pairs.txt").write_text('a/x.png "b b/x.png"\n')
    for option in (("--pairs", "pairs.txt"), ("--exhaustive",), ("--retrieve", "9")):
        status, shown, errors = doap("match", "f.h5", *option, "-o", "m.h5", "--workers", "1")
        assert status == 0, errors
        assert "1 pair matched in m.h5" in shown
        assert "1 pair has verified matches" in shown
    assert "by an earlier run" in shown
    _, shown, _ = doap("match", "f.h5", "--exhaustive", "-o", "n.h5", "--workers", "1", "--geometry", "none")
    assert "1 pair has matches, " in shown


def test_saved_features_are_matched(doap: Doap, photos: Path) -> None:
    assert doap("describe", photos, "-o", "f", *MODEL)[0] == 0
    first, second = "f/a/x.png.npz", "f/b b/x.png.npz"
    status, shown, errors = doap("match", first, second, "--json", "m.json", "--geometry", "homography")
    assert (status, errors) == (0, "")
    assert "verified matches of" in shown
    report = json.loads(Path("m.json").read_text())
    np.testing.assert_allclose(np.array(report["matrix"])[:2, 2], [-30, -40], atol=1.5)
    assert all(match["distance"] <= match["second_distance"] for match in report["matches"])
    assert not Path("matches.png").exists()
    status, _, errors = doap("match", first, second, "-o", "m.png")
    assert status == 1
    assert "a picture needs both images" in errors
    status, _, errors = doap("match", first, photos / "a" / "x.png", "--no-figure", "--max-keypoints", "50")
    assert status == 1
    assert "cannot be matched" in errors


def test_two_images_are_matched_without_a_picture(doap: Doap, photos: Path) -> None:
    images = photos / "a" / "x.png", photos / "b b" / "x.png"
    options = ("--model", "doap-demo-128", "--no-figure", "--max-size", "250", "--ratio", "0.95", "--json", "m.json")
    status, shown, errors = doap(
        "match", *images, *options, "--geometry", "essential", "--intrinsics", "400,400,150,150"
    )
    assert (status, errors) == (0, "")
    assert list(Path().glob("*.png")) == []
    report = json.loads(Path("m.json").read_text())
    assert report["geometry"] == "essential"
    assert set(report) >= {"matrix", "rotation", "translation"}
    assert max(max(match["a"]) for match in report["matches"]) > 250  # in pixels of the full image
    unverified = ("--model", "doap-demo-128", "--no-figure", "--json", "m.json", "--geometry", "none")
    status, shown, _ = doap("match", *images, *unverified)
    assert "mutual matches, " in shown
    report = json.loads(Path("m.json").read_text())
    assert {report["verified"], *(match["verified"] for match in report["matches"])} == {None}


def test_nothing_is_written_if_one_of_the_outputs_cannot_be(doap: Doap, photos: Path) -> None:
    images = photos / "a" / "x.png", photos / "b b" / "x.png"
    for places in (("m.png", images[0] / "m.json"), (images[0] / "m.png", "m.json")):
        status, _, errors = doap("match", *images, "-o", places[0], "--json", places[1], *MODEL[:2])
        assert (status, errors.count("\n")) == (1, 1)
        assert "is a file, not a folder" in errors
        assert list(Path().glob("m.*")) == []


def test_names_reach_the_terminal_without_control_characters(doap: Doap, photos: Path) -> None:
    hostile = photos / "a\nb\x1b[31m.png"
    (photos / "a" / "x.png").rename(hostile)
    options = ("-o", "c\nd\x1b[0m\udcff.png", *MODEL[:4])
    status, shown, errors = doap("match", hostile, photos / "b b" / "x.png", *options)
    assert (status, errors) == (0, "")
    assert shown.endswith("drawn in c\\x0ad\\x1b[0m\\xff.png\n")
    hostile.write_text("words")
    status, _, errors = doap("match", hostile, hostile, *options)
    assert (status, errors.count("\n"), "\x1b" in errors) == (1, 1, False)
    assert "a\\x0ab\\x1b[31m.png: not an image" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("match", "a.png"), "name a second image"),
        (("match", "f.h5", "--exhaustive", "--retrieve", "3"), "choose one of"),
        (("match", "f.h5", "b", "--exhaustive"), "take one argument"),
        (("match", "f.h5", "--exhaustive"), "f.h5: no such file"),
        (("match", "a.png", "b.png", "--intrinsics", "1,2"), "four numbers"),
        (("match", "a.png", "b.png", "--geometry", "essential"), "needs the intrinsics"),
        (("match", "a.npz", "b.npz"), "a.npz: no such file"),
        (("describe", "nowhere", "-o", "f"), "no such file or folder"),
        (("describe", ".", "-o", "f"), "no image in"),
        (("describe", ".", "-o", "f", "--detector", "fast"), "detector fast: unknown"),
    ],
)
def test_wrong_arguments_are_one_line(doap: Doap, arguments: tuple[str, ...], message: str) -> None:
    status, _, errors = doap(*arguments)
    assert (status, errors.count("\n")) == (1, 1)
    assert message in errors
