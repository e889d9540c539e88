"""Matches: points, conversion to OpenCV, other geometries, drawing."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import skimage
from PIL import Image

import doap
from doap.features.drawing import GAP, TITLE_HEIGHT
from support.random_features import random_features


def moved_pair(count: int = 100, outliers: int = 20) -> tuple[doap.Features, doap.Features]:
    """Return features and the same ones moved by (30, 10), the last of them anywhere."""
    first, elsewhere = random_features(count), random_features(count, seed=1)
    frames = first.frames.copy()
    frames[:, :, 2] += (30, 10)
    frames[count - outliers :] = elsewhere.frames[count - outliers :]
    return first, doap.Features(frames, first.descriptors, first.size, first.model)


def test_points_are_those_of_the_matched_keypoints() -> None:
    first, second = moved_pair()
    matches = doap.match(first, second[::-1], geometry="homography")
    a, b = matches.points(first, second[::-1])
    np.testing.assert_array_equal(a, first.keypoints)
    np.testing.assert_array_equal(b, second.keypoints)
    a, b = matches.verified_points(first, second[::-1])
    assert len(a) == matches.inliers.sum() == 80
    np.testing.assert_allclose(b - a, np.broadcast_to([30, 10], a.shape), atol=1e-3)
    with pytest.raises(doap.DoapError, match="not the features that were matched"):
        matches.points(first[:50], second)


def test_another_geometry_is_fitted_to_the_same_matches() -> None:
    first, second = moved_pair()
    plain = doap.match(first, second, geometry=None)
    assert plain.geometry is None
    for geometry in ("homography", "fundamental"):
        direct, later = doap.match(first, second, geometry=geometry), plain.verify(first, second, geometry)
        np.testing.assert_array_equal(later.inliers, direct.inliers)
        np.testing.assert_array_equal(later.matrix, direct.matrix)
        assert later.geometry == direct.geometry == geometry
    assert plain.inliers.all()


def test_the_pose_of_a_stereo_pair_is_found() -> None:
    left, right, _ = skimage.data.stereo_motorcycle()
    model = doap.load("doap-demo-128")
    first, second = doap.detect_and_describe([left, right], model, max_keypoints=1000)
    # The intrinsics of the pair, at a quarter of the original size (Middlebury 2014, "Motorcycle").
    cameras = [np.array([[994.978, 0, x], [0, 994.978, 254.877], [0, 0, 1]]) for x in (311.193, 342.279)]
    matches = doap.match(first, second, geometry="essential", cameras=cameras)
    assert matches.inliers.sum() > 200
    assert matches.rotation is not None
    assert matches.translation is not None
    assert np.degrees(np.arccos((np.trace(matches.rotation) - 1) / 2)) < 1  # rectified: no rotation
    np.testing.assert_allclose(matches.translation, [-1, 0, 0], atol=0.1)  # the right camera is on the right


def test_opencv_gets_the_matches() -> None:
    first, second = moved_pair()
    matches = doap.match(first, second, geometry=None)
    converted = matches.to_cv2()
    assert all(isinstance(match, cv2.DMatch) for match in converted)
    assert [(m.queryIdx, m.trainIdx) for m in converted] == [tuple(pair) for pair in matches.indices.tolist()]
    np.testing.assert_allclose([m.distance for m in converted], matches.distances, rtol=1e-6)
    picture = np.zeros((480, 640), np.uint8)
    drawn = cv2.drawMatches(picture, first.to_cv2(), picture, second.to_cv2(), converted, np.empty(0, np.uint8))
    assert drawn.shape[:2] == (480, 1280)


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    matches = doap.match(*moved_pair(), geometry=None)
    with pytest.raises(doap.DoapError, match=r"indices of matches must be \(P, 2\)"):
        doap.Matches(matches.indices[:, 0], matches.distances, matches.distances, matches.inliers)
    with pytest.raises(doap.DoapError, match=r"inliers must be \(100,\)"):
        doap.Matches(matches.indices, matches.distances, matches.distances, matches.inliers[1:])


def test_only_matches_that_were_verified_are_called_so() -> None:
    first, second = moved_pair()
    matches = doap.match(first, second, geometry=None)
    assert matches.count_text() == "100 matches"
    verified = matches.verify(first, second, "homography")
    assert verified.count_text("mutual") == f"{verified.inliers.sum()} verified of 100 mutual matches"


@pytest.mark.parametrize("factor", [1, 6])
def test_verified_matches_are_drawn(tmp_path: Path, factor: int) -> None:
    """Images of 640x480 and of 3840x2880, which are reduced, give pictures with dots at the same relative places."""
    points = np.array([[100, 50], [200, 300], [600, 400]], np.float64)
    frames = np.zeros((3, 2, 3), np.float32)
    frames[:, :, :2], frames[:, :, 2] = np.eye(2), (points + 0.5) * factor - 0.5
    features = doap.Features(frames, np.eye(3, 8, dtype=np.float32), (480 * factor, 640 * factor), "test")
    image = np.full(features.size, 128, np.uint8)
    matches = doap.match(features, features, geometry=None)
    picture = matches.draw(image, image, features, features, tmp_path / "matches.png")
    with Image.open(tmp_path / "matches.png") as written:
        np.testing.assert_array_equal(np.asarray(written), picture)
    scale = (picture.shape[1] - GAP) / 2 / 640
    for x, y in (points + 0.5) * scale - 0.5:
        for left in (0, 640 * scale + GAP):
            assert np.ptp(picture[TITLE_HEIGHT + round(y), round(x + left)]) > 30
    assert (picture[:TITLE_HEIGHT] < 128).any()  # the title
    with pytest.raises(doap.DoapError, match=r"m\.doc: figures are written as"):
        matches.draw(image, image, features, features, tmp_path / "m.doc")


def test_matches_that_agree_on_no_geometry_are_not_drawn() -> None:
    features = random_features(30)
    image = np.zeros(features.size, np.uint8)
    plain = doap.match(features, features, geometry=None)
    rejected = replace(plain, geometry="fundamental", inliers=np.zeros(len(plain), bool))
    drawn, empty = (np.ptp(m.draw(image, image, features, features, title=""), axis=2) for m in (plain, rejected))
    assert drawn.any()
    assert not empty.any()
