import numpy as np
import pytest

from doap.images.reconstruction.overlaps import find_intersecting_balls, find_overlapping_groups


@pytest.mark.parametrize("dimensions", [2, 3])
def test_intersecting_balls_are_those_of_brute_force(dimensions: int) -> None:
    random = np.random.default_rng(0)
    positions, radii = random.random((150, dimensions)), random.exponential(0.05, 150)
    expected = [
        (i, j)
        for i in range(150)
        for j in range(i + 1, 150)
        if np.linalg.norm(positions[i] - positions[j]) < radii[i] + radii[j]
    ]
    assert len(expected) > 50
    assert find_intersecting_balls(positions, radii).tolist() == [list(pair) for pair in expected]


def test_groups_overlap_only_in_the_same_photo_and_not_with_themselves() -> None:
    frames = np.zeros((5, 2, 3), np.float32)
    frames[:, [0, 1], [0, 1]] = 2
    frames[:, 0, 2] = [0, 3, 3.5, 10, 0]
    photos = np.array([0, 0, 1, 0, 0])
    groups = np.array([7, 4, 7, 5, 7])
    # Frames 0 and 1 overlap (distance 3 < 4); frames 0 and 4 are one group; frame 2 is alone in its photo.
    assert find_overlapping_groups(photos, frames, groups).tolist() == [[4, 7]]


def test_the_longer_axis_is_the_radius_of_an_ellipse() -> None:
    frames = np.array([[[5, 0, 0], [0, 0.2, 0]], [[1, 0, 5.5], [0, 1, 0]]], np.float32)
    assert find_overlapping_groups(np.zeros(2, int), frames, np.arange(2)).tolist() == [[0, 1]]


def test_a_single_frame_has_no_overlaps() -> None:
    empty = find_overlapping_groups(np.zeros(1, int), np.eye(2, 3, dtype=np.float32)[None], np.zeros(1, int))
    assert empty.shape == (0, 2)
