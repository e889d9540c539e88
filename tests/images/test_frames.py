import cv2
import kornia
import numpy as np
import pytest
import torch

from doap.geometry.homographies import transform_points
from doap.images import frames as module
from doap.images.frames import detect_dog, frames_from_keypoints, make_upright, transform_frames
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


def test_keypoints_without_angle_become_upright_frames() -> None:
    keypoints = [cv2.KeyPoint(3, 4, 10), cv2.KeyPoint(5, 6, 8, 90)]
    assert keypoints[0].angle == -1
    expected = [[[5, 0, 3], [0, 5, 4]], [[0, -4, 5], [4, 0, 6]]]
    np.testing.assert_allclose(frames_from_keypoints(keypoints), expected, atol=1e-6)
    assert frames_from_keypoints([]).shape == (0, 2, 3)


def test_frames_are_kornias_lafs_with_the_opposite_sign_of_the_angle() -> None:
    """Kornia counts angles counter-clockwise on the screen, OpenCV clockwise."""
    keypoints = [cv2.KeyPoint(30, 40, 10, 25), cv2.KeyPoint(15, 60, 7, 300)]
    lafs = kornia.feature.laf_from_center_scale_ori(
        torch.tensor([[[30.0, 40], [15, 60]]]),
        torch.tensor([5.0, 3.5]).view(1, 2, 1, 1),
        -torch.tensor([25.0, 300]).view(1, 2, 1),
    )
    np.testing.assert_allclose(frames_from_keypoints(keypoints), lafs[0], atol=1e-5)


@pytest.mark.parametrize("limit", [None, 0, 1, 150, 10**6])
def test_opencv_retains_the_same_frames_as_sorting_all(limit: int | None, photo: Grey) -> None:
    keypoints = cv2.SIFT.create(enable_precise_upscale=True).detect(photo, None)
    expected = sorted(keypoints, key=lambda k: (-k.response, k.pt, k.size, k.angle))[:limit]
    np.testing.assert_array_equal(detect_dog(photo, limit), frames_from_keypoints(expected))


@pytest.mark.parametrize("shape", [(1, 9001), (9001, 1)])
def test_a_large_image_of_one_row_has_no_frames(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DETECTION_PIXELS", 1000)
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert not len(detect_dog(image))
    assert 1 in module.halve_resolution(image).shape
