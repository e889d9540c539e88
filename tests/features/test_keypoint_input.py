"""Keypoints of every form give the same frames, in order; invalid ones are named by index."""

from typing import Any

import cv2
import kornia
import numpy as np
import pytest
import torch

from doap import DoapError
from doap.features.keypoint_input import frame_angles, frame_scales, to_frames
from doap.images.frames import make_upright

COLUMNS = np.random.default_rng(0).uniform((0, 0, 1, 0), (640, 480, 30, 360), (50, 4))


def cv2_keypoints() -> list[cv2.KeyPoint]:
    return [cv2.KeyPoint(x, y, 2 * scale, angle) for x, y, scale, angle in COLUMNS.tolist()]


def kornia_lafs() -> torch.Tensor:
    values = torch.from_numpy(COLUMNS)[None]
    # A LAF's angle is counter-clockwise.
    lafs: torch.Tensor = kornia.feature.laf_from_center_scale_ori(
        values[:, :, :2], values[:, :, 2, None, None], -values[:, :, 3, None]
    )
    return lafs


@pytest.mark.parametrize(
    "keypoints",
    [
        COLUMNS,
        COLUMNS.tolist(),
        torch.from_numpy(COLUMNS),
        cv2_keypoints(),
        tuple(cv2_keypoints()),
        kornia_lafs(),
        kornia_lafs()[0],
        kornia_lafs()[0].numpy(),
    ],
    ids=["columns", "lists", "tensor", "OpenCV", "tuple", "LAFs", "LAFs of one image", "frames"],
)
def test_every_form_gives_the_same_frames(keypoints: Any) -> None:
    frames = to_frames(keypoints)
    assert frames.shape == (50, 2, 3)
    assert frames.dtype == np.float32
    np.testing.assert_allclose(frames[:, :, 2], COLUMNS[:, :2], rtol=1e-5)
    # The unit vector along x lies at the angle, clockwise in the image, one scale away.
    radians = np.radians(COLUMNS[:, 3])
    axis = COLUMNS[:, 2:3] * np.stack([np.cos(radians), np.sin(radians)], 1)
    np.testing.assert_allclose(frames[:, :, 0], axis, atol=1e-4)
    np.testing.assert_allclose(frame_scales(frames), COLUMNS[:, 2], rtol=1e-4)
    np.testing.assert_allclose(frame_angles(frames), COLUMNS[:, 3], atol=1e-3)


def test_opencvs_missing_angle_is_upright() -> None:
    (frame,) = to_frames([cv2.KeyPoint(5, 6, 8)])
    assert cv2.KeyPoint(5, 6, 8).angle == -1
    np.testing.assert_array_equal(frame, [[4, 0, 5], [0, 4, 6]])


def test_upright_frames_of_any_shape_have_angle_zero() -> None:
    shapes = np.random.default_rng(0).normal(size=(100, 2, 3)).astype(np.float32)
    shapes[np.linalg.det(shapes[:, :, :2]) < 0, 0] *= -1
    angles = frame_angles(make_upright(shapes))
    assert np.minimum(angles, 360 - angles).max() < 1e-3
    assert (angles < 360).all()
    lafs = torch.from_numpy(shapes)[None]
    counter_clockwise = kornia.feature.get_laf_orientation(lafs).numpy().ravel()
    np.testing.assert_allclose(frame_angles(shapes), -counter_clockwise % 360, atol=1e-2)
    np.testing.assert_allclose(frame_scales(shapes), kornia.feature.get_laf_scale(lafs).numpy().ravel(), atol=1e-4)


@pytest.mark.parametrize("keypoints", [[], (), np.zeros((0, 4)), np.zeros((0, 2, 3)), torch.zeros(1, 0, 2, 3)])
def test_no_keypoints_give_no_frames(keypoints: Any) -> None:
    assert to_frames(keypoints).shape == (0, 2, 3)


@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_keypoints_that_are_not_finite_are_named(column: int, value: float) -> None:
    keypoints = COLUMNS.copy()
    keypoints[7, column] = value
    with pytest.raises(DoapError, match=r"^keypoint 7 has no valid position and scale"):
        to_frames(keypoints)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_frames_that_are_not_finite_are_named_without_warnings(value: float) -> None:
    with pytest.raises(DoapError, match=r"^keypoint 0 has no valid position and scale"):
        to_frames(np.full((1, 2, 3), value))


def test_lafs_of_half_precision_are_converted() -> None:
    lafs = torch.tensor([[[[3.0, 0, 10], [0, 3, 20]]]])
    for dtype in (torch.float16, torch.bfloat16):
        np.testing.assert_array_equal(to_frames(lafs.to(dtype)), lafs[0].numpy())


@pytest.mark.parametrize("scale", [0.0, -3.0])
def test_keypoints_without_a_positive_scale_are_named(scale: float) -> None:
    keypoints = COLUMNS.copy()
    keypoints[3:5, 2] = scale
    with pytest.raises(DoapError, match=r"^keypoint 3 has no valid"):
        to_frames(keypoints)
    with pytest.raises(DoapError, match=r"^keypoint 1 has no valid"):
        to_frames([cv2.KeyPoint(1, 2, 3), cv2.KeyPoint(1, 2, 2 * scale)])
    frames = to_frames(COLUMNS)
    frames[9, :, :2] = [[1, 2], [2, 4]]  # a line
    with pytest.raises(DoapError, match=r"^keypoint 9 has no valid"):
        to_frames(frames)


@pytest.mark.parametrize(
    "keypoints",
    [np.zeros((5, 3)), np.zeros((2, 5, 2, 3)), ["a", "b"], [cv2.KeyPoint(), 1], 5, [[10, 10, 1], [1]]],
)
def test_other_forms_are_refused(keypoints: Any) -> None:
    with pytest.raises(DoapError, match="keypoints must be"):
        to_frames(keypoints)
