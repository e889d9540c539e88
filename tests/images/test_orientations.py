import numpy as np
import pytest
from numpy.typing import NDArray

from doap.images import affine_shape
from doap.images.affine_shape import orient, orient_all
from doap.images.extraction import Pyramid
from doap.images.frames import detect_dog, first_of_each_ellipse, make_upright
from doap.types import Frames, Grey
from support.frame_measures import angle_errors, angles, ellipses, smallest_turn
from support.random_frames import random_frames

SCALE = 4


def turned_circles(centre: float) -> Frames:
    """Return frames of several orientations at one point of the diagonal."""
    turns = np.radians([0, 20, 37, 80, 123, 190, 271, 301])
    cosines, sines, centres = SCALE * np.cos(turns), SCALE * np.sin(turns), np.full(len(turns), centre)
    rows = np.stack([cosines, -sines, centres], 1), np.stack([sines, cosines, centres], 1)
    return np.stack(rows, 1).astype(np.float32)


def dog_keypoints(image: Grey) -> Frames:
    """Return one DoG frame per keypoint."""
    frames = detect_dog(image)
    return frames[first_of_each_ellipse(frames)]


def split_angles(frames: Frames, rows: NDArray[np.int64]) -> list[NDArray[np.floating]]:
    """Return the ascending orientations of each given frame, in [0, 360)."""
    return [np.sort(angles(frames[rows == row]) % 360) for row in range(rows.max() + 1)]


@pytest.mark.parametrize(("inside", "tolerance"), [(0, 20), (3, 8)])
def test_a_corner_of_two_equal_edges_has_both_orientations(inside: float, tolerance: float) -> None:
    """Gradients point along -x and along -y; near the corner itself, smoothing turns them towards the diagonal."""
    image = np.zeros((120, 120), np.uint8)
    image[:60, :60] = 200
    given = turned_circles(59.5 - inside * SCALE)
    frames, rows = orient_all(image, given)
    np.testing.assert_array_equal(rows, np.arange(len(given)).repeat(2))
    for actual in split_angles(frames, rows):
        np.testing.assert_allclose(actual, [180, 270], atol=tolerance)


@pytest.mark.parametrize(("contrast", "expected"), [(95, [180, 270]), (70, [180]), (0, [180])])
def test_an_edge_of_less_than_four_fifths_of_the_contrast_gives_no_orientation(
    contrast: int, expected: list[float]
) -> None:
    image = np.zeros((120, 120), np.uint8)
    image[:, :60] += 100
    image[:60] += contrast
    frames, rows = orient_all(image, turned_circles(59.5 - 3 * SCALE))
    for actual in split_angles(frames, rows):
        np.testing.assert_allclose(actual, expected, atol=8)


def test_every_frame_keeps_its_ellipse_and_has_the_orientation_of_the_largest_peak(photo: Grey) -> None:
    for given in (dog_keypoints(photo), random_frames(200, 0)):
        frames, rows = orient_all(photo, given)
        assert frames.dtype == np.float32
        assert rows.dtype == np.int64
        assert (np.diff(rows) >= 0).all()
        np.testing.assert_array_equal(np.unique(rows), np.arange(len(given)))
        np.testing.assert_array_equal(frames[:, :, 2], given[rows, :, 2])
        np.testing.assert_allclose(ellipses(frames), ellipses(given[rows]), rtol=1e-4, atol=1e-3)
        for row, largest in enumerate(orient(photo, given)):
            own = frames[rows == row]
            assert np.abs(own - largest).max((1, 2)).min() < 1e-4
            assert len(own) == 1 or smallest_turn(own) > 10  # two peaks have a bin of 10 degrees between them


def test_a_keypoint_of_a_photo_seldom_has_several_orientations(photo: Grey) -> None:
    keypoints = dog_keypoints(photo)
    assert len(keypoints) > 500
    _, rows = orient_all(photo, keypoints)
    assert 1.05 < len(rows) / len(keypoints) < 1.6
    assert np.bincount(rows).max() <= 4


