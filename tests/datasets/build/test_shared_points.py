import numpy as np
import pytest

from doap.datasets.build.shared_points import determine_geometry, sample_overlapping_pairs, shared_points
from support.sets.small_frame_set import (
    PLANE,
    SHAPE,
    FrameSetMaker,
    add_plane,
    add_scene,
    crop_photo,
    project,
    sample_points,
    sample_points_3d,
    small_frame_set,
    transform,
)

SHAPES = SHAPE, SHAPE


def noisy(points: np.ndarray, pixels: float) -> np.ndarray:
    return points + np.random.default_rng(7).normal(0, pixels, points.shape)


def plane(count: int = 60) -> np.ndarray:
    points = sample_points(count, 3)
    return np.hstack([points, transform(points, PLANE)])


def scene(count: int = 60) -> np.ndarray:
    points = sample_points_3d(count, 3)
    return np.hstack([project(points, 0), project(points, 1)])


def test_shared_points_are_those_of_the_same_groups() -> None:
    data = small_frame_set()
    random = np.random.default_rng(0)
    for first, second in random.integers(0, len(data.encoded_photos), (15, 2)).tolist():
        slow = {}
        for i in range(len(data)):
            if data.photos[i] == first:
                for j in np.flatnonzero((data.photos == second) & (data.groups == data.groups[i])):
                    slow[data.groups[i]] = [*data.frames[i, :, 2], *data.frames[j, :, 2]]
        expected = np.array([slow[group] for group in sorted(slow)]).reshape(-1, 4)
        np.testing.assert_array_equal(shared_points(data, first, second), expected)


def test_points_of_a_plane_determine_its_homography() -> None:
    ground_truth = determine_geometry(noisy(plane(), 0.2), SHAPES)
    assert ground_truth is not None
    assert ground_truth.geometry == "homography"
    corners = np.array([[0, 0], [SHAPE[1], 0], [0, SHAPE[0]], SHAPE[::-1]])
    assert np.abs(transform(corners, ground_truth.matrix) - transform(corners, PLANE)).max() < 1.0


def test_points_in_space_determine_their_epipolar_lines() -> None:
    ground_truth = determine_geometry(noisy(scene(), 0.2), SHAPES)
    assert ground_truth is not None
    assert ground_truth.geometry == "fundamental"
    others = sample_points_3d(200, 11)
    assert np.median(ground_truth.errors(project(others, 0), project(others, 1))) < 0.5


@pytest.mark.parametrize(
    "points",
    [
        plane() * [0.3, 0.3, 0.3, 0.3],  # spanning a tenth of the image
        plane() * [1, 1, 0.3, 0.3],  # likewise, in the second image only
        np.hstack([plane()[:, :1], plane()[:, :1], plane()[:, 2:3], plane()[:, 2:3]]),  # on a line
        noisy(plane(), 2.0),  # neither a plane nor depth
        noisy(scene(), 3.0),  # depth, but no accurate line
        np.hstack([sample_points(60, 0), sample_points(60, 1)]),  # unrelated points
        np.zeros((0, 4)),
    ],
)
def test_ambiguous_points_determine_nothing(points: np.ndarray) -> None:
    assert determine_geometry(points, SHAPES) is None


def test_pairs_come_from_the_half_that_shares_less() -> None:
    maker = FrameSetMaker()
    points = sample_points(200, 0)
    centres = [np.where(np.arange(200)[:, None] < count, points, np.nan) for count in (200, 180, 150, 120, 45, 30)]
    centres = [points + np.array([3, 1]) * photo for photo, points in enumerate(centres)]
    centres[3][:120:2] = np.nan  # leaves 60 groups, all in the photos before
    centres[4][10:40] = np.nan  # leaves 15 groups: too few
    maker.add("wall", "tracks", {f"wall/{photo}.png": crop_photo(0) for photo in range(6)}, centres)
    data = maker.frame_set()
    counts = {(a, b): len(shared_points(data, a, b)) for a in range(6) for b in range(a + 1, 6)}
    enough = {pair for pair, count in counts.items() if count >= 40}
    assert enough == {(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)}
    sizes = [len(np.unique(data.groups[data.photos == photo])) for photo in range(6)]
    order = sorted(enough, key=lambda pair: (counts[pair] / min(sizes[pair[0]], sizes[pair[1]]), pair))
    sampled = [sample_overlapping_pairs(data, (0,), 2, np.random.default_rng(seed)) for seed in range(30)]
    assert {(a, b) for pairs in sampled for a, b, _ in pairs} == set(order[:3])
    assert all(len(pairs) == 2 for pairs in sampled)
    assert len(sample_overlapping_pairs(data, (0,), 9, np.random.default_rng(0))) == 3


def test_a_scene_with_depth_has_no_flat_pair() -> None:
    maker = FrameSetMaker()
    add_plane(maker, "flat", 0)
    points = sample_points_3d(120, 0)
    flat = np.column_stack([points[:60, :2], np.full(60, 4.0)])  # photos 0 and 1 share only these
    first = np.vstack([project(flat, 0), np.full((60, 2), np.nan)])
    rest = np.vstack([flat, points[60:]])
    maker.add(
        "deep", "tracks", {f"deep/{photo}.png": crop_photo(photo) for photo in range(3)},
        [first, project(rest, 1), project(rest, 3)],
    )  # fmt: skip
    data = maker.frame_set()
    assert {t.geometry for *_, t in sample_overlapping_pairs(data, (0,), 9, np.random.default_rng(0))} == {"homography"}
    ground_truth = determine_geometry(shared_points(data, 3, 4), SHAPES)
    assert ground_truth is not None
    assert ground_truth.geometry == "homography"
    ((a, b, ground_truth),) = sample_overlapping_pairs(data, (1,), 9, np.random.default_rng(0))
    assert (a, b, ground_truth.geometry) == (4, 5, "fundamental")


def test_photos_of_all_sequences_of_a_scene_are_taken() -> None:
    maker = FrameSetMaker()
    add_scene(maker, "a", 0)
    add_scene(maker, "a", 5)
    pairs = sample_overlapping_pairs(maker.frame_set(), (0, 1), 9, np.random.default_rng(0))
    assert pairs
    assert all((a < 3) == (b < 3) for a, b, _ in pairs)
