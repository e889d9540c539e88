"""Tilted views: points and frames against scikit-image's transforms and the moments of a blob."""

import numpy as np
import pytest
from numpy.typing import NDArray
from skimage.transform import AffineTransform

from doap.images.tilts import BLUR, TiltedView, largest_side, tilt_image, turns
from doap.types import Frames, Grey

SIGMA = 6.0
CASES = [(1.0, 30.0), (2.0, 0.0), (2.0, 108.0), (4.0, 54.0), (8.0, 171.0)]


def blob(x: float, y: float) -> Grey:
    columns, rows = np.meshgrid(np.arange(200), np.arange(160))
    values = np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * SIGMA**2))
    return np.asarray(np.rint(values * 250), np.uint8)


def moments(image: Grey) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the centroid (x, y) and the covariance of the grey values."""
    weights = image.astype(np.float64) / image.sum()
    rows, columns = np.indices(image.shape)
    points = np.stack([columns.ravel(), rows.ravel()])
    mean = points @ weights.ravel()
    offsets = points - mean[:, None]
    return mean, (offsets * weights.ravel()) @ offsets.T


def view_of(image: Grey, tilt: float, turn: float) -> TiltedView:
    view = tilt_image(image, tilt, turn)
    assert view is not None
    return view


@pytest.mark.parametrize(("tilt", "turn"), CASES)
def test_a_blob_in_a_view_is_mapped_to_the_blob_in_the_image(tilt: float, turn: float) -> None:
    view = view_of(blob(120.3, 70.6), tilt, turn)
    centre, covariance = moments(view.image)
    frame = np.hstack([np.linalg.cholesky(covariance), centre[:, None]])[None].astype(np.float32)
    (mapped,) = view.to_original(frame).astype(np.float64)
    assert np.abs(mapped[:, 2] - (120.3, 70.6)).max() < 0.1
    # The blur against aliasing widens the blob along the direction that the view compresses.
    along = np.array([np.cos(np.radians(turn)), -np.sin(np.radians(turn))])
    expected = SIGMA**2 * np.eye(2) + BLUR**2 * (tilt**2 - 1) * np.outer(along, along)
    np.testing.assert_allclose(mapped[:, :2] @ mapped[:, :2].T, expected, atol=0.06 * expected.max())


@pytest.mark.parametrize(("tilt", "turn"), CASES)
def test_frames_are_mapped_as_points_of_their_ellipses(tilt: float, turn: float) -> None:
    view = view_of(blob(100, 80), tilt, turn)
    random = np.random.default_rng(0)
    frames = random.normal(0, 5, (20, 2, 3)).astype(np.float32)
    circle = np.stack([np.cos(angles := np.linspace(0, 6, 9)), np.sin(angles), np.ones(9)])
    points = (frames @ circle).transpose(0, 2, 1).reshape(-1, 2)
    expected = AffineTransform(view.homography).inverse(points)
    mapped = (view.to_original(frames) @ circle).transpose(0, 2, 1).reshape(-1, 2)
    np.testing.assert_allclose(mapped, expected, atol=1e-3)


@pytest.mark.parametrize("turn", [0.0, 18.0, 135.0])
def test_detail_finer_than_a_pixel_of_the_view_is_removed(turn: float) -> None:
    columns, rows = np.meshgrid(np.arange(160), np.arange(160))
    phase = columns * np.cos(np.radians(turn)) - rows * np.sin(np.radians(turn))
    stripes = np.rint(127 + 100 * np.cos(2 * np.pi * phase / 5)).astype(np.uint8)  # every 5 pixels
    view = view_of(stripes, 4.0, turn)  # whose pixels are 4 apart
    height, width = view.image.shape
    inner = view.image[height // 3 : -height // 3, width // 3 : -width // 3]
    assert inner.size > 100
    assert inner.std() < 3
    assert stripes.std() > 60


def test_only_frames_within_the_image_are_contained() -> None:
    view = view_of(blob(100, 80), 2.0, 36.0)
    places = np.array([[100, 80], [2, 80], [196, 80], [100, 1], [100, 157], [-20, 80]], np.float64)
    centres = AffineTransform(view.homography)(places)
    frames = np.concatenate([np.tile(np.eye(2) * 2, (6, 1, 1)), centres[:, :, None]], 2).astype(np.float32)
    assert view.contains(frames).tolist() == [True, False, False, False, False, False]
    x, y = np.rint(centres[0]).astype(int)
    assert view.mask[y, x]
    assert not view.mask[0, 0]  # a corner of the turned image


def test_upright_frames_stay_upright_in_the_image() -> None:
    upright: Frames = np.array([[[3, 0, 90], [0.5, 2, 60]], [[4, 0, 80], [0, 4, 50]]], np.float32)
    view = view_of(blob(100, 80), 1.0, 40.0)
    mapped = view.to_original(view.orient(upright))
    np.testing.assert_allclose(mapped[:, 0, 1], 0, atol=1e-5)
    assert (mapped[:, 0, 0] > 0).all()
    before, after = (f[:, :, :2] @ f[:, :, :2].transpose(0, 2, 1) for f in (upright, view.orient(upright)))
    np.testing.assert_allclose(after, before, atol=1e-4)  # the same ellipses
    oriented = upright.copy()
    oriented[0, 0, 1] = 1
    assert view.orient(oriented) is oriented


def test_turns_cover_half_a_circle() -> None:
    assert turns(4) == [18.0 * n for n in range(10)]
    assert len(turns(2**0.5)) == 4


def test_views_without_room_for_keypoints_are_left_out() -> None:
    assert tilt_image(np.zeros((20, 20), np.uint8), 8.0, 0.0) is None
    assert tilt_image(np.zeros((1, 1), np.uint8), 1.0, 0.0) is None


def test_turned_views_of_long_images_fit_into_memory() -> None:
    assert largest_side((480, 640)) == 640
    side = largest_side((500, 60_000))
    assert (side + side / 120) ** 2 / 2 <= 24_100_000
