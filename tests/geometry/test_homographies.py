import cv2
import numpy as np

from doap.geometry.homographies import transform_points

HOMOGRAPHY = np.array([[0.9, -0.2, 30], [0.15, 1.1, -20], [2e-4, -3e-4, 1]])


def test_points_are_mapped_as_by_opencv() -> None:
    points = np.random.default_rng(0).uniform(0, 600, (40, 2))
    expected = cv2.perspectiveTransform(points[None], HOMOGRAPHY)[0]
    np.testing.assert_allclose(transform_points(points, HOMOGRAPHY), expected, rtol=1e-10)


def test_any_shape_of_points_is_mapped() -> None:
    points = np.random.default_rng(0).uniform(0, 600, (3, 4, 5, 2))
    mapped = transform_points(points, HOMOGRAPHY)
    assert mapped.shape == (3, 4, 5, 2)
    np.testing.assert_array_equal(mapped.reshape(-1, 2), transform_points(points.reshape(-1, 2), HOMOGRAPHY))
    np.testing.assert_array_equal(transform_points(points[0, 0, 0], HOMOGRAPHY), mapped[0, 0, 0])


def test_the_inverse_maps_back_and_the_scale_of_the_matrix_does_not_matter() -> None:
    points = np.random.default_rng(1).uniform(0, 600, (40, 2)).astype(np.float32)
    mapped = transform_points(points, -3 * HOMOGRAPHY)
    np.testing.assert_allclose(mapped, transform_points(points, HOMOGRAPHY))
    inverse = np.asarray(np.linalg.inv(HOMOGRAPHY), np.float64)
    np.testing.assert_allclose(transform_points(mapped, inverse), points, atol=1e-6)
    assert mapped.dtype == np.float64
