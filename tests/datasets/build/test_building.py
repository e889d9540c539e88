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
from doap.datasets.build.building import build
from doap.datasets.build.settings import BuildSettings
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.images.overlaps import find_overlapping_groups
from doap.images.reconstruction.scene_frames import SceneFrames
from doap.types import Grey
from support.sample_photos import sample_photo

SETTINGS = BuildSettings(points=60)


@pytest.fixture(scope="module")
def photos(photo: Grey, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bracket, three photos of a plane, two single photos, and files that are no photos."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    for name in ("bracket", "plane", "single"):
        (folder / name).mkdir(parents=True)
    Image.fromarray(photo).save(folder / "bracket" / "0.png")
    Image.fromarray((photo * 0.4).astype(np.uint8)).save(folder / "bracket" / "1.webp", quality=95)
    for degrees in (0, 9, -14):
        turn = cv2.getRotationMatrix2D((300, 200), degrees, 1.0)
        Image.fromarray(cv2.warpAffine(sample_photo("coffee"), turn, (600, 400))).save(
            folder / "plane" / f"turned{degrees}.png"
        )
    for name, image in (("rocket.jpg", "rocket"), ("astronaut.png", "astronaut")):
        Image.fromarray(getattr(skimage.data, image)()).save(folder / "single" / name, quality=90)  # in colour
    Image.fromarray(np.full((90, 90), 60, np.uint8)).save(folder / "single" / "flat.png")
    (folder / "single" / "text.jpg").write_text("not a picture")
    return folder


@pytest.fixture(scope="module")
def frame_set(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("sets") / "frames"
    result = build([photos], target, SETTINGS, pixels=False)
    assert {scene.name: scene.frames.source for scene in result.scenes} == {
        "photos/bracket": "static",
        "photos/plane": "tracks",
        "photos/single/astronaut.png": "views",
        "photos/single/rocket.jpg": "views",
    }
    assert any("text.jpg: not an image" in line for line in result.skipped)
    assert any("flat.png: fewer than 20 distinct keypoints found" in line for line in result.skipped)
    assert len(result.skipped) == 2
    return target


def test_every_frame_has_its_photo_scene_and_source(frame_set: Path, photos: Path) -> None:
    data = FrameSet.open(frame_set)
    FrameSet.verify(frame_set)
    assert len(data.photo_names) == 7
    scene = [data.sequence_names[s] for s in data.sequences]
    photo = [data.photo_names[p] for p in data.photos]
    assert all(inside.startswith(name) for inside, name in zip(photo, scene, strict=True))
    assert {(n, SOURCES[s]) for n, s in zip(scene, data.sources, strict=True)} == {
        ("photos/bracket", "static"),
        ("photos/plane", "tracks"),
        ("photos/single/astronaut.png", "views"),
        ("photos/single/rocket.jpg", "views"),
    }
    expected = find_overlapping_groups(data.photos, data.frames, data.groups)
    assert len(expected) > 10
    assert {tuple(pair) for pair in expected.tolist()} <= {tuple(pair) for pair in data.overlaps.tolist()}
    own = np.asarray(Image.open(photos / "bracket" / "0.png"))
    np.testing.assert_array_equal(data.read_photo(data.photo_names.index("photos/bracket/0.png")), own)


def test_the_summary_has_scenes_figures_and_skipped_photos(frame_set: Path) -> None:
    page = (frame_set / "summary.html").read_text()
    assert "photos/plane" in page
    assert "by homographies" in page
    assert "text.jpg" in page
    for name in ("sizes.png", "sheet-views.png", "sheet-static.png", "sheet-tracks.png"):
        assert f'src="{name}"' in page
        with Image.open(frame_set / name) as image:
            assert image.width > 400
    rows = (frame_set / "scenes.csv").read_text().splitlines()
    assert len(rows) == 5
    assert rows[1].startswith("photos/bracket,static,2,2,")


def test_the_patch_set_has_the_patches_of_the_frame_set(frame_set: Path, photos: Path, tmp_path: Path) -> None:
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
    result = build([photos], tmp_path / "static", only, pixels=False)
    assert [scene.frames.source for scene in result.scenes] == ["static"]
    build([photos / "bracket"], tmp_path / "views", BuildSettings(points=40, static=False), pixels=False)
    # Only one photo: both would show the same points as different groups.
    assert FrameSet.open(tmp_path / "views").photo_names in (["bracket/0.png"], ["bracket/1.webp"])
    with pytest.raises(DoapError, match="no groups found in any photo"):
        build([photos / "single" / "flat.png"], tmp_path / "none", SETTINGS)
    assert not (tmp_path / "none").exists()


def test_large_photos_are_shrunk_and_frames_fit_them(photos: Path, tmp_path: Path) -> None:
    build([photos / "single"], tmp_path / "set", BuildSettings(points=40, longest=256), pixels=False)
    data = FrameSet.open(tmp_path / "set")
    for number in range(len(data.encoded_photos)):
        photo = data.read_photo(number)
        assert max(photo.shape) == 256
        centres = data.frames[data.photos == number][:, :, 2]
        assert (centres < photo.shape[::-1]).all()


def test_an_existing_set_is_refused(frame_set: Path, photos: Path) -> None:
    with pytest.raises(DoapError, match="exists already"):
        build([photos], frame_set, SETTINGS)


KILLED = """
import os, signal, sys, pathlib
from doap.datasets.build import building as module
from doap.datasets.build.settings import BuildSettings
calls, limit = [], int(sys.argv[3])
def find(*arguments):
    if len(calls) == limit:
        os.kill(os.getpid(), signal.SIGKILL)
    calls.append(1)
    return original(*arguments)
original, module._find_frames = module._find_frames, find
module.build([pathlib.Path(sys.argv[1])], pathlib.Path(sys.argv[2]), BuildSettings(points=60), pixels=False)
"""


@pytest.mark.slow
def test_a_killed_build_continues_with_the_same_result(
    frame_set: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "set"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(photos), str(target), "2"], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not target.exists()
    kinds = []
    find = build_module._find_frames

    def count(kind: str, images: list[Grey], settings: BuildSettings) -> SceneFrames | None:
        kinds.append(kind)
        return find(kind, images, settings)

    monkeypatch.setattr(build_module, "_find_frames", count)
    monkeypatch.setattr(build_module, "cluster_photos", lambda *_: pytest.fail("folders are clustered already"))
    build([photos], target, SETTINGS, pixels=False)
    assert len(kinds) == 3  # of five scenes, including flat.png
    assert [p.name for p in tmp_path.iterdir()] == ["set"]
    once, twice = FrameSet.open(frame_set), FrameSet.open(target)
    for name in ("photos", "groups", "sequences", "sources", "overlaps"):
        np.testing.assert_array_equal(getattr(once, name), getattr(twice, name))
    # Rounding in OpenCV's filters depends on memory alignment: static views register alike to about 1e-7 only.
    np.testing.assert_allclose(once.frames, twice.frames, atol=1e-3)


def test_changed_photos_are_processed_again(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, own = tmp_path / "set", tmp_path / "own"
    own.mkdir()
    (own / "a.png").write_bytes((photos / "bracket" / "0.png").read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(build_module, "write_summary", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(OSError, match="No space"):
            build([own], target, SETTINGS, pixels=False)
    assert not target.exists()
    (own / "a.png").write_bytes((photos / "plane" / "turned0.png").read_bytes())
    os.utime(own / "a.png", (time.time() + 5, time.time() + 5))
    build([own], target, SETTINGS, pixels=False)
    assert FrameSet.open(target).read_photo(0).shape == (400, 600)


def test_a_second_build_of_a_set_is_refused(photos: Path, tmp_path: Path) -> None:
    from filelock import FileLock

    (tmp_path / ".set.building").mkdir()
    with FileLock(tmp_path / ".set.building" / "lock"), pytest.raises(DoapError, match="another build"):
        build([photos], tmp_path / "set", SETTINGS)


def test_the_manifest_has_no_absolute_path(frame_set: Path, photos: Path) -> None:
    manifest = json.loads((frame_set / "set.json").read_text())
    assert str(photos.parent) not in json.dumps(manifest)