def test_orientations_are_those_of_sift(photo: Grey) -> None:
    """SIFT computes them from another window: 79% have one of ours within 15 degrees, 73% that of the largest peak."""
    sift = detect_dog(photo)
    points, which = np.unique(sift[:, :, 2], axis=0, return_inverse=True)
    keypoints = sift[np.unique(which, return_index=True)[1]]
    frames, rows = orient_all(photo, keypoints)

    def share_found(wanted: Frames, wanted_rows: NDArray[np.int64], given: Frames, rows: NDArray[np.int64]) -> float:
        of_each = [angles(given[rows == row]) for row in range(len(points))]
        errors = [
            angle_errors(of_each[row], angle).min() for row, angle in zip(wanted_rows, angles(wanted), strict=True)
        ]
        return float(np.mean(np.array(errors) < 15))

    actual = share_found(sift, which, frames, rows)
    assert actual > 0.75
    assert actual > share_found(sift, which, orient(photo, keypoints), np.arange(len(points))) + 0.03
    assert share_found(frames, rows, sift, which) > 0.77


def test_orientations_turn_with_the_image(photo: Grey) -> None:
    """By 90 degrees counter-clockwise, (x, y) maps to (y, W - 1 - x)."""
    keypoints = make_upright(dog_keypoints(photo))
    moved = keypoints.copy()
    moved[:, 0, 2], moved[:, 1, 2] = keypoints[:, 1, 2], photo.shape[1] - 1 - keypoints[:, 0, 2]
    frames, rows = orient_all(photo, keypoints)
    turned, turned_rows = orient_all(np.ascontiguousarray(np.rot90(photo)), moved)
    np.testing.assert_array_equal(turned_rows, rows)
    for row, actual in enumerate(split_angles(turned, turned_rows)):
        expected = angles(frames[rows == row]) - 90
        assert angle_errors(actual[:, None], expected).min(1).max() < 0.1
        assert angle_errors(actual[:, None], expected).min(0).max() < 0.1


def test_brightness_changes_no_orientation(photo: Grey) -> None:
    keypoints, dark = dog_keypoints(photo), photo // 2
    frames, rows = orient_all(dark, keypoints)
    bright, bright_rows = orient_all(dark + np.uint8(127), keypoints)
    np.testing.assert_array_equal(bright_rows, rows)
    assert angle_errors(angles(bright), angles(frames)).max() < 0.1


@pytest.mark.parametrize("shape", [(1, 1), (3, 200), (64, 64), (201, 333)])
@pytest.mark.parametrize("grey", [0, 37, 128, 255])
def test_a_frame_of_a_flat_image_has_one_orientation(grey: int, shape: tuple[int, int]) -> None:
    given = random_frames(300, 0)
    frames, rows = orient_all(np.full(shape, grey, np.uint8), given)
    np.testing.assert_array_equal(rows, np.arange(len(given)))
    np.testing.assert_allclose(ellipses(frames), ellipses(given), rtol=1e-4, atol=1e-3)


def test_no_frames_have_no_orientations(photo: Grey) -> None:
    frames, rows = orient_all(photo, np.zeros((0, 2, 3), np.float32))
    assert frames.shape == (0, 2, 3)
    assert rows.shape == (0,)
    assert orient(photo, frames).shape == (0, 2, 3)


def test_chunks_and_pyramids_give_the_same_orientations(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    given = detect_dog(photo, 90)
    before = given.copy()
    frames, rows = orient_all(photo, given)
    monkeypatch.setattr(affine_shape, "CHUNK_SIZE", 17)
    chunked, chunked_rows = orient_all(Pyramid(photo), given)
    np.testing.assert_array_equal(chunked_rows, rows)
    np.testing.assert_allclose(chunked, frames, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(given, before)
