import cv2
import numpy as np
import torch

from doap.images.extraction import Pyramid
from doap.images.jitter.views import LEVELS
from doap.images.warping import random_homography, relight, warp
from doap.types import Grey, Homography


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


def test_the_identity_warp_is_the_photo_within_a_pixel(photo: Grey) -> None:
    same = warp(Pyramid(photo), np.eye(3))[0].numpy()
    assert np.abs(same - photo).mean() < 3
    assert correlation(same, photo) > 0.995


def test_a_warp_is_opencvs(photo: Grey) -> None:
    """Enlarged, where neither filters; the border is replicated, and the size may differ."""
    homography: Homography = np.array([[1.3, -0.2, 40], [0.15, 1.4, -60], [2e-4, 1e-4, 1]])
    warped = warp(Pyramid(photo), homography, (300, 420))[0].numpy()
    expected = cv2.warpPerspective(photo, homography, (420, 300), borderMode=cv2.BORDER_REPLICATE)
    assert warped.shape == (300, 420)
    assert np.abs(warped - expected).mean() < 2
    assert correlation(warped, np.asarray(expected)) > 0.998


def test_a_shrinking_warp_does_not_alias() -> None:
    """Stripes of one pixel become uniform grey at a quarter of the size."""
    stripes = np.tile(np.array([[0, 255]], np.uint8), (256, 128))
    shrunk = warp(Pyramid(stripes), np.diag([0.25, 0.25, 1.0]), (64, 64))[0].numpy()
    assert np.abs(shrunk[4:-4, 4:-4] - 127.5).max() < 2


def test_homographies_keep_the_photo_in_front() -> None:
    random = np.random.default_rng(0)
    corners = np.array([[0, 0, 1], [639, 0, 1], [0, 479, 1], [639, 479, 1.0]])
    for _ in range(200):
        assert (corners @ random_homography((480, 640), random)[2] > 0.3).all()


def test_homographies_have_the_documented_range() -> None:
    """At the centre: a shift up to a tenth, zoom 0.6 to 1.25, rotation up to 45 degrees."""
    random = np.random.default_rng(0)
    centre = np.array([319.5, 239.5])
    for _ in range(200):
        homography = random_homography((480, 640), random)
        mapped = homography @ [*centre, 1]
        shift = mapped[:2] / mapped[2] - centre
        assert (np.abs(shift) <= (64, 48)).all()
        # The derivative at the centre, where tilt · position = 0, is the zoomed rotation minus shift · tiltᵀ.
        linear = homography[:2, :2] - np.outer(mapped[:2] / mapped[2], homography[2, :2])
        linear = linear / mapped[2] + np.outer(shift, homography[2, :2]) / mapped[2]
        assert 0.6 <= np.sqrt(np.linalg.det(linear)) <= 1.25
        assert abs(np.degrees(np.arctan2(linear[1, 0], linear[0, 0]))) <= 45


def test_relighting_is_random_and_keeps_the_content(photo: Grey) -> None:
    values = torch.from_numpy(photo)[None].float()
    one, same, other = (relight(values, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert one.shape == photo.shape
    assert one.dtype == np.uint8
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert min(correlation(one, photo), correlation(other, photo)) > 0.8


def test_strength_scales_a_homography_from_the_identity() -> None:
    """The same random numbers give the same direction: half the angle, and the square root of the zoom."""
    whole, half, none = (
        random_homography((480, 640), np.random.default_rng(5), strength) for strength in (1.0, 0.5, 0.0)
    )
    np.testing.assert_allclose(none, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(half[2, :2], whole[2, :2] / 2)
    np.testing.assert_array_equal(whole, random_homography((480, 640), np.random.default_rng(5)))
    centre = np.array([319.5, 239.5, 1])
    shifts = [(h @ centre)[:2] / (h @ centre)[2] - centre[:2] for h in (whole, half)]
    np.testing.assert_allclose(shifts[1], shifts[0] / 2)


def test_relighting_follows_the_level(photo: Grey) -> None:
    values = torch.from_numpy(photo)[None].float()
    changes = [
        np.mean(
            [correlation(relight(values, torch.Generator().manual_seed(s), LEVELS[level]), photo) for s in range(6)]
        )
        for level in ("easy", "tough")
    ]
    assert changes[0] > changes[1]
