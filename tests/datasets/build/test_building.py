import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
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
from doap.images.reconstruction.colmap import has_colmap
from doap.images.reconstruction.overlaps import find_overlapping_groups
from doap.parallel import EngineName
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


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def patch_set(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A patch set built by one worker."""
    target = tmp_path_factory.mktemp("sets") / "set"
    build([photos], target, SETTINGS, workers=1)
    return target


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "workers"), [("local", 2), ("local", 3), ("ray", 2)])
def test_the_set_does_not_depend_on_the_engine(
    patch_set: Path, photos: Path, tmp_path: Path, engine: EngineName, workers: int
) -> None:
    build([photos], tmp_path / "set", SETTINGS, engine=engine, workers=workers)
    assert contents(tmp_path / "set") == contents(patch_set)


@pytest.mark.slow
@pytest.mark.skipif(not has_colmap(), reason="needs pycolmap")
def test_a_reconstruction_does_not_depend_on_the_workers(south_building: Path, tmp_path: Path) -> None:
    photos = sorted(south_building.iterdir())[10:17]
    (tmp_path / "scene").mkdir()
    for photo in photos:
        (tmp_path / "scene" / photo.name).symlink_to(photo)
    for workers in (1, 2):
        result = build([tmp_path / "scene"], tmp_path / f"set{workers}", SETTINGS, pixels=False, workers=workers)
    assert "photos by structure" in result.scenes[0].frames.note
    assert contents(tmp_path / "set1") == contents(tmp_path / "set2")


def start_build(photos: Path, target: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "doap", "data", "build", str(photos), "-o", str(target), "--points", "60"]
    return subprocess.Popen([*command, "--workers", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_files(folder: Path, pattern: str, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(list(folder.glob(pattern))) < count and time.monotonic() < deadline:
        time.sleep(0.005)


def workers_of(pid: int) -> list[int]:
    """Return the workers of a process: the children of its children, among them the server that forks them."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    servers = {child for child, parent in parents.items() if parent == pid}
    return [child for child, parent in parents.items() if parent in servers]


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "count"), [("photo-*.npz", 4), ("scene-*.npz", 2)])
def test_a_killed_build_continues_with_the_same_result(
    patch_set: Path, photos: Path, tmp_path: Path, pattern: str, count: int
) -> None:
    target, cache = tmp_path / "set", tmp_path / ".set.building"
    process = start_build(photos, target)
    wait_for_files(cache, pattern, count)
    process.kill()
    process.wait()
    assert not target.exists()
    assert len(list(cache.glob(pattern))) >= count
    read = len(list(cache.glob("photo-*.npz")))
    totals: dict[str, int | None] = {}
    build([photos], target, SETTINGS, progress=lambda step, _, total: totals.update({step: total}))
    assert totals["reading photos"] == 9 - read  # the others, and text.jpg
    assert contents(target) == contents(patch_set)
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(patch_set: Path, photos: Path, tmp_path: Path) -> None:
    process = start_build(photos, tmp_path / "set")
    wait_for_files(tmp_path / ".set.building", "photo-*.npz", 2)
    killed = workers_of(process.pid)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert len(killed) == 2
    assert process.wait(timeout=300) == 0
    assert contents(tmp_path / "set") == contents(patch_set)


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


def test_a_build_killed_after_its_set_was_complete_leaves_nothing(photos: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "set", tmp_path / ".set.building"):
        folder.mkdir()
        (folder / "file").touch()
    with pytest.raises(DoapError, match="exists already"):
        build([photos], tmp_path / "set", SETTINGS)
    assert list(tmp_path.iterdir()) == [tmp_path / "set"]


def test_the_manifest_has_no_absolute_path(frame_set: Path, photos: Path) -> None:
    manifest = json.loads((frame_set / "set.json").read_text())
    assert str(photos.parent) not in json.dumps(manifest)


@pytest.mark.parametrize("longest", [63, 16384])
def test_sides_that_webp_cannot_store_are_refused(longest: int) -> None:
    with pytest.raises(DoapError, match=f"longest must be 64 to 16,383 pixels, not {longest:,}"):
        BuildSettings(longest=longest)
