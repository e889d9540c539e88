import numpy as np
import pytest

from doap.evaluation.image_pairs import correspondences
from doap.evaluation.image_pairs.correspondences import common_frames, find_correspondences
from doap.geometry.ellipses import overlap
from doap.geometry.homographies import invert_homography
from doap.images.frames import transform_frames
from doap.types import Frames, Homography
from support.random_frames import random_frames

HOMOGRAPHY = np.array([[0.9, -0.25, 40], [0.2, 1.05, -15], [3e-4, -2e-4, 1]])


def circle(x: float, y: float, radius: float, degrees: float = 0.0) -> Frames:
    c, s = radius * np.cos(np.radians(degrees)), radius * np.sin(np.radians(degrees))
    return np.array([[c, -s, x], [s, c, y]], np.float32)


def slow_correspondences(first: Frames, second: Frames, homography: Homography) -> list[tuple[int, int]]:
    """Find correspondences by the definition, pair by pair."""
    back = transform_frames(second, invert_homography(homography))
    listed = []
    for i, a in enumerate(first):
        for j, b in enumerate(back):
            radius = np.sqrt(abs(np.linalg.det(a[:, :2])))
            grow = np.array([30 / radius, 30 / radius, 1], np.float32)
            shared = overlap((a * grow)[None], (b * grow)[None])[0]
            if shared > 0.5 and np.hypot(*(a[:, 2] - b[:, 2])) < 4 * radius:
                u, _, v = np.linalg.svd(np.linalg.inv(a[:, :2]) @ b[:, :2])
                turn = np.arccos(np.clip(np.trace(u @ v) / 2, -1, 1))
                listed.append((-round(shared, 3), turn, i, j))
    pairs: list[tuple[int, int]] = []
    for _, _, i, j in sorted(listed):
        if i not in [p for p, _ in pairs] and j not in [q for _, q in pairs]:
            pairs.append((i, j))
    return sorted(pairs)


@pytest.mark.parametrize("block", [1 << 16, 50])
def test_correspondences_are_those_of_the_definition(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correspondences, "CHUNK_SIZE", block)
    monkeypatch.setattr(correspondences, "BLOCK_ENTRIES", block)
    random = np.random.default_rng(5)
    first = random_frames(60, 4)
    first = first[np.linalg.det(first[:, :, :2]) > 0]
    second = transform_frames(first, HOMOGRAPHY)[random.permutation(len(first))]
    second[:, :, 2] += random.normal(0, 2, (len(second), 2))
    pairs = find_correspondences(first, second, HOMOGRAPHY)
    assert 15 < len(pairs) < len(first)
    assert [tuple(pair) for pair in pairs.tolist()] == slow_correspondences(first, second, HOMOGRAPHY)


def test_a_point_with_several_orientations_keeps_each_apart() -> None:
    """The ellipses are the same; only the orientation tells which frame is which."""
    random = np.random.default_rng(0)
    first = np.stack([circle(30 * k + 20, 50, 4, a) for k in range(5) for a in (10, 100, 250)])
    turn = np.array([[0.8, -0.6, 20], [0.6, 0.8, 5], [0, 0, 1]])
    order = random.permutation(len(first))
    pairs = find_correspondences(first, transform_frames(first, turn)[order], turn)
    np.testing.assert_array_equal(order[pairs[:, 1]], np.arange(len(first)))
    np.testing.assert_array_equal(pairs[:, 0], np.arange(len(first)))


@pytest.mark.parametrize(
    ("radius", "apart", "same"), [(2, 7.9, True), (2, 8.1, False), (10, 15, True), (10, 17, False), (60, 17, False)]
)
def test_small_and_large_frames_are_treated_alike_but_none_beyond_four_radii(
    radius: float, apart: float, same: bool
) -> None:
    """Circles of radius 30 whose centres are 15.9 pixels apart have an overlap of one half."""
    pairs = find_correspondences(circle(50, 50, radius)[None], circle(50 + apart, 50, radius)[None], np.eye(3))
    assert len(pairs) == same


def test_the_radius_is_that_in_the_reference() -> None:
    """Zoomed by 5, what lies 10 pixels apart in the reference lies 50 apart in the other image."""
    zoom = np.diag([5, 5, 1.0])
    first, moved = circle(40, 40, 6)[None], circle(50, 40, 6)[None]
    assert len(find_correspondences(first, transform_frames(moved, zoom), zoom)) == 1
    assert len(find_correspondences(first, transform_frames(circle(58, 40, 6)[None], zoom), zoom)) == 0


def test_nothing_corresponds_to_nothing() -> None:
    none, some = np.zeros((0, 2, 3), np.float32), random_frames(6, 0)
    for first, second in ((none, some), (some, none), (none, none)):
        assert find_correspondences(first, second, np.eye(3)).shape == (0, 2)
    assert common_frames(none, np.eye(3), (10, 10)).shape == (0,)


def test_common_frames_end_at_the_border_and_before_the_horizon() -> None:
    shift = np.array([[1, 0, 10], [0, 1, 0], [0, 0, 1.0]])
    frames = np.stack([circle(x, y, 2) for x, y in ((-11, 5), (-10, 0), (0, 5), (89, 49), (90, 49), (50, 50))])
    np.testing.assert_array_equal(common_frames(frames, shift, (50, 100)), [1, 2, 3])
    tilt = np.array([[1, 0, 0], [0, 1, 0], [-0.01, 0, 1]])  # depth 0 at x = 100; x = 250 goes to -167, y = -40 to 27
    frames = np.stack([circle(x, -40, 2) for x in (10, 20, 30, 250)])
    mirrored = np.array([[-1, 0, 0], [0, -1, 0], [0, 0, 1]]) @ tilt
    assert 3 not in common_frames(frames, tilt, (1000, 1000))
    assert 3 not in common_frames(frames, mirrored, (1000, 1000))
    np.testing.assert_array_equal(
        common_frames(frames, -tilt, (10**4, 10**4)), common_frames(frames, tilt, (10**4, 10**4))
    )
