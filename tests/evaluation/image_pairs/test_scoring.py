from pathlib import Path

import cv2
import numpy as np
import pytest

from doap.evaluation.image_pairs.oxford import find_oxford
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import MEASURED, ImagePair, View, score, score_all
from doap.geometry.ellipses import scales
from doap.geometry.ground_truth import GroundTruth, from_homography
from doap.images.frames import detect_dog, transform_frames
from doap.networks.baselines.sift import Sift
from doap.types import Descriptors, Frames

HOMOGRAPHY = np.array([[0.9, -0.25, 90], [0.2, 0.95, -15], [2e-4, -1e-4, 1]])


class TrainState:
    """An oracle: describes a frame by its place, scale and turn in the first image, which the homography tells."""

    name, kind = "oracle", "real"

    def __init__(self, pair: ImagePair) -> None:
        self.pair = pair

    def describe_frames(self, image: np.ndarray, frames: Frames) -> Descriptors:
        if image is self.pair.second.image:
            frames = transform_frames(frames, np.linalg.inv(self.pair.truth.matrix))
        shapes = frames[:, :, :2].reshape(-1, 4) / scales(frames)[:, None]
        return np.column_stack([frames[:, :, 2], 20 * np.log(scales(frames)), 5 * shapes]).astype(np.float32)


class Coarse:
    """Bits of few kinds: distances tie all the time."""

    name, kind = "coarse", "binary"

    def describe_frames(self, image: np.ndarray, frames: Frames) -> Descriptors:
        return np.random.default_rng(image.shape[0] + len(frames)).integers(0, 4, (len(frames), 2), dtype=np.uint8)


@pytest.fixture(scope="module")
def pair(photo: np.ndarray) -> ImagePair:
    other = cv2.warpPerspective(photo, HOMOGRAPHY, (500, 450), flags=cv2.INTER_AREA)
    truth = from_homography(HOMOGRAPHY, photo.shape)
    return ImagePair("scene", "1-2", View(photo, detect_dog(photo, 300)), View(other, detect_dog(other, 250)), truth)


def slow_average_precision(pair: ImagePair, first: np.ndarray, second: np.ndarray) -> float:
    """AP of the proposals from its definition, where no distances tie."""
    ahead, behind = pair.common
    proposals = []
    for place, i in enumerate(ahead):
        distances = [np.linalg.norm(first[i].astype(float) - second[j]) for j in behind]
        best = int(np.argmin(distances))
        proposals.append((distances[best], pair.partners[place] == best))
    right, total = 0, 0.0
    for rank, (_, good) in enumerate(sorted(proposals), 1):
        right += good
        total += good * right / rank
    return total / (pair.partners >= 0).sum()


def test_average_precision_is_that_of_the_definition(pair: ImagePair) -> None:
    for describer in (Sift(), TrainState(pair)):
        first, second = (describer.describe_frames(v.image, v.frames) for v in (pair.first, pair.second))
        assert score(pair, describer)["ap"] == pytest.approx(100 * slow_average_precision(pair, first, second))


def test_partners_are_one_to_one_and_in_the_common_part(pair: ImagePair) -> None:
    first, second = pair.common
    assert 0 < len(first) < 300
    partners = pair.partners[pair.partners >= 0]
    assert len(set(partners.tolist())) == len(partners) > 50
    sent = transform_frames(pair.first.frames[first[pair.partners >= 0]], HOMOGRAPHY)
    apart = np.linalg.norm(sent[:, :, 2] - pair.second.frames[second[partners], :, 2], axis=1)
    assert np.median(apart) < 1


def test_an_oracle_scores_high_and_noise_scores_nothing(pair: ImagePair) -> None:
    best, worst = score(pair, TrainState(pair)), score(pair, Coarse())
    assert list(best) == ["descriptor", "sequence", "pair", *MEASURED]
    assert best["ap"] > 85
    assert best["right within 3 px"] > 60
    assert best["geometry right"] == 100
    assert best["geometry error px"] < 1
    assert best["inliers"] > 50
    assert worst["ap"] < 5
    assert (worst["inliers"], worst["geometry error px"], worst["geometry right"]) == (0, None, 0)


