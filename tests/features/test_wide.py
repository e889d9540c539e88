"""Matching with synthesised views: pairs by known homographies, unrelated pairs, and what must cost nothing."""

import math
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import doap
from doap import DoapError, Features, WideMatches
from doap.features import wide
from doap.features.wide import TILTS, match_wide
from doap.geometry.robust import MAX_LOG_NFA, log_false_alarms
from doap.types import Grey
from support.sample_photos import sample_photo

TINY = doap.load("doap-tiny-128")
PHOTO = sample_photo("coffee")[20:340, 120:500]
FAR = 6  # tilt at which plain matching fails
FINE = 6


def side_view(photo: Grey, tilt: float, turn_back: bool = False) -> tuple[Grey, NDArray[np.float64]]:
    """Return a photo turned by 25 degrees and compressed vertically, and the homography to it.

    With `turn_back`, it is turned by -25 degrees after that.
    """
    c, s = math.cos(math.radians(25)), math.sin(math.radians(25))
    turn = np.array([[c, -s, 150], [s, c, 0], [0, 0, 1]])
    homography = np.diag([1, 1 / tilt, 1]) @ turn
    size = 500, round(480 / tilt)
    if turn_back:
        homography = np.array([[c, s, -20], [-s, c, 220], [0, 0, 1]]) @ homography
        size = 500, 300
    grow = np.array([[FINE, 0, (FINE - 1) / 2], [0, FINE, (FINE - 1) / 2], [0, 0, 1]])
    large = cv2.warpPerspective(
        photo, grow @ homography, (FINE * size[0], FINE * size[1]), borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(cv2.resize(large, size, interpolation=cv2.INTER_AREA), np.uint8), homography


def corner_error(estimate: NDArray[np.float64] | None, homography: NDArray[np.float64]) -> float:
    assert estimate is not None
    height, width = PHOTO.shape
    corners = np.array([[[0, 0], [width - 1, 0], [0, height - 1], [width - 1, height - 1]]], np.float64)
    difference = cv2.perspectiveTransform(corners, estimate) - cv2.perspectiveTransform(corners, homography)
    return float(np.linalg.norm(difference, axis=2).max())


def assert_valid(result: WideMatches) -> None:
    """Check that all features are finite and in their images, and that the indices of the matches exist."""
    for features, column in ((result.first, 0), (result.second, 1)):
        height, width = features.size
        assert np.isfinite(features.frames).all()
        assert np.isfinite(features.descriptors.astype(np.float32)).all()
        assert ((features.keypoints >= -0.5) & (features.keypoints <= (width - 0.5, height - 0.5))).all()
        assert (result.matches.indices[:, column] < len(features)).all()
    assert np.isfinite(result.matches.distances).all()


@pytest.fixture(scope="module")
def far() -> tuple[Grey, NDArray[np.float64], WideMatches]:
    second, homography = side_view(PHOTO, FAR)
    return second, homography, match_wide(PHOTO, second, TINY, geometry="homography")


def test_a_pair_that_plain_matching_misses_is_found(far: tuple[Grey, NDArray[np.float64], WideMatches]) -> None:
    second, homography, result = far
    plain = doap.match(*doap.detect_and_describe([PHOTO, second], TINY), geometry="homography")
    assert plain.matrix is None
    assert result.step in (1, 2, 3)
    assert result.tilts == TILTS[: result.step]
    assert corner_error(result.matches.matrix, homography) < 5
    assert_valid(result)
    assert result.first.size == PHOTO.shape
    assert result.second.size == second.shape


def test_verified_matches_are_distinct_and_correct(far: tuple[Grey, NDArray[np.float64], WideMatches]) -> None:
    _, homography, result = far
    first, second = result.matches.verified_points(result.first, result.second)
    predicted = cv2.perspectiveTransform(first[None].astype(np.float64), homography)[0]
    assert np.median(np.linalg.norm(predicted - second, axis=1)) < 1
    first, second = result.matches.points(result.first, result.second)
    apart = [np.linalg.norm(points[:, None] - points[None], axis=2) for points in (first, second)]
    others = ~np.eye(len(first), dtype=bool)
    assert (np.maximum(*apart)[others] > wide.SAME_MATCH).all()
    assert (np.minimum(*apart)[others] > wide.SAME_POINT).all()


def test_matched_frames_have_the_shape_of_the_homography(far: tuple[Grey, NDArray[np.float64], WideMatches]) -> None:
    """A frame of the first image, mapped by the homography, has about the axes of its match."""
    _, homography, result = far
    i, j = result.matches.indices[result.matches.inliers].T
    mapped = homography[:2, :2] @ result.first.frames[i, :, :2]
    relative = np.linalg.inv(result.second.frames[j, :, :2]) @ mapped
    axes = np.linalg.svd(relative, compute_uv=False)
    assert np.median(axes[:, 0] / axes[:, 1]) < 2.1  # not 6: what is left of the tilt between the matching views
    angles = np.degrees(np.arctan2(relative[:, 1, 0] - relative[:, 0, 1], relative[:, 0, 0] + relative[:, 1, 1]))
    assert np.median(np.abs(angles)) < 20


def test_an_easy_pair_stops_with_the_result_of_plain_matching(monkeypatch: pytest.MonkeyPatch) -> None:
    second, homography = side_view(PHOTO, 1)
    first_features, second_features = (doap.detect_and_describe(image, TINY) for image in (PHOTO, second))
    plain = doap.match(first_features, second_features, geometry="homography")
    monkeypatch.setattr(wide, "tilt_image", None)  # no view may be synthesised
    result = match_wide(PHOTO, second, TINY, geometry="homography")
    assert (result.step, result.tilts) == (0, ())
    assert corner_error(result.matches.matrix, homography) < 2
    for name, features in (("first", first_features), ("second", second_features)):
        np.testing.assert_array_equal(getattr(result, name).frames, features.frames)
        np.testing.assert_array_equal(getattr(result, name).descriptors, features.descriptors)
    for name in ("indices", "distances", "second_distances", "inliers", "matrix"):
        np.testing.assert_array_equal(getattr(result.matches, name), getattr(plain, name))


def test_a_pair_with_few_verified_matches_gets_one_more_step() -> None:
    second, homography = side_view(PHOTO, 2.5)
    plain = doap.match(*doap.detect_and_describe([PHOTO, second], TINY), geometry="homography")
    assert plain.matrix is not None
    assert plain.inliers.sum() < wide.ENOUGH
    result = match_wide(PHOTO, second, TINY, geometry="homography")
    assert result.step == 1
    assert result.matches.inliers.sum() > 2 * plain.inliers.sum()
    assert corner_error(result.matches.matrix, homography) < min(2, corner_error(plain.matrix, homography))


@pytest.mark.parametrize("geometry", ["fundamental", "homography"])
def test_unrelated_images_are_not_verified(geometry: Any) -> None:
    steps: list[str] = []
    result = match_wide(
        sample_photo("chelsea")[50:200, 100:250],
        sample_photo("rocket")[100:250, 250:400],
        TINY,
        geometry=geometry,
        progress=lambda step, _done, _total: steps.append(step),
    )
    assert result.step is None
    assert result.matches.matrix is None
    assert not result.matches.inliers.any()
    assert result.tilts == TILTS
    assert list(dict.fromkeys(steps)) == ["plain", *(f"tilt {tilt:.3g}" for tilt in TILTS)]
    assert_valid(result)


def test_bits_are_matched() -> None:
    second, homography = side_view(PHOTO, FAR)
    result = match_wide(PHOTO, second, doap.load("doap-tiny-256b"), geometry="homography")
    assert result.step
    assert corner_error(result.matches.matrix, homography) < 5
    assert result.first.descriptors.dtype == np.uint8
    assert_valid(result)


@pytest.mark.parametrize("detector", doap.DETECTORS)
def test_every_detector_describes_views(detector: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "TILTS", (2.0,))
    images = sample_photo("coffee")[100:260, 200:360], sample_photo("chelsea")[50:180, 100:250]
    plain = doap.detect_and_describe(images[0], TINY, detector=detector, max_keypoints=100)
    result = match_wide(*images, TINY, detector=detector, max_keypoints=100)
    assert len(result.first) > len(plain) > 0
    assert len(result.first) <= len(plain) + 5 * 50
    assert_valid(result)


def test_upright_keypoints_find_a_pair_without_roll() -> None:
    """The views are turned; their upright keypoints must not be."""
    second, homography = side_view(PHOTO, FAR, turn_back=True)
    result = match_wide(PHOTO, second, TINY, frames="upright", geometry="homography")
    assert result.step in (1, 2)
    assert corner_error(result.matches.matrix, homography) < 5


def test_reduced_images_give_features_in_pixels_of_the_given_ones() -> None:
    large = cv2.resize(PHOTO, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC)
    second, homography = side_view(PHOTO, FAR)
    result = match_wide(large, second, TINY, max_size=max(PHOTO.shape), geometry="homography")
    assert result.step
    assert result.first.size == large.shape
    shrink = np.array([[1 / 3, 0, -1 / 3], [0, 1 / 3, -1 / 3], [0, 0, 1]])
    points, expected = result.matches.verified_points(result.first, result.second)
    predicted = cv2.perspectiveTransform(points[None].astype(np.float64), homography @ shrink)[0]
    assert np.median(np.linalg.norm(predicted - expected, axis=1)) < 1


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((120, 120), np.uint8),
        np.random.default_rng(0).integers(0, 256, (20, 20), np.uint8),
        np.random.default_rng(0).integers(0, 256, (20, 20, 3), np.uint8),
        np.random.default_rng(0).integers(0, 256, (1, 300), np.uint8),
        np.full((1, 1), 7, np.uint8),
    ],
    ids=["blank", "tiny", "tiny colour", "line", "pixel"],
)
def test_images_without_content_give_no_match(image: NDArray[np.uint8]) -> None:
    for pair in ((image, PHOTO[:150, :150]), (image, image[::-1])):
        result = match_wide(*pair, TINY, max_keypoints=100)
        assert result.step is None
        assert_valid(result)


