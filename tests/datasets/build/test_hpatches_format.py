"""Sequences are made by warping one photo, so that what every patch must show is known."""

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from doap.cli.main import main
from doap.datasets.build.hpatches_format import choose_frames, cut_strips
from doap.datasets.official.hpatches import EXTENT, SIZE, STRIPS, read_strip
from doap.geometry.ellipses import overlap, scales
from doap.geometry.homographies import transform_points
from doap.images.frames import transform_frames
from doap.images.jitter import LEVELS, Level

HOMOGRAPHIES = np.array(
    [
        np.eye(3),
        [[0.9, -0.2, 60], [0.2, 0.9, -30], [0, 0, 1]],
        [[1.1, 0.1, -40], [-0.05, 1.0, 10], [2e-4, 0, 1]],
        [[0.8, 0, 40], [0, 1.1, -20], [0, 1e-4, 1]],
        [[0, -1, 511], [1, 0, 0], [0, 0, 1]],
        [[0.95, 0.3, -60], [-0.3, 0.95, 80], [-1e-4, 1e-4, 1]],
    ]
)


@pytest.fixture(scope="module")
def images(photo: np.ndarray) -> list[np.ndarray]:
    return [cv2.warpPerspective(photo, homography, (512, 512), borderValue=255) for homography in HOMOGRAPHIES]


@pytest.fixture(scope="module")
def chosen(images: list[np.ndarray]) -> np.ndarray:
    return choose_frames(images, HOMOGRAPHIES, 120, np.random.default_rng(0))


