"""OpenCV's matchers and its stitching with the features of the bridge.

Runs under OpenCV 5 and, in `test_opencv_versions.py`, under OpenCV 4.
"""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import skimage
from numpy.typing import NDArray

import doap
from doap import Features
from doap.bridges import opencv
from doap.bridges.opencv import DoapFeature2D

DETAIL: Any = cv2.detail  # parts of it are missing in OpenCV's types
MODELS = ("doap-tiny-128", "doap-tiny-256b")
FOCAL, TURN = 700.0, 12.0  # of the views: pixels, degrees
SIZE = (360, 420)  # width and height of the views


@pytest.fixture(scope="module", params=MODELS)
def feature(request: pytest.FixtureRequest) -> DoapFeature2D:
    return opencv.create(request.param, max_keypoints=400)


@pytest.fixture(scope="module")
def described(feature: DoapFeature2D) -> list[tuple[Any, Any]]:
    """Keypoints and descriptors of a stereo pair."""
    return [feature.detectAndCompute(image[:, :, ::-1].copy(), None) for image in skimage.data.stereo_motorcycle()[:2]]


def as_features(keypoints: Any, descriptors: Any, model: str) -> Features:
    frames = np.array([[[k.size / 2, 0, k.pt[0]], [0, k.size / 2, k.pt[1]]] for k in keypoints], np.float32)
    return Features(frames, descriptors, (500, 741), model)


def test_mutual_matches_of_opencv_are_doaps(feature: DoapFeature2D, described: list[tuple[Any, Any]]) -> None:
    (_, first), (_, second) = described
    theirs = feature.createMatcher(crossCheck=True).match(first, second)
    ours = doap.match(*(as_features(*one, feature.model.name) for one in described), geometry=None)
    assert len(ours.indices) > 150
    assert {(m.queryIdx, m.trainIdx) for m in theirs} == {(i, j) for i, j in ours.indices.tolist()}
    np.testing.assert_allclose(sorted(m.distance for m in theirs), sorted(ours.distances), atol=1e-3)


def test_flann_finds_the_distinctive_neighbours(feature: DoapFeature2D, described: list[tuple[Any, Any]]) -> None:
    (_, first), (_, second) = described
    exact = feature.createMatcher().knnMatch(first, second, k=2)
    actual = cv2.FlannBasedMatcher(*feature.flannParams()).knnMatch(first, second, k=2)
    distinctive = [i for i, (best, other) in enumerate(exact) if best.distance < 0.85 * other.distance]
    hits = [i for i in distinctive if actual[i] and actual[i][0].trainIdx == exact[i][0].trainIdx]
    assert len(distinctive) > 80
    assert len(hits) > 0.9 * len(distinctive)


def test_a_wrong_norm_is_why_the_matcher_is_created(feature: DoapFeature2D, described: list[tuple[Any, Any]]) -> None:
    (_, first), (_, second) = described
    matcher = feature.createMatcher()
    distance = matcher.match(first[:1], second)[0].distance
    if feature.model.kind == "real":
        assert distance < 2
        with pytest.raises(cv2.error):
            cv2.BFMatcher(cv2.NORM_HAMMING).match(first, second)
    else:  # OpenCV accepts the Euclidean norm of packed bits silently; the distances are wrong
        assert distance == int(distance) <= 256
        assert cv2.BFMatcher().match(first[:1], second)[0].distance != distance


def intrinsics(width: int, height: int) -> NDArray[np.float64]:
    return np.array([[FOCAL, 0, width / 2], [0, FOCAL, height / 2], [0, 0, 1]])


