"""`doap match --wide`."""

import json
from pathlib import Path

import cv2
import pytest
from PIL import Image

from support.command_line import Doap
from support.sample_photos import sample_photo

OPTIONS = ("--model", "doap-tiny-128", "--geometry", "homography")


@pytest.fixture
def photos(tmp_path: Path) -> tuple[Path, Path]:
    """A photo and a view of it from the side."""
    photo = sample_photo("coffee")[20:340, 120:500]
    paths = tmp_path / "front.png", tmp_path / "side.png"
    Image.fromarray(photo).save(paths[0])
    Image.fromarray(cv2.resize(photo, None, fx=1, fy=1 / 5, interpolation=cv2.INTER_AREA)).save(paths[1])
    return paths


def test_a_pair_is_matched_drawn_and_written(doap: Doap, photos: tuple[Path, Path], tmp_path: Path) -> None:
    status, shown, _ = doap("match", *photos, *OPTIONS, "--json", "plain.json")
    assert status == 0
    assert "no matches found" in shown
    assert "step" not in json.loads((tmp_path / "plain.json").read_text())
    status, shown, _ = doap("match", *photos, *OPTIONS, "--wide", "-o", "wide.png", "--json", "wide.json")
    report = json.loads((tmp_path / "wide.json").read_text())
    assert status == 0
    assert report["step"] == len(report["tilts"]) > 0
    assert f"step {report['step']} succeeded; synthesised tilts: 2" in shown
    assert f"{report['verified']} verified matches of {len(report['matches'])} mutual ones" in shown
    with Image.open(tmp_path / "wide.png") as picture:
        assert picture.width > 700


def test_an_easy_pair_needs_no_views(doap: Doap, photos: tuple[Path, Path], tmp_path: Path) -> None:
    arguments = ("match", photos[0], photos[0], *OPTIONS, "--no-figure", "--json")
    _, plain, _ = doap(*arguments, "plain.json")
    _, wide, _ = doap(*arguments, "wide.json", "--wide")
    assert wide.splitlines() == [*plain.splitlines(), "step 0 succeeded: plain matching"]
    reports = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("plain", "wide")]
    assert {**reports[0], "step": 0, "tilts": []} == reports[1]


def test_no_match_is_a_result(doap: Doap, tmp_path: Path) -> None:
    for name, photo in (("a", sample_photo("chelsea")[50:130, 100:180]), ("b", sample_photo("coffee")[:80, 300:380])):
        Image.fromarray(photo).save(tmp_path / f"{name}.png")
    status, shown, _ = doap("match", "a.png", "b.png", *OPTIONS, "--wide", "--max-keypoints", 50)
    assert status == 0
    assert "no matches found" in shown
    assert "no step succeeded; synthesised tilts: 2, 4, 8, 1.41, 2.83, 5.66" in shown


def test_what_is_not_two_images_is_refused(doap: Doap, photos: tuple[Path, Path], tmp_path: Path) -> None:
    Image.new("L", (50, 40), 90).save(tmp_path / "flat.png")
    cases = {
        ("features.h5", "--exhaustive"): "--wide takes two images",
        (photos[0], "b.npz"): "--wide takes two images, not their features",
        (*photos, "--geometry", "none"): "choose a --geometry other than none",
        (photos[0], "flat.png"): "flat.png: no keypoint found in 50x40 pixels",
        (photos[0], "missing.png"): "missing.png",
    }
    for arguments, message in cases.items():
        status, _, errors = doap("match", *arguments, "--wide", "--model", "doap-tiny-128", "--no-figure")
        assert status == 1
        assert message in errors
        assert len(errors.strip().splitlines()) == 1
