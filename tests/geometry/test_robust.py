import math
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from doap.choices import Geometry, MatchGeometry
from doap.errors import DoapError
from doap.geometry.homographies import transform_points
from doap.geometry.robust import log_false_alarms, sampson_distances, verify

SIZE = (480, 640)


def two_views(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Project points in space into two cameras; return both and the fundamental matrix, by the textbook formulas."""
    random = np.random.default_rng(seed)
    points = np.column_stack([random.uniform(-2, 2, (count, 2)), random.uniform(4, 9, count)])
    camera = np.array([[500, 0, 320], [0, 500, 240], [0, 0, 1.0]])
    angle, shift = 0.15, np.array([1.0, 0.1, 0.2])
    rotation = np.array([[math.cos(angle), 0, math.sin(angle)], [0, 1, 0], [-math.sin(angle), 0, math.cos(angle)]])
    first, second = points @ camera.T, (points @ rotation.T + shift) @ camera.T
    cross = np.array([[0, -shift[2], shift[1]], [shift[2], 0, -shift[0]], [-shift[1], shift[0], 0]])
    inverse = np.linalg.inv(camera)
    return first[:, :2] / first[:, 2:], second[:, :2] / second[:, 2:], inverse.T @ cross @ rotation @ inverse


@pytest.mark.parametrize("outliers", [0, 100, 300])
def test_the_fundamental_matrix_is_found_among_outliers(outliers: int) -> None:
    clean_first, clean_second, fundamental = two_views(200, 0)
    random = np.random.default_rng(1)
    first, second = clean_first, clean_second
    first = np.vstack([first + random.normal(0, 0.3, first.shape), random.uniform(0, (640, 480), (outliers, 2))])
    second = np.vstack([second + random.normal(0, 0.3, second.shape), random.uniform(0, (640, 480), (outliers, 2))])
    result = verify(first, second, SIZE)
    assert result.inliers[:200].mean() > 0.9
    assert result.inliers[200:].sum() <= 0.1 * outliers
    assert result.log_nfa < -100
    assert epipolar_distances(fundamental, clean_first, clean_second).max() < 1e-6
    assert result.matrix is not None
    assert np.median(epipolar_distances(result.matrix, clean_first, clean_second)) < 0.2


def epipolar_distances(fundamental: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Compute the distances of points of the second image from the epipolar lines of the first."""
    ones = np.ones((len(first), 1))
    lines = np.hstack([first, ones]) @ fundamental.T
    return np.asarray(np.abs((np.hstack([second, ones]) * lines).sum(1)) / np.linalg.norm(lines[:, :2], axis=1))


def test_the_homography_is_found_among_outliers() -> None:
    homography = np.array([[0.9, -0.2, 30], [0.15, 1.1, -20], [2e-4, -3e-4, 1]])
    random = np.random.default_rng(0)
    first = random.uniform(0, (640, 480), (300, 2))
    second = np.vstack([transform_points(first[:100], homography), random.uniform(0, (640, 480), (200, 2))])
    result = verify(first, second, SIZE, "homography")
    assert result.inliers[:100].all()
    assert result.matrix is not None
    np.testing.assert_allclose(transform_points(first, result.matrix), transform_points(first, homography), atol=0.5)


@pytest.mark.parametrize("geometry", ["fundamental", "homography"])
@pytest.mark.parametrize("count", [0, 3, 8, 40, 400, 2000])
def test_random_matches_have_no_geometry(geometry: Geometry, count: int) -> None:
    for seed in range(5):
        random = np.random.default_rng(seed)
        first, second = (random.uniform(0, (640, 480), (count, 2)) for _ in range(2))
        result = verify(first, second, SIZE, geometry)
        assert result.matrix is None
        assert result.inliers.shape == (count,)
        assert not result.inliers.any()


@pytest.mark.parametrize("geometry", ["fundamental", "homography"])
@pytest.mark.parametrize("points", [np.zeros((50, 2)), np.arange(100.0).reshape(50, 2)], ids=["one point", "one line"])
def test_degenerate_points_do_not_crash(points: np.ndarray, geometry: Geometry) -> None:
    result = verify(points, points, SIZE, geometry)
    assert result.inliers.shape == (50,)
    if not points.any():
        assert result.matrix is None


def test_repeated_matches_count_once() -> None:
    first, second, _ = two_views(12, 0)
    repeated = verify(np.repeat(first, 40, 0), np.repeat(second, 40, 0), SIZE)
    assert repeated.log_nfa > log_false_alarms(480, 480, SIZE, "fundamental", 1.5)


@pytest.mark.parametrize("geometry", ["fundamental", "homography"])
@pytest.mark.parametrize("swap", [False, True])
def test_matches_that_share_a_point_count_once(geometry: Geometry, swap: bool) -> None:
    """Without the mutual test, a few features are the nearest ones of most: their matches agree on an epipole."""
    random = np.random.default_rng(0)
    first = random.uniform(0, (640, 480), (200, 2))
    second = np.vstack(
        [np.tile(random.uniform(0, (640, 480), (3, 2)), (30, 1)), random.uniform(0, (640, 480), (110, 2))]
    )
    points = (second, first) if swap else (first, second)
    result = verify(*points, SIZE, geometry)
    assert result.matrix is None
    assert not result.inliers.any()


def test_verification_is_repeatable() -> None:
    first, second, _ = two_views(100, 4)
    random = np.random.default_rng(0)
    first, second = (np.vstack([p, random.uniform(0, (640, 480), (80, 2))]) for p in (first, second))
    one, two = verify(first, second, SIZE), verify(first, second, SIZE)
    assert one.matrix is not None
    assert two.matrix is not None
    np.testing.assert_array_equal(one.matrix, two.matrix)
    np.testing.assert_array_equal(one.inliers, two.inliers)


@pytest.mark.parametrize(("geometry", "sample"), [("fundamental", 7), ("homography", 4)])
def test_false_alarms_are_the_textbooks(geometry: Geometry, sample: int) -> None:
    n, k, threshold = 60, 20, 2.0
    area = 480 * 640
    p = (2 * threshold * 800 if geometry == "fundamental" else math.pi * threshold**2) / area
    expected = (n - sample) * math.comb(n, k) * math.comb(k, sample) * p ** (k - sample)
    assert log_false_alarms(n, k, SIZE, geometry, threshold) == pytest.approx(math.log10(expected))


CAMERAS = (
    np.array([[500, 0, 320], [0, 500, 240], [0, 0, 1.0]]),
    np.array([[1400, 2, 900], [0, 1380, 700], [0, 0, 1.0]]),
)


def calibrated_views(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Project points in space into two different cameras; return both, the rotation and the translation."""
    random = np.random.default_rng(seed)
    points = np.column_stack([random.uniform(-2, 2, (count, 2)), random.uniform(4, 9, count)])
    angle, shift = 0.15, np.array([1.0, 0.1, 0.2])
    rotation = np.array([[math.cos(angle), 0, math.sin(angle)], [0, 1, 0], [-math.sin(angle), 0, math.cos(angle)]])
    first, second = points @ CAMERAS[0].T, (points @ rotation.T + shift) @ CAMERAS[1].T
    return first[:, :2] / first[:, 2:], second[:, :2] / second[:, 2:], rotation, shift / np.linalg.norm(shift)


@pytest.mark.parametrize("outliers", [0, 200])
@pytest.mark.parametrize("threshold", [0.8, 3.0])
def test_the_pose_of_two_cameras_is_found_among_outliers(outliers: int, threshold: float) -> None:
    clean_first, clean_second, rotation, translation = calibrated_views(200, 0)
    random = np.random.default_rng(1)
    noise = 0.25 * threshold  # in pixels of either image, whatever its focal length
    first = np.vstack([clean_first + random.normal(0, noise, (200, 2)), random.uniform(0, (640, 480), (outliers, 2))])
    second = np.vstack(
        [clean_second + random.normal(0, noise, (200, 2)), random.uniform(0, (1800, 1400), (outliers, 2))]
    )
    result = verify(first, second, (1400, 1800), "essential", threshold, CAMERAS)
    assert result.inliers[:200].mean() > 0.95
    assert result.inliers[200:].sum() <= 0.1 * outliers
    assert result.rotation is not None
    assert result.translation is not None
    assert np.degrees(np.arccos((np.trace(result.rotation.T @ rotation) - 1) / 2)) < threshold
    assert np.degrees(np.arccos(result.translation @ translation)) < 3 * threshold
    assert result.matrix is not None
    inverses = [np.linalg.inv(camera) for camera in CAMERAS]
    fundamental = inverses[1].T @ result.matrix @ inverses[0]
    assert np.median(epipolar_distances(fundamental, clean_first, clean_second)) < threshold
    np.testing.assert_allclose(
        np.linalg.svd(result.matrix)[1] / np.linalg.svd(result.matrix)[1][0], [1, 1, 0], atol=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_pose_is_as_accurate_as_the_points(seed: int) -> None:
    clean_first, clean_second, rotation, translation = calibrated_views(300, seed)
    random = np.random.default_rng(seed)
    first, second = (
        np.vstack([points + random.normal(0, 0.3, (300, 2)), random.uniform(0, size, (150, 2))])
        for points, size in ((clean_first, (640, 480)), (clean_second, (1800, 1400)))
    )
    result = verify(first, second, (1400, 1800), "essential", 1.5, CAMERAS)
    assert result.rotation is not None
    assert result.translation is not None
    assert np.degrees(np.arccos((np.trace(result.rotation.T @ rotation) - 1) / 2)) < 0.15
    assert np.degrees(np.arccos(result.translation @ translation)) < 0.3


@pytest.mark.parametrize("threshold", [0.02, 0.1])
def test_small_thresholds_find_the_matches_of_accurate_points(threshold: float) -> None:
    homography = np.array([[0.9, -0.2, 30], [0.15, 1.1, -20], [2e-4, -3e-4, 1]])
    for seed in range(4):
        random = np.random.default_rng(seed)
        first, second, _ = two_views(200, seed)
        wrong = random.uniform(0, (640, 480), (2, 100, 2))
        cases: list[tuple[Geometry, np.ndarray]] = [
            ("fundamental", second),
            ("homography", transform_points(first, homography)),
        ]
        for geometry, matched in cases:
            noisy = matched + random.normal(0, threshold / 4, matched.shape)
            a, b = np.vstack([first, wrong[0]]), np.vstack([noisy, wrong[1]])
            result = verify(a, b, SIZE, geometry, threshold)
            assert result.inliers[:200].mean() > 0.98
            assert result.inliers[200:].sum() <= 5
            assert result.matrix is not None
            if geometry == "homography":
                errors = np.linalg.norm(transform_points(a, result.matrix) - b, axis=1)
            else:
                errors = sampson_distances(result.matrix, a, b)
            np.testing.assert_array_equal(result.inliers, errors <= threshold)


@pytest.mark.parametrize("distance", [100, 200])
def test_the_pose_is_that_of_points_farther_than_fifty_baselines(distance: float) -> None:
    camera = np.array([[1000, 0, 640], [0, 1000, 480], [0, 0, 1.0]])
    for seed in range(4):
        random = np.random.default_rng(seed)
        rotation = cv2.Rodrigues(random.normal(0, 0.05, 3))[0]
        translation = random.normal(size=3) * (1, 1, 0.3)
        translation /= np.linalg.norm(translation)
        first = random.uniform(0, (1280, 960), (400, 2))
        rays = np.column_stack([first, np.ones(400)]) @ np.linalg.inv(camera).T
        points = rays * random.uniform(distance, 2 * distance, (400, 1))
        projected = (points @ rotation.T + translation) @ camera.T
        result = verify(first, projected[:, :2] / projected[:, 2:], (960, 1280), "essential", 1.0, camera)
        assert result.rotation is not None
        assert result.translation is not None
        np.testing.assert_allclose(result.rotation, rotation, atol=0.01)
        np.testing.assert_allclose(result.translation, translation, atol=0.2)


@pytest.mark.parametrize(("geometry", "norm"), [("fundamental", 1.0), ("essential", math.sqrt(2))])
def test_matrices_of_parallel_cameras_have_moderate_values(geometry: MatchGeometry, norm: float) -> None:
    """OpenCV divides by the last element, which is 0 up to rounding for a rectified stereo pair."""
    first = np.random.default_rng(0).uniform(0, (640, 480), (200, 2))
    second = first + np.random.default_rng(1).uniform(5, 80, (200, 1)) * [1, 0]
    camera = np.array([[800, 0, 320], [0, 800, 240], [0, 0, 1.0]])
    result = verify(first, second, SIZE, geometry, cameras=camera if geometry == "essential" else None)
    assert result.inliers.all()
    assert result.matrix is not None
    assert np.linalg.norm(result.matrix) == pytest.approx(norm)


def test_one_matrix_serves_two_images_of_the_same_camera() -> None:
    first, second, _ = two_views(100, 0)
    single, double = (
        verify(first, second, SIZE, "essential", 1.0, cameras) for cameras in (CAMERAS[0], CAMERAS[:1] * 2)
    )
    assert single.inliers.all()
    np.testing.assert_array_equal(single.matrix, double.matrix)
    assert verify(first, second, SIZE).rotation is None


@pytest.mark.parametrize("count", [0, 5, 6, 40, 400])
def test_random_matches_have_no_essential_matrix(count: int) -> None:
    for seed in range(2):
        random = np.random.default_rng(seed)
        first, second = (random.uniform(0, (640, 480), (count, 2)) for _ in range(2))
        result = verify(first, second, SIZE, "essential", cameras=CAMERAS[0])
        assert result.matrix is None
        assert not result.inliers.any()


def test_sampson_distances_are_the_shortest_ways_to_the_epipolar_constraint() -> None:
    first, second, fundamental = two_views(50, 3)
    random = np.random.default_rng(0)
    moved = [points + random.normal(0, 0.5, points.shape) for points in (first, second)]
    # To first order, the least motion (over both images) that satisfies x'ᵀFx = 0.
    x, y = (np.column_stack([points, np.ones(50)]) for points in moved)
    error = np.einsum("ni,ij,nj->n", y, fundamental, x)
    gradient = np.hstack([(y @ fundamental)[:, :2], (x @ fundamental.T)[:, :2]])
    motion = error[:, None] * gradient / (gradient**2).sum(1, keepdims=True)
    np.testing.assert_allclose(sampson_distances(fundamental, *moved), np.linalg.norm(motion, axis=1))
    corrected = moved[0] - motion[:, :2], moved[1] - motion[:, 2:]
    assert sampson_distances(fundamental, *corrected).max() < 0.05 * sampson_distances(fundamental, *moved).max()


@pytest.mark.parametrize(
    ("cameras", "message"),
    [
        (None, "needs the intrinsics of the images"),
        (np.eye(4), r"one \(3, 3\) matrix of intrinsics or two, not of shape \(4, 4\)"),
        (np.diag([500.0, -500, 1]), "not a matrix of intrinsics"),
        (np.full((3, 3), np.nan), "not a matrix of intrinsics"),
        (CAMERAS[0].T, "not a matrix of intrinsics"),
        ((CAMERAS[0], None), "cameras must be numbers"),
        (torch.eye(3, requires_grad=True), "cameras must be numbers: .* of a tensor, pass"),
    ],
)
def test_cameras_that_are_none_are_refused(cameras: Any, message: str) -> None:
    first, second, _ = two_views(20, 0)
    with pytest.raises(DoapError, match=message):
        verify(first, second, SIZE, "essential", cameras=cameras)


def test_points_thresholds_and_geometries_that_are_none_are_refused() -> None:
    first, second, _ = two_views(20, 0)
    with pytest.raises(DoapError, match=r"matched points must be \(P, 2\)"):
        verify(first, second[:19], SIZE)
    with pytest.raises(DoapError, match="must be finite"):
        verify(first, np.where(second == second[3], np.nan, second), SIZE)
    for threshold in (0.0, -1.0, math.nan):
        with pytest.raises(DoapError, match="threshold must be a positive number"):
            verify(first, second, SIZE, threshold=threshold)
    with pytest.raises(DoapError, match="the threshold must be a number, not '1'"):
        verify(first, second, SIZE, threshold="1")  # type: ignore[arg-type]
    for size in ((0, 0), (-1, 5), (math.nan, 5), (100,), None, 100, "ab", np.ones((2, 2))):
        with pytest.raises(DoapError, match=r"the size of an image must be \(height, width\)"):
            verify(first, second, size)  # type: ignore[arg-type]
    with pytest.raises(DoapError, match=r"must be numbers, .* of a tensor, pass"):
        verify(torch.ones(9, 2, requires_grad=True), second[:9], SIZE)  # type: ignore[arg-type]
    with pytest.raises(DoapError, match="geometry affine: unknown; choose one of fundamental"):
        verify(first, second, SIZE, "affine")  # type: ignore[arg-type]


@pytest.mark.parametrize("geometry", ["fundamental", "homography"])
def test_cameras_are_refused_where_they_have_no_effect(geometry: Geometry) -> None:
    first, second, _ = two_views(50, 0)
    with pytest.raises(DoapError, match=f"cameras have no effect on a {geometry} geometry"):
        verify(first, second, SIZE, geometry, cameras=np.eye(3))
