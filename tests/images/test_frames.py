import cv2
import numpy as np
import pytest

from doap.geometry.homographies import transform_points
from doap.images import frames as module
from doap.images.frames import detect_dog, make_upright, transform_frames
from doap.types import Grey


def test_detection_is_opencvs_strongest_first(photo: Grey) -> None:
    keypoints = cv2.SIFT.create(enable_precise_upscale=True).detect(photo, None)
    frames = detect_dog(photo, 300)
    assert frames.shape == (300, 2, 3)
    assert frames.dtype == np.float32
    centres = {(round(k.pt[0], 2), round(k.pt[1], 2)) for k in sorted(keypoints, key=lambda k: -k.response)[:320]}
    assert {(round(float(x), 2), round(float(y), 2)) for x, y in frames[:, :, 2]} <= centres
    np.testing.assert_array_equal(frames[:100], detect_dog(photo, 100))


@pytest.mark.parametrize("shape", [(1, 1), (2, 50), (64, 64)])
def test_nothing_is_found_in_tiny_or_flat_images(shape: tuple[int, int]) -> None:
    assert detect_dog(np.full(shape, 128, np.uint8)).shape == (0, 2, 3)


def test_large_images_are_halved_and_frames_scaled_back(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = detect_dog(photo, 400)
    monkeypatch.setattr(module, "MAX_DETECTION_PIXELS", photo.size)
    frames = detect_dog(photo.repeat(2, 0).repeat(2, 1), 400)
    np.testing.assert_allclose(frames[:, :, :2], 2 * plain[:, :, :2], rtol=1e-5)
    np.testing.assert_allclose(frames[:, :, 2], 2 * plain[:, :, 2] + 0.5, rtol=1e-5)


def test_frames_are_mapped_as_the_points_around_them() -> None:
    homography = np.array([[0.9, -0.2, 30], [0.15, 1.1, -20], [2e-4, -3e-4, 1]])
    frame = np.array([[[4, 1, 100], [-2, 3, 80]]], np.float32)
    mapped = transform_frames(frame, homography)[0].astype(float)
    step = 1e-4
    for direction in np.eye(2):
        rim = frame[0, :, 2] + step * frame[0, :, :2] @ direction
        back = frame[0, :, 2] - step * frame[0, :, :2] @ direction
        numeric = (transform_points(rim, homography) - transform_points(back, homography)) / (2 * step)
        np.testing.assert_allclose(mapped[:, :2] @ direction, numeric, rtol=1e-4)
    np.testing.assert_allclose(mapped[:, 2], transform_points(frame[0, :, 2], homography), rtol=1e-6)


def test_upright_frames_have_the_same_ellipse_and_a_vertical_y_axis() -> None:
    shapes = np.random.default_rng(0).normal(size=(50, 2, 2))
    frames = np.concatenate([shapes, np.ones((50, 2, 1))], 2).astype(np.float32)
    upright = make_upright(frames)
    a, b = frames[:, :, :2].astype(np.float64), upright[:, :, :2].astype(np.float64)
    np.testing.assert_allclose(a @ a.transpose(0, 2, 1), b @ b.transpose(0, 2, 1), atol=1e-5)
    np.testing.assert_allclose(np.linalg.det(a), np.linalg.det(b), atol=1e-5)  # mirrored frames stay mirrored
    assert (upright[:, 0, 1] == 0).all()
    np.testing.assert_array_equal(upright[:, :, 2], frames[:, :, 2])
    np.testing.assert_allclose(make_upright(upright), upright, atol=1e-6)
    assert make_upright(frames[:0]).shape == (0, 2, 3)