def views() -> tuple[list[Any], NDArray[np.float64]]:
    """Return two views of a camera that turns, and the homography from the first to the second."""
    image = skimage.data.stereo_motorcycle()[0][:, :, ::-1].copy()
    back = np.linalg.inv(intrinsics(image.shape[1], image.shape[0]))
    turns = [cv2.Rodrigues(np.array([0.0, np.radians(angle), 0.0]))[0] for angle in (TURN / 2, -TURN / 2)]
    maps = [intrinsics(*SIZE) @ turn @ back for turn in turns]
    random = np.random.default_rng(0)  # without noise, OpenCV takes the matches as too good: the same photo twice
    shots = [cv2.warpPerspective(image, matrix, SIZE) + random.normal(0, 8, (*SIZE[::-1], 3)) for matrix in maps]
    return [shot.clip(0, 255).astype(np.uint8) for shot in shots], maps[1] @ np.linalg.inv(maps[0])


def test_stitching_recovers_homography_and_cameras(feature: DoapFeature2D) -> None:
    images, truth = views()
    features = [feature.computeImageFeatures(image, np.ones(image.shape[:2], np.uint8)) for image in images]
    assert [f.img_size for f in features] == [SIZE, SIZE]
    assert all(len(f.getKeypoints()) == len(f.descriptors.get()) == 400 for f in features)

    matches = DETAIL.BestOf2NearestMatcher(False, 0.3).apply2(features)
    centred = np.array([[1, 0, SIZE[0] / 2], [0, 1, SIZE[1] / 2], [0, 0, 1]])  # origin of OpenCV's homographies
    estimate = centred @ matches[1].H @ np.linalg.inv(centred)
    points = np.array([[[120.0, 20]], [[350, 20]], [[120, 400]], [[350, 400]]])
    error = cv2.perspectiveTransform(points, estimate) - cv2.perspectiveTransform(points, truth)
    assert np.linalg.norm(error, axis=2).max() < 1.5
    assert matches[1].num_inliers > 60

    is_estimated, cameras = DETAIL.HomographyBasedEstimator().apply(features, matches, None)
    for camera in cameras:
        camera.R = camera.R.astype(np.float32)
    adjuster = cv2.detail.BundleAdjusterRay()
    adjuster.setConfThresh(1.0)
    is_adjusted, cameras = adjuster.apply(features, matches, cameras)
    assert is_estimated
    assert is_adjusted
    rotation, _ = cv2.Rodrigues(cameras[0].R.T @ cameras[1].R)
    assert np.degrees(np.linalg.norm(rotation)) == pytest.approx(TURN, abs=1.5)


def test_affine_stitching_takes_the_features(feature: DoapFeature2D) -> None:
    image = skimage.data.camera()
    features = [feature.computeImageFeatures(image[:, start : start + 320].copy()) for start in (0, 120)]
    matches = cv2.detail.AffineBestOf2NearestMatcher(False, False, 0.3).apply2(features)
    np.testing.assert_allclose(matches[1].H, [[1, 0, -120], [0, 1, 0], [0, 0, 1]], atol=0.5)


def test_blank_images_match_nothing_in_stitching(feature: DoapFeature2D) -> None:
    images, _ = views()
    blank = feature.computeImageFeatures(np.zeros((100, 200), np.uint8))
    assert blank.img_size == (200, 100)
    assert not len(blank.getKeypoints())
    descriptors: Any = blank.descriptors.get()
    assert descriptors is None
    features = [feature.computeImageFeatures(images[0]), blank]
    matches = DETAIL.BestOf2NearestMatcher(False, 0.3).apply2(features)
    assert [m.confidence for m in matches] == [0] * 4


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "bridges" / "opencv.md").read_text()
    blocks = (block.partition("\n") for block in page.split("```")[1::2])
    code = "\n".join(content for language, _, content in blocks if language == "python")
    for side, image in zip(("left", "right"), skimage.data.stereo_motorcycle()[:2], strict=True):
        cv2.imwrite(str(tmp_path / f"{side}.jpg"), image[::2, ::2, ::-1])
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code.replace('"doap-', '"doap-tiny-'), names)
    assert len(names["matches"]) > 200
    assert len(names["neighbours"]) == len(names["first"])
    assert names["descriptors"].shape == (len(names["keypoints"]), 32)