def test_shares_count_mutual_matches(pair: ImagePair) -> None:
    """Matching score and shares of right matches, from all distances."""
    describer = Sift()
    row = score(pair, describer)
    first, second = (describer.describe_frames(v.image, v.frames) for v in (pair.first, pair.second))

    def mutual(a: np.ndarray, b: np.ndarray) -> list[tuple[int, int]]:
        distances = np.linalg.norm(a[:, None] - b[None], axis=2)
        return [(i, j) for i, j in enumerate(distances.argmin(1)) if distances[:, j].argmin() == i]

    ahead, behind = pair.common
    right = sum(pair.partners[i] == j for i, j in mutual(first[ahead], second[behind]))
    assert row["matching score"] == pytest.approx(100 * right / min(len(ahead), len(behind)))
    matches = mutual(first, second)
    sent = transform_frames(pair.first.frames, HOMOGRAPHY)[:, :, 2]
    off = np.array([np.hypot(*(sent[i] - pair.second.frames[j, :, 2])) for i, j in matches])
    assert row["matches"] == len(matches)
    for pixels in (1, 3, 5, 10):
        assert row[f"right within {pixels} px"] == pytest.approx(100 * np.mean(off <= pixels))


def test_epipolar_truth_knows_no_average_precision(pair: ImagePair) -> None:
    """Under a sideways camera, epipolar lines are rows: a match is right if its rows are close."""
    rows = np.array([[0, 0, 0], [0, 0, -1], [0, 1, 0.0]])
    labels = np.random.default_rng(0).uniform(0, 400, (10, 4))
    labels[:, 3] = labels[:, 1]
    aside = View(np.roll(pair.first.image, 9, 1), pair.first.frames + np.array([[0, 0, 9], [0, 0, 0]], np.float32))
    row = score(ImagePair("s", "p", pair.first, aside, GroundTruth("fundamental", rows, labels)), Sift())
    assert (row["ap"], row["correspondences"]) == (None, None)
    assert row["right within 1 px"] > 80
    assert row["matching score"] == pytest.approx(row["right within 3 px"] * row["matches"] / 300)
    assert row["frames"] == 300


def test_images_that_share_nothing_score_zero(pair: ImagePair) -> None:
    away = np.array([[1, 0, 5000], [0, 1, 0], [0, 0, 1.0]])
    row = score(ImagePair("s", "p", pair.first, pair.second, from_homography(away, (512, 512))), Sift())
    assert (row["ap"], row["correspondences"], row["matching score"], row["frames"]) == (0, 0, None, 0)


def test_all_are_scored_and_what_is_known_of_a_pair_is_found_once(
    pair: ImagePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    plain = pair.partners
    monkeypatch.setattr(
        "doap.evaluation.image_pairs.scoring.corresponding",
        lambda *_: calls.append(1) or np.stack([np.flatnonzero(plain >= 0), plain[plain >= 0]], 1),
    )
    fresh = [ImagePair("s", name, pair.first, pair.second, pair.truth) for name in "ab"]
    told: list[int] = []
    rows = score_all(iter(fresh), [Sift(), Sift(root=True), Coarse()], lambda: told.append(1))
    assert [(row["pair"], row["descriptor"]) for row in rows] == [
        (name, other) for name in "ab" for other in ("SIFT", "RootSIFT", "coarse")
    ]
    assert (len(calls), len(told)) == (2, 6)


def test_oxford_is_matched(oxford: Path) -> None:
    files = next(f for f in find_oxford(oxford) if f.sequence == "graf")
    row = score(PairReader("dog", 500).open(files), Sift(root=True))
    assert 50 < row["ap"] < 95
    assert row["geometry right"] == 100
