import cv2
import numpy as np
import pytest

from doap.geometry.ellipses import scales
from doap.geometry.homographies import transform_points
from doap.images import frames as module
from doap.images.frames import detect_dog, transform_frames


def circle(x: float, y: float, radius: float) -> np.ndarray:
    return np.array([[[radius, 0, x], [0, radius, y]]], np.float32)


def test_detection_is_opencvs_strongest_first(photo: np.ndarray) -> None:
    keypoints = cv2.SIFT.create(enable_precise_upscale=True).detect(photo, None)
    found = detect_dog(photo, 300)
    assert found.shape == (300, 2, 3)
    assert found.dtype == np.float32
    places = {(round(k.pt[0], 2), round(k.pt[1], 2)) for k in sorted(keypoints, key=lambda k: -k.response)[:320]}
    assert {(round(float(x), 2), round(float(y), 2)) for x, y in found[:, :, 2]} <= places
    np.testing.assert_array_equal(found[:100], detect_dog(photo, 100))


@pytest.mark.parametrize("shape", [(1, 1), (2, 50), (64, 64)])
def test_nothing_is_found_in_tiny_or_flat_images(shape: tuple[int, int]) -> None:
    assert detect_dog(np.full(shape, 128, np.uint8)).shape == (0, 2, 3)


def test_large_images_are_halved_and_frames_put_back(photo: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = detect_dog(photo, 400)
    monkeypatch.setattr(module, "MAX_DETECTION_PIXELS", photo.size)
    doubled = cv2.resize(photo, None, fx=2, fy=2, interpolation=cv2.INTER_NEAREST)
    np.testing.assert_allclose(detect_dog(doubled, 400)[:, :, :2], 2 * plain[:, :, :2], rtol=1e-5)
    np.testing.assert_allclose(detect_dog(doubled, 400)[:, :, 2], 2 * plain[:, :, 2] + 0.5, rtol=1e-5)


def test_frames_move_as_the_points_around_them() -> None:
    homography = np.array([[0.9, -0.2, 30], [0.15, 1.1, -20], [2e-4, -3e-4, 1]])
    frame = np.array([[[4, 1, 100], [-2, 3, 80]]], np.float32)
    sent = transform_frames(frame, homography)[0].astype(float)
    step = 1e-4
    for direction in np.eye(2):
        rim = frame[0, :, 2] + step * frame[0, :, :2] @ direction
        back = frame[0, :, 2] - step * frame[0, :, :2] @ direction
        numeric = (transform_points(rim, homography) - transform_points(back, homography)) / (2 * step)
        np.testing.assert_allclose(sent[:, :2] @ direction, numeric, rtol=1e-4)
    np.testing.assert_allclose(sent[:, 2], transform_points(frame[0, :, 2], homography), rtol=1e-6)


def test_scale_is_the_radius_of_equal_area() -> None:
    assert scales(circle(0, 0, 3))[0] == pytest.approx(3)
    assert scales(np.array([[[8, 0, 0], [0, -2, 0]]], np.float32))[0] == pytest.approx(4)
