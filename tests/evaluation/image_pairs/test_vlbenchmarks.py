"""The protocol vlbenchmarks, compared with a slow version written from the MATLAB code's description."""

import numpy as np
import pytest
from numpy.typing import NDArray

from doap.evaluation.harness.result import Score
from doap.evaluation.image_pairs.scoring import ImagePair, View
from doap.evaluation.image_pairs.vlbenchmarks import (
    VlbenchmarksScorer,
    frames_inside_both,
    ranked_average_precision,
)
from doap.geometry.ellipses import overlap
from doap.geometry.ground_truth import from_homography
from doap.geometry.homographies import invert_homography
from doap.images.frames import transform_frames
from doap.types import Descriptors, Frames, Grey, Homography, Kind
from support.random_frames import random_frames

SHAPE = 240, 320
HOMOGRAPHY = np.array([[0.9, -0.25, 40], [0.2, 1.05, -15], [3e-4, -2e-4, 1]])


class StoredDescriber:
    """Returns given descriptors for the frames of two views, told apart by their number."""

    name = "stored"
    kind: Kind = "real"

    def __init__(self, first: Descriptors, second: Descriptors) -> None:
        self.descriptors = iter((first, second))

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        descriptors = next(self.descriptors)
        assert image.shape == SHAPE
        assert len(descriptors) == len(frames)
        return descriptors


def make_pair(first: Frames, second: Frames, homography: Homography) -> ImagePair:
    image = np.zeros(SHAPE, np.uint8)
    return ImagePair("s", "1-2", View(image, first), View(image, second), from_homography(homography, SHAPE))


def score(pair: ImagePair, first: Descriptors, second: Descriptors, error: float = 0.5) -> Score:
    return VlbenchmarksScorer(error)(pair, StoredDescriber(first, second))


def boundary(frame: Frames, homography: Homography) -> NDArray[np.float64]:
    """Return points on the ellipse of a frame, mapped by the homography linearised at its centre."""
    angles = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    mapped = transform_frames(frame[None], homography)[0]
    return np.asarray((mapped[:, :2] @ circle + mapped[:, 2:]).T, np.float64)


def slow_inside(frames: Frames, homography: Homography) -> list[int]:
    height, width = SHAPE
    inside = []
    for index, frame in enumerate(frames):
        points = np.concatenate([boundary(frame, np.eye(3)), boundary(frame, homography)])
        if (points > 0).all() and (points[:, 0] < width).all() and (points[:, 1] < height).all():
            inside.append(index)
    return inside


def greedy(listed: list[tuple[float, int, int]]) -> list[tuple[float, int, int]]:
    """Take pairs in order while both of their items are free."""
    taken: list[tuple[float, int, int]] = []
    for value, i, j in sorted(listed):
        if all(i != a and j != b for _, a, b in taken):
            taken.append((value, i, j))
    return taken


def slow_score(
    pair: ImagePair, first: Descriptors, second: Descriptors, error: float
) -> tuple[int, int, float, float, float]:
    """Return frames, positives, AP, area and matching score by the definition, pair by pair."""
    homography = pair.ground_truth.matrix
    back = invert_homography(homography)
    rows, columns = slow_inside(pair.first.frames, homography), slow_inside(pair.second.frames, back)
    overlaps = {}
    for i in rows:
        for j in columns:
            a, b = pair.first.frames[i], transform_frames(pair.second.frames[j : j + 1], back)[0]
            radius = np.sqrt(abs(np.linalg.det(a[:, :2])))
            if np.hypot(*(a[:, 2] - b[:, 2])) < 4 * radius:
                grow = np.array([30 / radius, 30 / radius, 1], np.float32)
                shared = overlap((a * grow)[None], (b * grow)[None])[0]
                if shared > 1 - error:
                    overlaps[i, j] = shared
    positives = len(greedy([(-shared, i, j) for (i, j), shared in overlaps.items()]))
    distances = [(float(np.linalg.norm(first[i] - second[j])), i, j) for i in rows for j in columns]
    ranked = greedy(distances)
    correct, ap, area, before = 0, 0.0, 0.0, 1.0
    for rank, (_, i, j) in enumerate(ranked, 1):
        correct += (i, j) in overlaps
        precision = correct / rank
        if (i, j) in overlaps:
            ap += precision / positives
            area += (before + precision) / 2 / positives
        before = precision
    frames = min(len(rows), len(columns))
    return frames, positives, 100 * ap, 100 * area, 100 * correct / frames


def related_frames(seed: int) -> tuple[Frames, Frames]:
    """Return frames of an image, several at one place, and their noisy images under the homography."""
    random = np.random.default_rng(seed)
    first = random_frames(60, seed)
    first[:, :, :2] *= 0.4
    first[:, :, 2] = random.uniform(0, 235, (len(first), 2))
    copies = first[:20].copy()  # frames of one image that overlap each other
    copies[:, :, 2] += random.normal(0, 1, (20, 2))
    first = np.concatenate([first, copies])
    second = transform_frames(first, HOMOGRAPHY)[random.permutation(len(first))[:70]]
    second[:, :, 2] += random.normal(0, 1, (70, 2))
    return first, second


