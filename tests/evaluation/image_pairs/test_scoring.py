from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from doap.evaluation.harness.result import Score
from doap.evaluation.image_pairs.oxford import find_oxford
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import COLUMNS, ImagePair, View, score_all, score_pair
from doap.features import FrameDescriber
from doap.geometry.ellipses import scales
from doap.geometry.ground_truth import GroundTruth, from_homography
from doap.geometry.homographies import invert_homography
from doap.images.frames import detect_dog, transform_frames
from doap.networks.baselines.sift import Sift
from doap.types import Descriptors, Frames, Grey, Kind

HOMOGRAPHY = np.array([[0.9, -0.25, 90], [0.2, 0.95, -15], [2e-4, -1e-4, 1]])


class Oracle:
    """Describes a frame by its position, scale and shape in the first image, using the ground truth."""

    name: ClassVar[str] = "oracle"
    kind: ClassVar[Kind] = "real"

    def __init__(self, pair: ImagePair) -> None:
        self.pair = pair

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        if image is self.pair.second.image:
            frames = transform_frames(frames, invert_homography(self.pair.ground_truth.matrix))
        shapes = frames[:, :, :2].reshape(-1, 4) / scales(frames)[:, None]
        return np.column_stack([frames[:, :, 2], 20 * np.log(scales(frames)), 5 * shapes]).astype(np.float32)


class Coarse:
    """Describes frames by few different bits, so that most distances tie."""

    name: ClassVar[str] = "coarse"
    kind: ClassVar[Kind] = "binary"

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        return np.random.default_rng(image.shape[0] + len(frames)).integers(0, 4, (len(frames), 2), dtype=np.uint8)


@pytest.fixture(scope="module")
def pair(photo: Grey) -> ImagePair:
    other = np.asarray(cv2.warpPerspective(photo, HOMOGRAPHY, (500, 450), flags=cv2.INTER_AREA), np.uint8)
    ground_truth = from_homography(HOMOGRAPHY, photo.shape)
    views = View(photo, detect_dog(photo, 300)), View(other, detect_dog(other, 250))
    return ImagePair("scene", "1-2", *views, ground_truth)


def value(row: Score, column: str) -> float:
    """Return a number of a row that has one in this column."""
    number = row[column]
    assert isinstance(number, int | float)
    return float(number)


def describe(pair: ImagePair, describer: FrameDescriber) -> tuple[Descriptors, Descriptors]:
    first, second = (describer.describe_frames(view.image, view.frames) for view in (pair.first, pair.second))
    return first, second


def slow_average_precision(pair: ImagePair, first: Descriptors, second: Descriptors) -> float:
    """Compute AP by its definition, for distances without ties."""
    ahead, behind = pair.common
    retrieved = []
    for index, i in enumerate(ahead):
        distances = [float(np.linalg.norm(first[i].astype(float) - second[j])) for j in behind]
        best = int(np.argmin(distances))
        retrieved.append((distances[best], bool(pair.partners[index] == best)))
    correct, total = 0, 0.0
    for rank, (_, is_correct) in enumerate(sorted(retrieved), 1):
        correct += is_correct
        total += is_correct * correct / rank
    return total / int((pair.partners >= 0).sum())


def test_average_precision_is_that_of_the_definition(pair: ImagePair) -> None:
    describers: list[FrameDescriber] = [Sift(), Oracle(pair)]
    for describer in describers:
        expected = 100 * slow_average_precision(pair, *describe(pair, describer))
        assert score_pair(pair, describer)["ap"] == pytest.approx(expected)


def test_partners_are_one_to_one_and_in_the_common_part(pair: ImagePair) -> None:
    first, second = pair.common
    assert 0 < len(first) < 300
    partners = pair.partners[pair.partners >= 0]
    assert len(set(partners.tolist())) == len(partners) > 50
    expected = transform_frames(pair.first.frames[first[pair.partners >= 0]], HOMOGRAPHY)
    distances = np.linalg.norm(expected[:, :, 2] - pair.second.frames[second[partners], :, 2], axis=1)
    assert np.median(distances) < 1


