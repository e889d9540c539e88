import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
import skimage
from PIL import Image

from doap import DoapError, PatchSet
from doap.datasets.build import building as build_module
from doap.datasets.build.assembly import BuildSettings
from doap.datasets.build.building import build
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.images.overlaps import overlapping_groups

SETTINGS = BuildSettings(points=60)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bracket, a plane seen three times, two single photos, and files that are no photos."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    camera = skimage.data.camera()
    coffee = cv2.cvtColor(skimage.data.coffee(), cv2.COLOR_RGB2GRAY)
    for name in ("bracket", "plane", "single"):
        (folder / name).mkdir(parents=True)
    Image.fromarray(camera).save(folder / "bracket" / "0.png")
    Image.fromarray((camera * 0.4).astype(np.uint8)).save(folder / "bracket" / "1.webp", quality=95)
    for degrees in (0, 9, -14):
        turn = cv2.getRotationMatrix2D((300, 200), degrees, 1.0)
        Image.fromarray(cv2.warpAffine(coffee, turn, (600, 400))).save(folder / "plane" / f"turned{degrees}.png")
    Image.fromarray(skimage.data.rocket()).save(folder / "single" / "rocket.jpg", quality=90)
    Image.fromarray(skimage.data.astronaut()).save(folder / "single" / "astronaut.png")
    Image.fromarray(np.full((90, 90), 60, np.uint8)).save(folder / "single" / "flat.png")
    (folder / "single" / "text.jpg").write_text("not a picture")
    return folder


