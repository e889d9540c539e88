"""Thresholds transferred from ORB."""

import numpy as np
import pytest
import skimage

import doap
from doap.bridges.dbow import calibrate_thresholds
from doap.bridges.dbow.thresholds import Distances, count_distances
from doap.types import Grey

IDENTITY = np.eye(3)


def test_pairs_are_counted_by_distance_and_place() -> None:
    points = np.array([[0, 0], [100, 0]], np.float32)
    descriptors = np.zeros((2, 32), np.uint8)
    descriptors[1] = 255
    shifted = np.array([[1, 0, 5], [0, 1, 0], [0, 0, 1.0]])
    other = np.array([[5, 1], [105, 0], [105, 15]], np.float32)  # the last is neither the same point nor far enough
    near = np.zeros((3, 32), np.uint8)
    near[0, 0] = 3  # two bits
    near[1] = 255
    distances = count_distances([(points, descriptors), (other, near)], shifted)
    assert distances is not None
    assert {int(d): int(distances.correct[d]) for d in np.flatnonzero(distances.correct)} == {0: 1, 2: 1}
    # First with the second and third of the copy: 256 and 0 bits; second with the first: 254.
    assert {int(d): int(distances.wrong[d]) for d in np.flatnonzero(distances.wrong)} == {0: 1, 254: 1, 256: 1}
    empty = (np.zeros((0, 2), np.float32), np.zeros((0, 32), np.uint8))
    assert count_distances([empty, (other, near)], shifted) is None


def test_a_threshold_accepts_at_most_a_share_of_wrong_pairs() -> None:
    wrong = np.array([0, 1, 0, 9, 90])
    distances = Distances(wrong, np.array([5, 5, 0, 0, 0]))
    assert [distances.threshold(share) for share in (0, 0.005, 0.01, 0.0999, 0.1, 1)] == [0, 0, 2, 2, 3, 4]
    assert distances.wrong_share(3) == 0.1
    assert distances.correct_share(0) == 0.5


def test_orb_gets_its_own_thresholds(photo: Grey) -> None:
    """A descriptor as good as ORB gets ORB's thresholds, up to the images."""
    text = skimage.data.text()
    thresholds = calibrate_thresholds([photo, text], doap.load("doap-tiny-256b"), max_keypoints=500)
    rows = thresholds.table()
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("orb", "TH_LOW", 50),
        ("orb", "TH_HIGH", 100),
        ("model", "TH_LOW", thresholds.low),
        ("model", "TH_HIGH", thresholds.high),
    ]
    for model, orb in zip(thresholds.distances, thresholds.orb, strict=True):
        for known in (50, 100):
            share = orb.wrong_share(known)
            actual = model.threshold(share)
            assert model.wrong_share(actual) <= share < model.wrong_share(actual + 1)
    assert 30 < thresholds.low < 100 < thresholds.high < 125
    # The trained descriptor accepts more correct pairs at the same share of wrong ones.
    assert rows[2][4] > rows[0][4]


def test_unusable_input_is_refused(photo: Grey) -> None:
    with pytest.raises(doap.DoapError, match="need a binary model"):
        calibrate_thresholds([photo], doap.load("doap-tiny-128"))
    blank = np.full((64, 64), 128, np.uint8)
    with pytest.raises(doap.DoapError, match="too few keypoints"):
        calibrate_thresholds([blank], doap.load("doap-tiny-256b"))
