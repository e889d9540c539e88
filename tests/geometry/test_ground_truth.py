import numpy as np
import pytest

from doap.choices import Geometry
from doap.errors import DoapError
from doap.geometry.ground_truth import from_homography, from_points, match_errors
from doap.geometry.homographies import transform_points

HOMOGRAPHY = np.array([[0.9, -0.25, 40], [0.2, 1.05, -15], [3e-4, -2e-4, 1]])


def two_views(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Project random points into two cameras: (P, 4) points, and the fundamental matrix of the cameras."""
    random = np.random.default_rng(seed)
    world = np.column_stack([random.uniform(-2, 2, (count, 2)), random.uniform(4, 8, count)])
    inner = np.array([[500, 0, 320], [0, 500, 240], [0, 0, 1.0]])
    c, s = np.cos(0.2), np.sin(0.2)
    rotation, shift = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]), np.array([1.0, 0.2, 0.1])
    projected = [(points @ inner.T) for points in (world, world @ rotation.T + shift)]
    cross = np.array([[0, -shift[2], shift[1]], [shift[2], 0, -shift[0]], [-shift[1], shift[0], 0]])
    inverse = np.linalg.inv(inner)
    return np.hstack([p[:, :2] / p[:, 2:] for p in projected]), inverse.T @ cross @ rotation @ inverse


def test_errors_are_distances_in_pixels() -> None:
    points, fundamental = two_views(20)
    moved = points.copy()
    moved[:, 2:] += np.random.default_rng(1).normal(0, 5, (20, 2))
    expected = []
    for x, y, u, v in moved:
        a, b = np.array([x, y, 1]), np.array([u, v, 1])
        there, back = fundamental @ a, fundamental.T @ b
        expected.append((abs(b @ there) / np.hypot(*there[:2]) + abs(a @ back) / np.hypot(*back[:2])) / 2)
    np.testing.assert_allclose(match_errors(fundamental, "fundamental", moved[:, :2], moved[:, 2:]), expected)
    np.testing.assert_allclose(match_errors(fundamental, "fundamental", points[:, :2], points[:, 2:]), 0, atol=1e-8)
    mapped = transform_points(points[:, :2], HOMOGRAPHY)
    errors = match_errors(HOMOGRAPHY, "homography", points[:, :2], mapped + np.array([3, 4]))
    np.testing.assert_allclose(errors, 5)


def test_an_estimate_is_evaluated_at_the_corners() -> None:
    ground_truth = from_homography(HOMOGRAPHY, (480, 640))
    assert ground_truth.mean_error(HOMOGRAPHY) == pytest.approx(0)
    moved = np.array([[1, 0, 2], [0, 1, 0], [0, 0, 1]]) @ HOMOGRAPHY
    assert ground_truth.mean_error(moved) == pytest.approx(2)
    np.testing.assert_array_equal(ground_truth.points[:, :2], [[0, 0], [639, 0], [639, 479], [0, 479]])


def test_labelled_points_give_their_geometry() -> None:
    points, fundamental = two_views(12)
    ground_truth = from_points(points, "fundamental", "labels")
    fitted, expected = (m / m[0, 1] for m in (ground_truth.matrix, fundamental))
    np.testing.assert_allclose(fitted, expected, rtol=1e-4, atol=1e-4)
    others, _ = two_views(30, seed=5)
    assert ground_truth.errors(others[:, :2], others[:, 2:]).max() < 1e-3
    flat = np.hstack([points[:, :2], transform_points(points[:, :2], HOMOGRAPHY)])
    plane = from_points(flat, "homography", "labels")
    np.testing.assert_allclose(plane.matrix / plane.matrix[2, 2], HOMOGRAPHY, rtol=1e-5, atol=1e-8)
    assert plane.mean_error(plane.matrix) < 1e-4


def test_labels_without_a_geometry_are_rejected_in_one_line() -> None:
    points, _ = two_views(20)
    line = np.column_stack([np.arange(6.0), np.arange(6.0), np.arange(6.0), np.arange(6.0)])
    wrong = np.random.default_rng(0).uniform(0, 500, (40, 4))
    repeated = np.tile(points[:, :2], 2)
    cases: list[tuple[np.ndarray, Geometry, str]] = [
        (points[:7], "fundamental", "a.csv: 7 different points; a fundamental takes 8 or more"),
        (np.repeat(points[:3], 9, 0), "homography", "3 different points; a homography takes 4"),
        (line, "homography", "a.csv: the points do not determine a homography; do they lie on a line?"),
        (repeated, "fundamental", "a.csv: the points do not determine a fundamental; do they lie on a plane?"),
        (wrong, "fundamental", "no fundamental fits the points: their mean error is .* pixels"),
        (points, "homography", "no homography fits the points"),
    ]
    for labels, geometry, message in cases:
        with pytest.raises(DoapError, match=message):
            from_points(labels, geometry, "a.csv")
