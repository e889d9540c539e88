import numpy as np
import pytest

from doap.datasets.build.shared_points import overlapping_pairs, determine_geometry, shared_points
from support.small_frame_set import (
    PLANE,
    SHAPE,
    Maker,
    add_plane,
    add_scene,
    anywhere,
    deep_points,
    look,
    project,
    send,
    small_frame_set,
)

SHAPES = SHAPE, SHAPE


def noisy(points: np.ndarray, pixels: float) -> np.ndarray:
    return points + np.random.default_rng(7).normal(0, pixels, points.shape)


def plane(count: int = 60) -> np.ndarray:
    points = anywhere(count, 3)
    return np.hstack([points, send(points, PLANE)])


def scene(count: int = 60) -> np.ndarray:
    points = deep_points(count, 3)
    return np.hstack([project(points, 0), project(points, 1)])


def test_shared_points_are_those_of_the_same_groups() -> None:
    data = small_frame_set()
    random = np.random.default_rng(0)
    for first, second in random.integers(0, len(data.pictures), (15, 2)).tolist():
        slow = {}
        for i in range(len(data)):
            if data.photos[i] == first:
                for j in np.flatnonzero((data.photos == second) & (data.groups == data.groups[i])):
                    slow[data.groups[i]] = [*data.frames[i, :, 2], *data.frames[j, :, 2]]
        expected = np.array([slow[group] for group in sorted(slow)]).reshape(-1, 4)
        np.testing.assert_array_equal(shared_points(data, first, second), expected)


def test_points_of_a_plane_prove_its_homography() -> None:
    truth = determine_geometry(noisy(plane(), 0.2), SHAPES)
    assert truth is not None
    assert truth.geometry == "homography"
    corners = np.array([[0, 0], [SHAPE[1], 0], [0, SHAPE[0]], SHAPE[::-1]])
    assert np.abs(send(corners, truth.matrix) - send(corners, PLANE)).max() < 1.0


def test_points_in_space_prove_their_epipolar_lines() -> None:
    truth = determine_geometry(noisy(scene(), 0.2), SHAPES)
    assert truth is not None
    assert truth.geometry == "fundamental"
    others = deep_points(200, 11)
    assert np.median(truth.errors(project(others, 0), project(others, 1))) < 0.5


@pytest.mark.parametrize(
    "points",
    [
        plane() * [0.3, 0.3, 0.3, 0.3],  # they span a tenth of the picture
        plane() * [1, 1, 0.3, 0.3],  # likewise, in the second picture alone
        np.hstack([plane()[:, :1], plane()[:, :1], plane()[:, 2:3], plane()[:, 2:3]]),  # on a line
        noisy(plane(), 2.0),  # a plane no longer, and no depth
        noisy(scene(), 3.0),  # depth, and no sure line
        np.hstack([anywhere(60, 0), anywhere(60, 1)]),  # nothing at all
        np.zeros((0, 4)),
    ],
)
def test_what_is_not_proven_is_left_open(points: np.ndarray) -> None:
    assert determine_geometry(points, SHAPES) is None


def test_pairs_come_from_the_half_that_shares_less() -> None:
    maker = Maker()
    points = anywhere(200, 0)
    seen = [np.where(np.arange(200)[:, None] < count, points, np.nan) for count in (200, 180, 150, 120, 45, 30)]
    seen = [places + np.array([3, 1]) * photo for photo, places in enumerate(seen)]
    seen[3][:120:2] = np.nan  # 60 groups are left, all of them in the photos before
    seen[4][10:40] = np.nan  # 15 groups are left: too few
    maker.add("wall", "tracks", {f"wall/{photo}.png": look(0) for photo in range(6)}, seen)
    data = maker.made()
    counts = {(a, b): len(shared_points(data, a, b)) for a in range(6) for b in range(a + 1, 6)}
    enough = {pair for pair, count in counts.items() if count >= 40}
    assert enough == {(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)}
    sizes = [len(np.unique(data.groups[data.photos == photo])) for photo in range(6)]
    order = sorted(enough, key=lambda pair: (counts[pair] / min(sizes[pair[0]], sizes[pair[1]]), pair))
    drawn = [overlapping_pairs(data, (0,), 2, np.random.default_rng(seed)) for seed in range(30)]
    assert {(a, b) for pairs in drawn for a, b, _ in pairs} == set(order[:3])
    assert all(len(pairs) == 2 for pairs in drawn)
    assert len(overlapping_pairs(data, (0,), 9, np.random.default_rng(0))) == 3


def test_a_scene_with_depth_has_no_flat_pair() -> None:
    maker = Maker()
    add_plane(maker, "flat", 0)
    points = deep_points(120, 0)
    flat = np.column_stack([points[:60, :2], np.full(60, 4.0)])  # photos 0 and 1 share these alone
    first = np.vstack([project(flat, 0), np.full((60, 2), np.nan)])
    rest = np.vstack([flat, points[60:]])
    maker.add(
        "deep", "tracks", {f"deep/{photo}.png": look(photo) for photo in range(3)},
        [first, project(rest, 1), project(rest, 3)],
    )  # fmt: skip
    data = maker.made()
    assert {t.geometry for *_, t in overlapping_pairs(data, (0,), 9, np.random.default_rng(0))} == {"homography"}
    truth = determine_geometry(shared_points(data, 3, 4), SHAPES)
    assert truth is not None
    assert truth.geometry == "homography"
    ((a, b, truth),) = overlapping_pairs(data, (1,), 9, np.random.default_rng(0))
    assert (a, b, truth.geometry) == (4, 5, "fundamental")


def test_photos_of_all_sequences_of_a_scene_are_taken() -> None:
    maker = Maker()
    add_scene(maker, "a", 0)
    add_scene(maker, "a", 5)
    found = overlapping_pairs(maker.made(), (0, 1), 9, np.random.default_rng(0))
    assert found
    assert all((a < 3) == (b < 3) for a, b, _ in found)