@pytest.fixture(scope="module")
def frame_set(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("sets") / "frames"
    built = build([photos], target, SETTINGS, pixels=False)
    assert {row.name: row.found.source for row in built.scenes} == {
        "photos/bracket": "static",
        "photos/plane": "tracks",
        "photos/single/astronaut.png": "views",
        "photos/single/rocket.jpg": "views",
    }
    assert any("text.jpg: not a picture" in line for line in built.left_out)
    assert any("flat.png: fewer than 20 distinct keypoints found" in line for line in built.left_out)
    assert len(built.left_out) == 2
    return target


def test_every_frame_knows_its_photo_scene_and_source(frame_set: Path, photos: Path) -> None:
    found = FrameSet.open(frame_set)
    FrameSet.verify(frame_set)
    assert len(found.photo_names) == 7
    scene = [found.sequence_names[s] for s in found.sequences]
    photo = [found.photo_names[p] for p in found.photos]
    assert all(inside.startswith(name) for inside, name in zip(photo, scene, strict=True))
    assert {(n, SOURCES[s]) for n, s in zip(scene, found.sources, strict=True)} == {
        ("photos/bracket", "static"),
        ("photos/plane", "tracks"),
        ("photos/single/astronaut.png", "views"),
        ("photos/single/rocket.jpg", "views"),
    }
    expected = overlapping_groups(found.photos, found.frames, found.groups)
    assert len(expected) > 10
    assert {tuple(pair) for pair in expected.tolist()} <= {tuple(pair) for pair in found.overlaps.tolist()}
    own = np.asarray(Image.open(photos / "bracket" / "0.png"))
    np.testing.assert_array_equal(found.picture(found.photo_names.index("photos/bracket/0.png")), own)


def test_the_page_tells_all(frame_set: Path) -> None:
    page = (frame_set / "summary.html").read_text()
    assert "photos/plane" in page
    assert "by homographies" in page
    assert "text.jpg" in page
    for picture in ("sizes.png", "sheet-views.png", "sheet-static.png", "sheet-tracks.png"):
        assert picture in page
        with Image.open(frame_set / picture) as drawn:
            assert drawn.width > 400
    rows = (frame_set / "scenes.csv").read_text().splitlines()
    assert len(rows) == 5
    assert rows[1].startswith("photos/bracket,static,2,2,")


def test_with_pixels_it_is_the_same_set_cut(frame_set: Path, photos: Path, tmp_path: Path) -> None:
    build([photos], tmp_path / "set", SETTINGS)
    frames, cut = FrameSet.open(frame_set), PatchSet.open(tmp_path / "set")
    plain = cut.labels["level"] == 0
    assert plain.sum() == len(frames)
    np.testing.assert_array_equal(np.sort(cut.groups[plain]), np.sort(frames.groups))
    np.testing.assert_array_equal(cut.overlaps, frames.overlaps)
    assert cut.photo_names == frames.photo_names
    assert np.diff(cut.members_start).min() >= 4
    assert (tmp_path / "set" / "summary.html").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_sources_can_be_switched_off(photos: Path, tmp_path: Path) -> None:
    only = BuildSettings(points=40, views=False, tracks=False)
    built = build([photos], tmp_path / "static", only, pixels=False)
    assert [row.found.source for row in built.scenes] == ["static"]
    built = build([photos / "bracket"], tmp_path / "views", BuildSettings(points=40, fixed=False), pixels=False)
    # One photo alone: both would show the same points as different groups.
    assert FrameSet.open(tmp_path / "views").photo_names in (["bracket/0.png"], ["bracket/1.webp"])
    with pytest.raises(DoapError, match="no photo gave a group"):
        build([photos / "single" / "flat.png"], tmp_path / "none", SETTINGS)
    assert not (tmp_path / "none").exists()


def test_large_photos_are_shrunk_and_frames_fit_them(photos: Path, tmp_path: Path) -> None:
    build([photos / "single"], tmp_path / "set", BuildSettings(points=40, longest=256), pixels=False)
    found = FrameSet.open(tmp_path / "set")
    for number in range(len(found.pictures)):
        picture = found.picture(number)
        assert max(picture.shape) == 256
        centres = found.frames[found.photos == number][:, :, 2]
        assert (centres < picture.shape[::-1]).all()


def test_a_build_that_is_there_is_refused(frame_set: Path, photos: Path) -> None:
    with pytest.raises(DoapError, match="exists already"):
        build([photos], frame_set, SETTINGS)


KILLED = """
import os, signal, sys, pathlib
from doap.datasets.build import building as module
from doap.datasets.build.assembly import BuildSettings
found, limit = [], int(sys.argv[3])
def find(*arguments):
    if len(found) == limit:
        os.kill(os.getpid(), signal.SIGKILL)
    found.append(1)
    return original(*arguments)
original, module._find_frames = module._find_frames, find
module.build([pathlib.Path(sys.argv[1])], pathlib.Path(sys.argv[2]), BuildSettings(points=60), pixels=False)
"""


def test_a_killed_build_goes_on_and_ends_the_same(
    frame_set: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "set"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(photos), str(target), "2"], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not target.exists()
    made = []
    find = build_module._find_frames
    monkeypatch.setattr(build_module, "_find_frames", lambda *a: made.append(1) or find(*a))  # type: ignore[func-returns-value]
    monkeypatch.setattr(build_module, "group_photos", lambda *_: pytest.fail("folders were sorted before"))
    build([photos], target, SETTINGS, pixels=False)
    assert len(made) == 3  # of five scenes, flat.png among them
    assert [p.name for p in tmp_path.iterdir()] == ["set"]
    once, twice = FrameSet.open(frame_set), FrameSet.open(target)
    for name in ("photos", "groups", "sequences", "sources", "overlaps"):
        np.testing.assert_array_equal(getattr(once, name), getattr(twice, name))
    # OpenCV's filters round by where in memory a picture lies, so that still views register to about 1e-7 alike.
    np.testing.assert_allclose(once.frames, twice.frames, atol=1e-3)


def test_photos_that_changed_are_looked_at_again(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, own = tmp_path / "set", tmp_path / "own"
    own.mkdir()
    (own / "a.png").write_bytes((photos / "bracket" / "0.png").read_bytes())
    write = build_module.write_summary
    monkeypatch.setattr(build_module, "write_summary", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space"):
        build([own], target, SETTINGS, pixels=False)
    assert not target.exists()
    monkeypatch.setattr(build_module, "write_summary", write)
    (own / "a.png").write_bytes((photos / "plane" / "turned0.png").read_bytes())
    os.utime(own / "a.png", (time.time() + 5, time.time() + 5))
    build([own], target, SETTINGS, pixels=False)
    assert FrameSet.open(target).picture(0).shape == (400, 600)


def test_two_builds_of_one_set_do_not_mix(photos: Path, tmp_path: Path) -> None:
    from filelock import FileLock

    (tmp_path / ".set.building").mkdir()
    with FileLock(tmp_path / ".set.building" / "lock"), pytest.raises(DoapError, match="another build"):
        build([photos], tmp_path / "set", SETTINGS)


def test_the_manifest_names_no_place_on_the_disk(frame_set: Path, photos: Path) -> None:
    about = json.loads((frame_set / "set.json").read_text())
    assert str(photos.parent) not in json.dumps(about)
