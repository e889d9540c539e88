"""`doap dbow`, as a user runs it."""

import re
from pathlib import Path

import numpy as np
import pytest
import skimage
from PIL import Image

from doap.bridges.dbow import read_vocabulary
from doap.cli.using.dbow import calibration_images
from folders.conftest import open_in_process
from support.command_line import Doap

MODEL = ("--model", "doap-tiny-256b", "--max-keypoints", "150", "--device", "cpu", "--workers", "1")
OPTIONS = (*MODEL, "-k", "5", "-L", "3")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Crops of two photos, a blank image and a file that is no image."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, image in (("camera", skimage.data.camera()), ("coins", skimage.data.coins())):
        for index in range(2):
            crop = image[20 * index : 20 * index + 200, 30 * index : 30 * index + 220]
            Image.fromarray(np.ascontiguousarray(crop)).save(folder / f"{name}-{index}.png")
    Image.fromarray(np.full((60, 60), 128, np.uint8)).save(folder / "blank.png")
    (folder / "words.jpg").write_text("words")
    return folder


def test_a_vocabulary_is_trained_and_calibrated(doap: Doap, photos: Path) -> None:
    status, shown, errors = doap("dbow", photos, "-o", "voc.txt", *OPTIONS)
    assert status == 0, errors
    assert f"skipped: {photos / 'words.jpg'}: not an image" in shown
    assert re.search(r"^[2-6]\d\d descriptors of 4 images in voc-features\n", shown, re.MULTILINE)
    assert re.search(r"\b1\d\d words \(k = 5, L = 3\) in voc\.txt\n", shown)
    assert re.search(r"orb +TH_LOW = 50 +\d\.\d{3} % +\d+\.\d %\n", shown)
    low, high = (int(value) for value in re.findall(r"doap-tiny-256b +TH_\w+ = (\d+)", shown))
    assert 30 < low < high < 128
    vocabulary = read_vocabulary("voc.txt")
    assert len(vocabulary) > 100
    assert not Path("voc.txt").read_text().endswith("\n")

    status, shown, errors = doap("dbow", photos, "-o", "voc.txt", *OPTIONS)
    assert (status, errors.count("\n")) == (1, 1)
    assert "voc.txt: exists already; choose another name, or --force" in errors
    status, shown, _ = doap("dbow", photos, "-o", "voc.dbow3", *OPTIONS)
    assert "in voc-features, 5 of them described by an earlier run" in shown
    np.testing.assert_array_equal(read_vocabulary("voc.dbow3").descriptors, vocabulary.descriptors)
    others = ("--features", "voc-features", "--frames", "upright")
    status, _, errors = doap("dbow", photos, "-o", "other.yml", *OPTIONS, *others)
    assert (status, errors.count("\n")) == (1, 1)
    assert "voc-features: holds features with frames = detected, not upright" in errors
    assert not Path("other.yml").exists()


def test_a_vocabulary_is_of_use_without_thresholds(doap: Doap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ORB finds nothing in small images, which are described."""
    monkeypatch.setattr("doap.folders.describing.open_engine", open_in_process)
    monkeypatch.setattr("doap.folders.describing.start_loading", lambda *_: None)
    for index in range(2):
        Image.fromarray(skimage.data.coins()[20:80, 60 * index : 60 * index + 60]).save(tmp_path / f"{index}.png")
    status, shown, errors = doap("dbow", tmp_path, "-o", "voc.txt", *OPTIONS)
    assert (status, errors) == (0, "")
    assert shown.splitlines()[-1] == (
        "no thresholds: too few keypoints to calibrate thresholds; use images with texture"
    )
    assert len(read_vocabulary("voc.txt")) > 5


@pytest.mark.parametrize(
    ("count", "expected"), [(0, 0), (2, 2), (11, 11), (12, 12), (13, 12), (23, 12), (25, 12), (1000, 12)]
)
def test_thresholds_are_calibrated_on_at_most_twelve_evenly_spaced_images(count: int, expected: int) -> None:
    images = [Path(f"{number:04d}.png") for number in range(count)]
    chosen = calibration_images(images)
    assert len(set(chosen)) == expected
    steps = np.diff([images.index(image) for image in chosen])
    assert np.ptp(steps) <= 1 if expected > 1 else True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "voc.bin"), "voc.bin: vocabularies are written as .txt (ORB-SLAM), .dbow3 (DBoW3)"),
        (("-o", "voc.txt", "--model", "doap-tiny-128"), "doap-tiny-128: a vocabulary needs binary descriptors"),
        (("-o", "voc.txt", "--model", "beblid-512"), "ORB-SLAM reads descriptors of 256 bits, not of 512"),
        (("-o", "voc.txt", "--model", "doap-9"), "doap-9: no such file, and no model of this name"),
        (("-o", "voc.txt", "-k", "30"), "k = 30, L = 6: ORB-SLAM and DBoW3 read"),
        (("-o", "voc.txt", "-k", "20"), "choose k and L for at most 10,000,000"),
        (("-o", "photos.txt"), "photos.txt: is a folder; name a file"),
        (("-o", "photos/blank.png/voc.txt"), "blank.png"),
    ],
)
def test_wrong_arguments_are_one_line(doap: Doap, photos: Path, arguments: tuple[str, ...], message: str) -> None:
    Path("photos.txt").mkdir()
    before = sorted(Path().rglob("*"))
    status, _, errors = doap("dbow", photos, *arguments)
    assert (status, errors.count("\n")) == (1, 1)
    assert message in errors
    assert sorted(Path().rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("blank.png", "camera-0.png"), "1 image with keypoints; a vocabulary needs at least two"),
        (("words.jpg",), "no image could be described, the first: "),
    ],
)
def test_too_few_images_are_one_line(doap: Doap, photos: Path, names: tuple[str, ...], message: str) -> None:
    status, _, errors = doap("dbow", *(photos / name for name in names), "-o", "voc.txt", *OPTIONS)
    assert (status, errors.count("\n")) == (1, 1)
    assert message in errors
    assert not Path("voc.txt").exists()
