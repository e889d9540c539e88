"""The choice of scenes, views and pairs, compared with definitions in plain Python."""

from itertools import combinations

import numpy as np
import pytest

from doap.datasets.build.look_alike_patches import VIEWS_PER_POINT, find_point_views, partition_scenes, sample_pairs
from doap.datasets.sets.scenes import find_scenes
from support.sets.look_alike_frames import look_alike_frames


def test_views_are_one_frame_per_photo_with_the_patch_inside() -> None:
    data = look_alike_frames()
    scenes = [scene for scene in find_scenes(data) if scene.name in ("set/long0", "set/plane0")]
    views = find_point_views(data, scenes, np.random.default_rng(0))
    expected: dict[int, set[int]] = {}
    for item, (frame, photo, group) in enumerate(zip(data.frames, data.photos, data.groups, strict=True)):
        x, y = frame[:, 2]
        height, width = data.read_photo(int(photo)).shape
        half = data.extent * 3  # the frames of this set are upright, of scale 3
        is_inside = half <= x <= width - 1 - half and half <= y <= height - 1 - half
        if is_inside and any(data.sequences[item] in scene.sequences for scene in scenes):
            expected.setdefault(int(group), set()).add(item)
    expected = {group: items for group, items in expected.items() if len(items) > 1}
    parts = np.split(views.items, np.cumsum(views.sizes)[:-1])
    assert {int(data.groups[part[0]]): set(part.tolist()) for part in parts} == expected
    assert len(parts) == len(expected)
    counts = np.minimum(views.sizes, 2)
    np.testing.assert_array_equal(views.first(counts), np.concatenate([part[:2] for part in parts]))


def test_views_per_point_are_those_of_phototour() -> None:
    assert sum(VIEWS_PER_POINT.values()) == pytest.approx(1)
    assert sum(views * share for views, share in VIEWS_PER_POINT.items()) == pytest.approx(2.5, abs=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_parts_are_balanced_and_disjoint(seed: int) -> None:
    weights = {f"scene{n}": 100 + 37 * n % 900 for n in range(26)}
    parts = partition_scenes(weights, 3, seed)
    assert sorted(name for part in parts for name in part) == sorted(weights)
    totals = [sum(weights[name] for name in part) for part in parts]
    assert max(totals) < 1.1 * min(totals)
    assert partition_scenes(dict(reversed(weights.items())), 3, seed) == parts
    assert partition_scenes(weights, 3, seed + 1) != parts


def test_scenes_without_weight_are_divided_too() -> None:
    assert sorted(map(len, partition_scenes(dict.fromkeys("abcd", 0), 2, 0))) == [2, 2]


def test_pairs_are_all_matching_ones_and_as_many_others() -> None:
    points = np.repeat([3, 9, 4, 70], [2, 3, 1, 2])
    overlaps = np.array([[9, 3], [4, 70]])
    pairs = sample_pairs(points, overlaps, 100, np.random.default_rng(0))
    excluded = {frozenset(pair) for pair in overlaps.tolist()}
    expected = {pair for pair in combinations(range(8), 2) if points[pair[0]] == points[pair[1]]}
    allowed = {
        pair
        for pair in combinations(range(8), 2)
        if points[pair[0]] != points[pair[1]] and frozenset(points[list(pair)].tolist()) not in excluded
    }
    chosen = {tuple(pair) for pair in pairs.tolist()}
    assert len(chosen) == len(pairs) == 2 * len(expected) == 10
    assert expected < chosen <= expected | allowed


def test_pairs_are_limited_by_the_count_and_by_the_negatives() -> None:
    points = np.repeat(np.arange(50), 2)
    none = np.zeros((0, 2), np.int64)
    assert len(sample_pairs(points, none, 7, np.random.default_rng(0))) == 14
    assert len(sample_pairs(np.zeros(9, np.int64), none, 7, np.random.default_rng(0))) == 0
    assert len(sample_pairs(np.arange(9), none, 7, np.random.default_rng(0))) == 0
