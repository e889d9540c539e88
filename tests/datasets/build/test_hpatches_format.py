"""Sequences are made by warping one photo, so that the content of every patch is known."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from doap.datasets.build.hpatches_format import SETTINGS_FILE, choose_frames, cut_strips, missing_sequences
from doap.datasets.build.settings import HPatchesSettings
from doap.datasets.official.hpatches import EXTENT, SIZE, STRIPS
from doap.errors import DoapError
from doap.geometry.ellipses import overlap, scales
from doap.geometry.homographies import transform_points
from doap.images.frames import transform_frames
from doap.images.jitter.views import LEVELS, JitterLevel

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
def selected(images: list[np.ndarray]) -> np.ndarray:
    return choose_frames(images, HOMOGRAPHIES, 120, np.random.default_rng(0))


@pytest.fixture(scope="module")
def cut(images: list[np.ndarray], selected: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    return cut_strips(images, HOMOGRAPHIES, selected, LEVELS, torch.Generator().manual_seed(0))


def root_sift(patches: np.ndarray) -> np.ndarray:
    """Compute OpenCV's upright SIFT of whole 65x65 patches: 4x4 cells of 3 radii are as wide as the patch."""
    sift, middle = cv2.SIFT.create(), (SIZE - 1) / 2
    vectors = [sift.compute(patch, [cv2.KeyPoint(middle, middle, 2 * SIZE / 12, 0, 0, 0)])[1][0] for patch in patches]
    return np.asarray(np.sqrt(np.array(vectors) / np.maximum(np.sum(vectors, axis=1, keepdims=True), 1e-12)))


def test_frames_lie_in_all_images_and_none_twice(selected: np.ndarray) -> None:
    assert 80 < len(selected) <= 120
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * EXTENT
    for homography in HOMOGRAPHIES:
        mapped = transform_frames(selected, homography)
        rim = np.einsum("nij,kj->nki", mapped[:, :, :2], corners) + mapped[:, None, :, 2]
        assert rim.min() >= -1e-3
        assert rim.max() <= 511 + 1e-3
        assert scales(mapped).min() >= 0.999
    i, j = np.triu_indices(len(selected), 1)
    near = np.linalg.norm(selected[i, :, 2] - selected[j, :, 2], axis=1) < 20
    assert overlap(selected[i[near]], selected[j[near]]).max() < 0.53


def test_frames_behind_the_camera_are_dropped(photo: np.ndarray) -> None:
    """Where -0.004 x + 1 is negative, the photo is behind the camera and its points would be mirrored."""
    behind = np.array([[-1.0, 0, 200], [0, -1.0, 200], [-0.004, 0, 1]])
    frames = choose_frames([photo, photo], np.stack([np.eye(3), behind]), 200, np.random.default_rng(0))
    x, y = transform_points(frames[:, :, 2], behind).T
    assert (-0.004 * frames[:, 0, 2] + 1 > 0).all()
    assert ((x >= 0) & (x <= 511) & (y >= 0) & (y <= 511)).all()


def test_without_jitter_every_image_shows_the_reference_patch(images: list[np.ndarray], selected: np.ndarray) -> None:
    no_jitter = {name: JitterLevel(*[0.0] * 10) for name in LEVELS}
    strips, overlaps = cut_strips(images, HOMOGRAPHIES, selected[:40], no_jitter, torch.Generator())
    assert overlaps == pytest.approx(dict.fromkeys(LEVELS, 1.0), abs=1e-5)
    assert set(strips) == set(STRIPS)
    reference = strips["ref"].reshape(40, -1).astype(float)
    for name, patches in strips.items():
        correlations = [np.corrcoef(a, b)[0, 1] for a, b in zip(reference, patches.reshape(40, -1), strict=True)]
        assert np.median(correlations) > 0.98, name
        assert np.mean(np.array(correlations) > 0.9) > 0.95, name


def test_jitter_overlaps_as_in_hpatches(cut: tuple[dict[str, np.ndarray], dict[str, float]]) -> None:
    assert cut[1] == pytest.approx({"easy": 0.85, "hard": 0.72, "tough": 0.60}, abs=0.02)


def test_harder_strips_are_harder_to_match(cut: tuple[dict[str, np.ndarray], dict[str, float]]) -> None:
    strips = {name: root_sift(patches) for name, patches in cut[0].items()}
    correct = {}
    for level in "eht":
        nearest = [(strips["ref"] @ strips[f"{level}{number}"].T).argmax(1) for number in range(1, 6)]
        correct[level] = np.mean(np.array(nearest) == np.arange(len(strips["ref"])))
    print({level: round(float(value), 3) for level, value in correct.items()})
    assert correct["e"] > 0.8
    assert correct["e"] > correct["h"] + 0.02
    assert correct["h"] > correct["t"] + 0.05


def test_damaged_settings_are_one_line(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_bytes(b"caf\xe9\n")
    with pytest.raises(DoapError, match="was started with other settings") as caught:
        missing_sequences([], tmp_path, HPatchesSettings())
    assert "\n" not in str(caught.value)