@pytest.mark.parametrize("error", [0.4, 0.5])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_score_is_that_of_the_definition(seed: int, error: float) -> None:
    first, second = related_frames(seed)
    random = np.random.default_rng(seed)
    # Descriptors that depend on the place: some of the matches are correct.
    nearby = [transform_frames(second, invert_homography(HOMOGRAPHY)), first][::-1]
    descriptors = [(frames[:, :, 2] + random.normal(0, 4, (len(frames), 2))).astype(np.float32) for frames in nearby]
    pair = make_pair(first, second, HOMOGRAPHY)
    row = score(pair, descriptors[0], descriptors[1], error)
    expected = slow_score(pair, descriptors[0], descriptors[1], error)
    assert 10 < expected[1] <= expected[0] < len(second) < len(first)
    assert 5 < expected[2] < 90
    columns = ("frames", "correspondences", "ap", "area under curve", "matching score")
    assert [row[column] for column in columns] == pytest.approx(expected)


def test_a_match_is_correct_if_it_overlaps_though_another_overlaps_more() -> None:
    """Two frames at one place: the descriptors match each with the partner of the other."""
    first = np.array([[[5, 0, 100], [0, 5, 100]], [[5, 0, 102], [0, 5, 100]]], np.float32)
    descriptors = np.array([[0], [1]], np.float32)
    row = score(make_pair(first, first, np.eye(3)), descriptors, descriptors[::-1])
    assert row["correspondences"] == 2
    assert row["ap"] == pytest.approx(100)


def test_identical_images_score_one() -> None:
    first, _ = related_frames(3)
    descriptors = np.random.default_rng(0).normal(size=(len(first), 16)).astype(np.float32)
    row = score(make_pair(first, first, np.eye(3)), descriptors, descriptors)
    assert row["ap"] == row["area under curve"] == row["matching score"] == pytest.approx(100)
    assert row["correspondences"] == row["frames"] == len(slow_inside(first, np.eye(3)))


def test_only_ellipses_wholly_inside_both_images_take_part() -> None:
    """The second frame touches the border, the third crosses it; the fourth leaves the other image."""
    frames = np.zeros((4, 2, 3), np.float32)
    frames[:, 0, 0], frames[:, 1, 1] = 10, 5
    frames[:, :, 2] = np.array([[10.01, 5.01], [10, 50], [315, 50], [290, 50]])
    shift = np.array([[1, 0, 25.0], [0, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(frames_inside_both(frames, np.eye(3), SHAPE, SHAPE), [0, 3])
    np.testing.assert_array_equal(frames_inside_both(frames, shift, SHAPE, SHAPE), [0])
    assert slow_inside(frames, shift) == [0]


def test_the_far_border_is_one_past_the_last_pixel() -> None:
    """As in VLBenchmarks, whose box of a width of W is 1 to W + 1 with the first pixel at 1."""
    frames = np.array([[[5, 0, 314.9], [0, 5, 234.9]], [[5, 0, 315.1], [0, 5, 50]]], np.float32)
    np.testing.assert_array_equal(frames_inside_both(frames, np.eye(3), SHAPE, SHAPE), [0])


def test_ties_are_ranked_in_the_order_of_the_first_image() -> None:
    """vl_pr sorts stably: the wrong matches at rank 1 and 3 stay before the correct one at rank 4."""
    distances = np.array([1.0, 1.0, 1.0, 1.0])
    correct = np.array([False, True, False, True])
    assert ranked_average_precision(distances, correct, 4) == pytest.approx((1 / 2 + 2 / 4) / 4)
    assert ranked_average_precision(distances[::-1], correct[::-1], 2) == pytest.approx((1 + 2 / 3) / 2)


def test_without_frames_in_common_the_score_is_zero() -> None:
    first, second = related_frames(1)
    far = np.array([[1, 0, 1000.0], [0, 1, 0], [0, 0, 1]])
    descriptors = np.zeros((len(first), 4), np.float32), np.zeros((len(second), 4), np.float32)
    row = score(make_pair(first, second, far), *descriptors)
    assert (row["frames"], row["correspondences"], row["ap"], row["matching score"]) == (0, 0, 0, None)
    nothing = np.zeros((0, 2, 3), np.float32)
    row = score(make_pair(nothing, second, np.eye(3)), descriptors[0][:0], descriptors[1])
    assert (row["frames"], row["ap"]) == (0, 0)


def test_without_correspondences_the_score_is_zero() -> None:
    first = np.array([[[5, 0, 50], [0, 5, 50]]], np.float32)
    second = np.array([[[5, 0, 150], [0, 5, 150]]], np.float32)
    row = score(make_pair(first, second, np.eye(3)), np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32))
    assert (row["frames"], row["correspondences"], row["ap"], row["matching score"]) == (1, 0, 0, 0)