def test_an_oracle_scores_high_and_noise_scores_nothing(pair: ImagePair) -> None:
    best, worst = score_pair(pair, Oracle(pair)), score_pair(pair, Coarse())
    assert list(best) == ["descriptor", "sequence", "pair", *COLUMNS]
    assert value(best, "ap") > 85
    assert value(best, "correct within 3 px") > 60
    assert best["geometry correct"] == 100
    assert value(best, "geometry error px") < 1
    assert value(best, "inliers") > 50
    assert value(worst, "ap") < 5
    assert (worst["inliers"], worst["geometry error px"], worst["geometry correct"]) == (0, None, 0)


def mutual(first: Descriptors, second: Descriptors) -> list[tuple[int, int]]:
    """Find mutual nearest neighbours in the matrix of all distances."""
    distances = np.linalg.norm(first[:, None] - second[None], axis=2)
    return [(i, int(j)) for i, j in enumerate(distances.argmin(1)) if distances[:, j].argmin() == i]


def test_rates_count_mutual_matches(pair: ImagePair) -> None:
    """Matching score and rates of correct matches, from all distances."""
    row = score_pair(pair, Sift())
    first, second = describe(pair, Sift())
    ahead, behind = pair.common
    correct = sum(bool(pair.partners[i] == j) for i, j in mutual(first[ahead], second[behind]))
    assert row["matching score"] == pytest.approx(100 * correct / min(len(ahead), len(behind)))
    matches = mutual(first, second)
    expected = transform_frames(pair.first.frames, HOMOGRAPHY)[:, :, 2]
    errors = np.array([np.hypot(*(expected[i] - pair.second.frames[j, :, 2])) for i, j in matches])
    assert row["matches"] == len(matches)
    for pixels in (1, 3, 5, 10):
        assert row[f"correct within {pixels} px"] == pytest.approx(100 * np.mean(errors <= pixels))


def test_epipolar_ground_truth_has_no_average_precision(pair: ImagePair) -> None:
    """Under a camera that moves sideways, epipolar lines are rows: a match is correct if its rows are close."""
    rows = np.array([[0, 0, 0], [0, 0, -1], [0, 1, 0.0]])
    labels = np.random.default_rng(0).uniform(0, 400, (10, 4))
    labels[:, 3] = labels[:, 1]
    shifted = View(np.roll(pair.first.image, 9, 1), pair.first.frames + np.array([[0, 0, 9], [0, 0, 0]], np.float32))
    row = score_pair(ImagePair("s", "p", pair.first, shifted, GroundTruth("fundamental", rows, labels)), Sift())
    assert (row["ap"], row["correspondences"]) == (None, None)
    assert value(row, "correct within 1 px") > 80
    correct = value(row, "correct within 3 px") * value(row, "matches")
    assert row["matching score"] == pytest.approx(correct / 300)
    assert row["frames"] == 300


def test_images_without_a_common_part_score_zero(pair: ImagePair) -> None:
    away = np.array([[1, 0, 5000], [0, 1, 0], [0, 0, 1.0]])
    row = score_pair(ImagePair("s", "p", pair.first, pair.second, from_homography(away, (512, 512))), Sift())
    assert (row["ap"], row["correspondences"], row["matching score"], row["frames"]) == (0, 0, None, 0)


def test_all_are_scored_and_correspondences_are_found_once_per_pair(
    pair: ImagePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    partners = pair.partners

    def counting(first: Frames, *_: object) -> NDArray[np.int64]:
        calls.append(len(first))
        return np.stack([np.flatnonzero(partners >= 0), partners[partners >= 0]], 1)

    monkeypatch.setattr("doap.evaluation.image_pairs.scoring.find_correspondences", counting)
    pairs = [ImagePair("s", name, pair.first, pair.second, pair.ground_truth) for name in "ab"]
    steps: list[tuple[str, int, int | None]] = []
    describers: list[FrameDescriber] = [Sift(), Sift(root=True), Coarse()]
    rows = score_all(iter(pairs), len(pairs), describers, lambda *step: steps.append(step))
    assert [(row["pair"], row["descriptor"]) for row in rows] == [
        (name, other) for name in "ab" for other in ("SIFT", "RootSIFT", "coarse")
    ]
    assert len(calls) == 2
    assert steps == [("matching", done, 6) for done in range(1, 7)]


def test_oxford_is_matched(oxford: Path) -> None:
    files = next(f for f in find_oxford(oxford) if f.sequence == "graf")
    row = score_pair(PairReader("dog", 500).open(files), Sift(root=True))
    assert 50 < value(row, "ap") < 95
    assert row["geometry correct"] == 100
