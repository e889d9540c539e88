import numpy as np
import pytest

from doap import DoapError
from doap.evaluation.image_pairs import warped
from doap.evaluation.image_pairs.warped import Pair, evaluate, make_pairs, score, summarise
from doap.geometry.ellipses import scales
from doap.images.frames import detect_dog, transform_frames
from doap.images.warping import random_homography
from doap.networks.baselines.sift import Sift
from doap.types import Frames


class TrainState:
    """An oracle: describes a frame by where it lies in the photo, which the homography tells."""

    name, kind = "oracle", "real"

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def describe_frames(self, image: np.ndarray, frames: Frames) -> np.ndarray:
        if image is self.pair.copy:
            frames = transform_frames(frames, np.linalg.inv(self.pair.homography))
        return np.column_stack([frames[:, :, 2], 20 * np.log(scales(frames))]).astype(np.float32)


class Noise:
    name, kind = "noise", "real"

    def describe_frames(self, image: np.ndarray, frames: Frames) -> np.ndarray:
        return np.random.default_rng(image.size + len(frames)).normal(size=(len(frames), 8)).astype(np.float32)


@pytest.fixture(scope="module")
def pairs(photo: np.ndarray) -> list[Pair]:
    return make_pairs("camera", photo, copies=3, keypoints=300, seed=0)


def test_the_copy_shows_the_photo_through_the_homography(pairs: list[Pair]) -> None:
    """Light apart: the copy warped back correlates with the photo where both are seen."""
    for pair in pairs:
        back = warped.warp(warped.Pyramid(pair.copy), np.linalg.inv(pair.homography))[0].numpy()
        seen = warped.warp(warped.Pyramid(np.pad(np.full((510, 510), 255, np.uint8), 1)), pair.homography)
        seen = warped.warp(warped.Pyramid(seen[0].numpy().astype(np.uint8)), np.linalg.inv(pair.homography))
        inside = (seen[0].numpy() > 254)[60:-60, 60:-60]
        assert inside.mean() > 0.5
        a, b = back[60:-60, 60:-60][inside], pair.photo[60:-60, 60:-60][inside].astype(float)
        assert np.corrcoef(a, b)[0, 1] > 0.9


def test_correspondences_are_close_in_place_and_scale(pairs: list[Pair]) -> None:
    pair = pairs[0]
    true = pair.correspondences()
    assert true.shape == (300, len(pair.copy_frames))
    assert true.any(1).sum() > 80
    sent = transform_frames(pair.photo_frames, pair.homography)
    for i, j in zip(*np.nonzero(true), strict=True):
        assert np.hypot(*(sent[i, :, 2] - pair.copy_frames[j, :, 2])) <= 3
        assert 1 / 1.5 <= scales(sent)[i] / scales(pair.copy_frames)[j] <= 1.5
    i, j = map(int, np.argwhere(~true)[0])
    far = np.hypot(*(sent[i, :, 2] - pair.copy_frames[j, :, 2])) > 3
    assert far or abs(np.log(scales(sent)[i] / scales(pair.copy_frames)[j])) > np.log(1.5)


def test_an_oracle_scores_high_and_noise_scores_nothing(pairs: list[Pair]) -> None:
    for pair in pairs:
        best, worst = score(pair, TrainState(pair)), score(pair, Noise())
        assert best.average_precision > 0.95
        assert best.correct_neighbours > 0.97
        assert worst.average_precision < 0.05


def test_an_unchanged_photo_is_matched_with_itself(photo: np.ndarray) -> None:
    frames = detect_dog(photo, 200)
    same = Pair("same", photo, photo, np.eye(3), frames, frames)
    assert score(same, Sift()).correct_neighbours == 1.0


def test_rows_are_means_over_pairs_best_first(pairs: list[Pair]) -> None:
    told = []
    scores = evaluate(pairs, [Noise(), Sift(), Sift(root=True)], lambda: told.append(1))
    rows = summarise(scores)
    assert len(told) == 9
    assert rows[-1]["descriptor"] == "noise"
    sift = next(row for row in rows if row["descriptor"] == "SIFT")
    assert sift["mAP"] == pytest.approx(100 * np.mean([s.average_precision for s in scores if s.descriptor == "SIFT"]))
    assert (sift["bytes"], sift["pairs"]) == (512, 3)
    assert sift["mAP"] > 50


def test_the_seed_fixes_the_copies(photo: np.ndarray, pairs: list[Pair]) -> None:
    again = make_pairs("camera", photo, copies=3, keypoints=300, seed=0)
    assert all(np.array_equal(a.copy, b.copy) for a, b in zip(pairs, again, strict=True))
    other = make_pairs("camera", photo, copies=1, keypoints=300, seed=1)
    assert not np.array_equal(other[0].homography, pairs[0].homography)


def test_the_warp_of_nothing_is_the_photo_within_a_pixel(photo: np.ndarray) -> None:
    same = warped.warp(warped.Pyramid(photo), np.eye(3))[0].numpy()
    assert np.abs(same - photo).mean() < 3
    assert np.corrcoef(same.ravel(), photo.ravel())[0, 1] > 0.995


def test_large_photos_are_scaled_down() -> None:
    y, x = np.mgrid[:900, :1600]
    (pair,) = make_pairs("large", ((x // 50 + y // 50) % 2 * 200).astype(np.uint8), 1, 50, seed=0)
    assert pair.photo.shape == (360, 640)


def test_homographies_keep_the_photo_in_front() -> None:
    random = np.random.default_rng(0)
    corners = np.array([[0, 0, 1], [639, 0, 1], [0, 479, 1], [639, 479, 1.0]])
    for _ in range(200):
        assert (corners @ random_homography((480, 640), random)[2] > 0.3).all()


def test_a_flat_photo_is_one_line() -> None:
    with pytest.raises(DoapError, match="wall: no keypoint"):
        make_pairs("wall", np.full((100, 100), 9, np.uint8), 1, 50, seed=0)