@pytest.fixture(scope="module")
def cut(images: list[np.ndarray], chosen: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    return cut_strips(images, HOMOGRAPHIES, chosen, LEVELS, torch.Generator().manual_seed(0))


def write_sequence(folder: Path, images: list[np.ndarray]) -> None:
    folder.mkdir(parents=True)
    for number, (image, homography) in enumerate(zip(images, HOMOGRAPHIES, strict=True), 1):
        Image.fromarray(image).save(folder / f"{number}.ppm")
        if number > 1:
            np.savetxt(folder / f"H_1_{number}", homography)


def root_sift(patches: np.ndarray) -> np.ndarray:
    """OpenCV's SIFT over a whole 65x65 patch, upright: 4x4 cells of 3 radii each are as wide as the patch."""
    sift, middle = cv2.SIFT.create(), (SIZE - 1) / 2
    vectors = [sift.compute(patch, [cv2.KeyPoint(middle, middle, 2 * SIZE / 12, 0, 0, 0)])[1][0] for patch in patches]
    return np.sqrt(np.array(vectors) / np.maximum(np.sum(vectors, axis=1, keepdims=True), 1e-12))


def test_frames_lie_in_all_images_and_none_twice(chosen: np.ndarray) -> None:
    assert 80 < len(chosen) <= 120
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * EXTENT
    for homography in HOMOGRAPHIES:
        sent = transform_frames(chosen, homography)
        rim = np.einsum("nij,kj->nki", sent[:, :, :2], corners) + sent[:, None, :, 2]
        assert rim.min() >= -1e-3
        assert rim.max() <= 511 + 1e-3
        assert scales(sent).min() >= 0.999
    i, j = np.triu_indices(len(chosen), 1)
    near = np.linalg.norm(chosen[i, :, 2] - chosen[j, :, 2], axis=1) < 20
    assert overlap(chosen[i[near]], chosen[j[near]]).max() < 0.53


def test_frames_behind_the_camera_are_dropped(photo: np.ndarray) -> None:
    """Where -0.004 x + 1 is negative the photo lies behind; its points would arrive inside, mirrored."""
    behind = np.array([[-1.0, 0, 200], [0, -1.0, 200], [-0.004, 0, 1]])
    frames = choose_frames([photo, photo], np.stack([np.eye(3), behind]), 200, np.random.default_rng(0))
    x, y = transform_points(frames[:, :, 2], behind).T
    assert (-0.004 * frames[:, 0, 2] + 1 > 0).all()
    assert ((x >= 0) & (x <= 511) & (y >= 0) & (y <= 511)).all()


def test_without_jitter_every_image_shows_the_reference_patch(images: list[np.ndarray], chosen: np.ndarray) -> None:
    still = {name: Level(*[0.0] * 10) for name in LEVELS}
    strips, overlaps = cut_strips(images, HOMOGRAPHIES, chosen[:40], still, torch.Generator())
    assert overlaps == pytest.approx(dict.fromkeys(LEVELS, 1.0), abs=1e-5)
    assert set(strips) == set(STRIPS)
    reference = strips["ref"].reshape(40, -1).astype(float)
    for name, patches in strips.items():
        found = [np.corrcoef(a, b)[0, 1] for a, b in zip(reference, patches.reshape(40, -1), strict=True)]
        assert np.median(found) > 0.98, name
        assert np.mean(np.array(found) > 0.9) > 0.95, name


def test_jitter_overlaps_as_in_hpatches(cut: tuple[dict[str, np.ndarray], dict[str, float]]) -> None:
    assert cut[1] == pytest.approx({"easy": 0.85, "hard": 0.72, "tough": 0.60}, abs=0.02)


def test_harder_strips_are_harder_to_match(cut: tuple[dict[str, np.ndarray], dict[str, float]]) -> None:
    strips = {name: root_sift(patches) for name, patches in cut[0].items()}
    right = {}
    for level in "eht":
        nearest = [(strips["ref"] @ strips[f"{level}{number}"].T).argmax(1) for number in range(1, 6)]
        right[level] = np.mean(np.array(nearest) == np.arange(len(strips["ref"])))
    print({level: round(float(share), 3) for level, share in right.items()})
    assert right["e"] > 0.8
    assert right["e"] > right["h"] + 0.02
    assert right["h"] > right["t"] + 0.05


def test_folders_are_made_and_a_stopped_run_goes_on(
    tmp_path: Path, images: list[np.ndarray], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("v_one", "v_two", "v_torn"):
        write_sequence(tmp_path / "sequences" / name, images)
    Path("sequences/v_torn/3.ppm").write_bytes(b"P5 torn")
    (tmp_path / "sequences" / "v_lost").mkdir()
    write_sequence(tmp_path / "flat", [np.full((64, 64), 9, np.uint8)] * 6)

    def doap(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["doap", "data", "hpatches", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out + shown.err

    status, shown = doap("sequences", "flat", "-o", "made", "--points", 20)
    assert status == 0
    assert "2 sequences, 40 patches a strip in all" in shown
    assert shown.count("left out:") == 3
    assert all(error in shown for error in ("v_torn/3.ppm: ", "v_lost: no image sequence", "flat: no frame found"))
    strips = {name: read_strip(Path("made/v_one") / f"{name}.png") for name in STRIPS}
    assert {patches.shape for patches in strips.values()} == {(20, 65, 65)}
    assert sorted(p.name for p in Path("made").iterdir()) == ["made.json", "v_one", "v_two"]

    # As if stopped before the first: the same patches come again, the other is not touched.
    for file in Path("made/v_one").iterdir():
        file.unlink()
    Path("made/v_one").rmdir()
    untouched = Path("made/v_two/ref.png").stat().st_mtime_ns
    assert "1 sequence, 20 patches" in doap("sequences", "-o", "made", "--points", 20)[1]
    assert all((read_strip(Path("made/v_one") / f"{n}.png") == patches).all() for n, patches in strips.items())
    assert Path("made/v_two/ref.png").stat().st_mtime_ns == untouched

    whole = doap("sequences/v_one", "sequences/v_two", "-o", "made", "--points", 20)
    assert whole == (1, "doap: made: exists already and has every sequence; remove it or choose another name\n")
    assert "begun with other settings" in doap("sequences", "-o", "made", "--seed", 5)[1]
    assert "flat: exists already" in doap("sequences", "-o", "flat")[1]
    assert "called v_one too" in doap("sequences", "sequences/v_one", "-o", "new")[1]
    assert doap("nowhere", "-o", "new") == (1, "doap: nowhere: no such folder\n")
