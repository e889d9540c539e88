"""VLFeat's Harris-Affine frames, compared with those that the library detected."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import skimage
from benchmarks.vlfeat import RECORDED, reproduced

from doap.geometry.ellipses import scales
from doap.images.detectors import DETECTORS, detect_vlfeat_harris_affine
from doap.images.frames import transform_frames
from doap.images.vlfeat.harris_affine import MAX_AXIS_RATIO, adapt_shape
from doap.images.vlfeat.scale_space import ScaleSpace, level_sigma
from doap.types import Frames, Grey


@pytest.fixture(scope="module")
def photo() -> Grey:
    return np.ascontiguousarray(skimage.data.camera()[RECORDED])


@pytest.fixture(scope="module")
def frames(photo: Grey) -> Frames:
    return detect_vlfeat_harris_affine(photo)


def test_frames_are_those_of_vlfeat(frames: Frames) -> None:
    """Recorded with VLFeat 0.9.21 by `python benchmarks/vlfeat.py LIBRARY --record FILE`."""
    recorded = np.loadtxt(Path(__file__).parent / "recorded_frames.csv", np.float32, delimiter=",", skiprows=1)
    theirs = np.ascontiguousarray(recorded.reshape(-1, 2, 3))
    assert len(theirs) > 200
    assert reproduced(theirs, frames).mean() > 0.98
    assert reproduced(frames, theirs).mean() > 0.98
    # Not the ellipses alone, but the whole matrices are equal: upright, and not mirrored.
    nearest = np.abs(frames[:, None] - theirs[None]).max((2, 3)).min(1)
    assert np.mean(nearest < 0.02 * scales(frames)) > 0.95


def test_frames_are_upright_and_at_most_five_times_as_long_as_wide(frames: Frames) -> None:
    assert (frames[:, 0, 1] == 0).all()
    assert (frames[:, [0, 1], [0, 1]] > 0).all()
    axes = np.linalg.svd(frames[:, :, :2], compute_uv=False)
    assert (axes[:, 0] <= 1.001 * MAX_AXIS_RATIO * axes[:, 1]).all()


def test_a_limit_takes_the_strongest(photo: Grey, frames: Frames) -> None:
    np.testing.assert_allclose(DETECTORS["vlfeat-harris-affine"](photo, 50), frames[:50], rtol=1e-4, atol=1e-4)


def test_the_smaller_axis_keeps_its_length(photo: Grey) -> None:
    circles = np.array([[[3, 0, 100 + 20 * k], [0, 3, 90]] for k in range(5)], np.float32)
    adapted = adapt_shape(ScaleSpace(photo), circles)
    axes = np.linalg.svd(adapted[:, :, :2], compute_uv=False)
    np.testing.assert_allclose(axes[:, 1], 3, rtol=1e-5)
    assert (axes[:, 0] > 3.1).any()
    np.testing.assert_array_equal(adapted[:, :, 2], circles[:, :, 2])
    assert (np.linalg.det(adapted[:, :, :2]) > 0).all()


def test_the_shape_of_a_stretched_blob_is_that_of_its_blurred_image() -> None:
    """The frame's gradients are isotropic if its ellipse has the covariance of the blob in the sampled level."""
    rows, columns = np.mgrid[:160, :160] - 80.0
    covariance = np.array([[144.0, 48.0], [48.0, 52.0]])
    inverse = np.linalg.inv(covariance)
    squared = inverse[0, 0] * columns**2 + 2 * inverse[0, 1] * columns * rows + inverse[1, 1] * rows**2
    image = np.round(20 + 200 * np.exp(-squared / 2)).astype(np.uint8)
    circle = np.array([[[5, 0, 80], [0, 5, 80]]], np.float32)
    adapted = adapt_shape(ScaleSpace(image), circle)[0, :, :2]
    blurred = covariance + (level_sigma(1, 0) ** 2 - 0.25) * np.eye(2)
    np.testing.assert_allclose(adapted @ adapted.T, 25 / np.linalg.eigvalsh(blurred)[0] * blurred, rtol=0.03)


def test_frames_of_a_flat_place_stay_circles() -> None:
    circle = np.array([[[3, 0, 40], [0, 3, 40]]], np.float32)
    np.testing.assert_allclose(adapt_shape(ScaleSpace(np.zeros((80, 80), np.uint8)), circle), circle)


def test_frames_follow_an_affine_view(photo: Grey, frames: Frames) -> None:
    """A tenth less width: most frames are found again where the homography maps them."""
    homography = np.diag([0.9, 1.0, 1.0])
    view = cv2.warpPerspective(photo, homography, (288, 240), flags=cv2.INTER_AREA)
    second = detect_vlfeat_harris_affine(np.asarray(view, np.uint8))
    expected = transform_frames(frames[:100], homography)
    distance = np.linalg.norm(expected[:, None, :, 2] - second[None, :, :, 2], axis=2).min(1)
    assert np.mean(distance < 1.5) > 0.6