def test_a_later_step_needs_more_evidence_than_plain_matching() -> None:
    """Six matches by a shift, in an image so large that chance explains them with 1e-3.4: enough for plain matching."""
    random = np.random.default_rng(0)
    inliers, others = 6, 9
    count = inliers + others
    base = log_false_alarms(count, inliers, (100, 100), "homography", 1.5)
    side = round(100 * 10 ** ((base + 3.4) / (2 * (inliers - 4))))
    size = side, side
    places = random.uniform(20, side - 60, (count, 2))
    shifted = np.vstack([places[:inliers] + 30, random.uniform(20, side - 20, (others, 2))])

    def features(points: NDArray[np.float64]) -> Features:
        frames = np.concatenate([np.tile(np.eye(2) * 3, (count, 1, 1)), points[:, :, None]], 2)
        return Features(frames.astype(np.float32), np.eye(count, dtype=np.float32), size, "mine")

    search = wide._Search(True, None, None, "homography", 1.5, None, "cpu")
    assert wide.MAX_STEP_LOG_NFA < log_false_alarms(count, inliers, size, "homography", 1.5) < MAX_LOG_NFA
    first, second = features(places), features(shifted)
    assert search.plain(first, second).inliers.sum() == inliers
    result = search.pooled(first, second)
    assert (len(result), result.matrix) == (count, None)


REFUSED: dict[str, tuple[tuple[Any, Any, Any], dict[str, Any], str]] = {
    "list": (([PHOTO], PHOTO, TINY), {}, "two single images"),
    "batch": ((PHOTO, [PHOTO, PHOTO], TINY), {}, "two single images"),
    "model": ((PHOTO, PHOTO, "doap-128"), {}, "not str"),
    "no geometry": ((PHOTO, PHOTO, TINY), {"geometry": None}, "needs a geometry"),
    "detector": ((PHOTO, PHOTO, TINY), {"detector": "eyes"}, "detector eyes: unknown"),
    "missing": ((PHOTO, "nowhere.png", TINY), {}, "nowhere.png"),
    "device": ((PHOTO, PHOTO, TINY), {"device": "abacus"}, "abacus"),
    "ratio": ((PHOTO, PHOTO, TINY), {"ratio": 2.0}, "ratio must be"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused(case: str) -> None:
    arguments, options, message = REFUSED[case]
    with pytest.raises(DoapError, match=message):
        match_wide(*arguments, **options)


def test_the_result_is_part_of_the_library() -> None:
    assert doap.match_wide is match_wide
