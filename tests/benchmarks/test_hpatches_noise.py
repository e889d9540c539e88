"""The measurement of the noise in HPatches folders, on patches with known noise and on official ones."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from benchmarks.hpatches_noise import COLUMNS, measure, noise_of, register

from doap.choices import HPatchesNoise
from doap.datasets.build.hpatches_format import NOISE_LEVELS, choose_frames, cut_strips
from doap.datasets.official.hpatches import IMAGES, write_hpatches_folder
from doap.images.extraction import extract_patches

ROTATION, SCALE, STRETCH, _ = range(len(COLUMNS))


def test_known_noise_is_measured(photo: np.ndarray) -> None:
    """A rotation by 12°, a scale of 2^0.2, a stretch of 2^0.3 and a shift of 0.4 and -0.2 scales."""
    plain = choose_frames([photo], np.eye(3)[None], 20, np.random.default_rng(0))
    turn = cv2.getRotationMatrix2D((0, 0), 12, 1.0)[:, :2]
    affine = 2**0.2 * turn @ np.diag([2**0.15, 2**-0.15])
    shapes, shift = plain[:, :, :2], np.array([[0.4], [-0.2]])
    noisy = np.concatenate([shapes @ affine, plain[:, :, 2:] + shapes @ shift], 2).astype(np.float32)
    patches = (extract_patches(photo, frames, 65, 5.0) for frames in (plain, noisy))
    matrices = [register(first, second) for first, second in zip(*patches, strict=True)]
    aligned = [noise_of(matrix) for matrix in matrices if matrix is not None]
    assert len(aligned) >= 15
    rotation, scale, stretch, length = np.median(aligned, axis=0)
    assert rotation == pytest.approx(12, abs=0.5)
    assert scale == pytest.approx(0.2, abs=0.02)
    assert stretch == pytest.approx(0.3, abs=0.02)
    # In the noisy patch the original centre is shifted by the inverse.
    assert length == pytest.approx(np.linalg.norm(np.linalg.inv(affine) @ shift), abs=0.03)


def test_patches_of_other_points_do_not_align(photo: np.ndarray) -> None:
    frames = np.array([[[6.0, 0, 120], [0, 6, 160]], [[6, 0, 400], [0, 6, 80]]], np.float32)
    first, second = extract_patches(photo, frames, 65, 5.0)
    assert register(first, second) is None


def noise_medians(sequence: Path) -> np.ndarray:
    """Return the median noise of hard patches."""
    return np.median(measure(sequence, "hard", 60, 0), axis=0)


@pytest.fixture(scope="module")
def official(hpatches_patches: Path) -> np.ndarray:
    return noise_medians(hpatches_patches / "i_contruction")


@pytest.mark.parametrize(("noise", "least", "most"), [("measured", 0.7, 1.4), ("overlap", 0.3, 0.75)])
def test_made_folders_have_the_noise_of_official_ones(
    noise: HPatchesNoise, least: float, most: float, photo: np.ndarray, official: np.ndarray, tmp_path: Path
) -> None:
    """The noise that is `measured` equals the official one; the overlaps of the paper are reached with half of it."""
    images, homographies = [photo] * (IMAGES + 1), np.stack([np.eye(3)] * (IMAGES + 1))
    frames = choose_frames(images, homographies, 60, np.random.default_rng(0))
    strips, _ = cut_strips(images, homographies, frames, NOISE_LEVELS[noise], torch.Generator().manual_seed(0))
    write_hpatches_folder(tmp_path / "made", strips)
    ratios = noise_medians(tmp_path / "made") / official
    assert (ratios[[ROTATION, SCALE, STRETCH]] > least).all(), ratios
    assert (ratios[[ROTATION, SCALE, STRETCH]] < most).all(), ratios
