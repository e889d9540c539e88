import numpy as np
import pytest
from benchmarks.repeatability import find_overlaps
from scipy.optimize import linear_sum_assignment

from doap.images.frames import transform_frames
from support.counted_overlap import counted_overlap

SHAPES = (200, 240), (220, 200)
HOMOGRAPHY = np.array([[0.9, -0.2, 20], [0.25, 0.8, 10], [2e-4, -1e-4, 1]])


def random_frames(random: np.random.Generator, count: int) -> np.ndarray:
    shapes = np.eye(2) + random.normal(0, 0.2, (count, 2, 2))
    shapes *= random.uniform(2, 12, (count, 1, 1))
    return np.concatenate([shapes, random.uniform(0, 199, (count, 2, 1))], 2).astype(np.float32)


def test_every_pair_that_overlaps_by_half_is_found() -> None:
    """Against all pairs, each counted on a finer grid."""
    random = np.random.default_rng(0)
    first = random_frames(random, 60)
    sent = transform_frames(first, HOMOGRAPHY)
    second = np.concatenate([sent[::2] + random.normal(0, 0.5, (30, 2, 3)), random_frames(random, 30)])
    found = find_overlaps((first, second.astype(np.float32)), SHAPES, HOMOGRAPHY, enlarge=3)
    sent = transform_frames(found.first, HOMOGRAPHY)
    i, j = (n.ravel() for n in np.indices((len(sent), len(found.second))))
    grow = np.float32([3, 3, 1])
    shared = counted_overlap(sent[i] * grow, found.second[j] * grow, 80)
    given = np.zeros((len(sent), len(found.second)))
    given[tuple(found.pairs.T)] = found.overlap
    half = shared > 0.5
    assert half.sum() > 15
    np.testing.assert_allclose(given[i, j][half], shared[half], atol=0.04)
    assert (given[i, j][shared < 0.45] < 0.5).all()


def test_frames_that_leave_the_other_picture_do_not_count() -> None:
    inside, outside = [[4, 0, 50], [0, 4, 50]], [[4, 0, 190], [0, 4, 50]]
    move = np.array([[1, 0, 40], [0, 1, 0], [0, 0, 1.0]])
    found = find_overlaps((np.float32([inside, outside]), np.float32([inside])), ((200, 200), (200, 200)), move)
    assert len(found.first) == 1
    assert len(found.second) == 1
    assert found.repeatability(0.5) == 0


@pytest.mark.parametrize("error", [0.2, 0.5])
def test_repeatability_is_a_matching_of_frames_to_frames(error: float) -> None:
    """No more than the largest one-to-one matching, and at least half of it, as greedy ones are."""
    random = np.random.default_rng(1)
    first = random_frames(random, 40)
    second = np.concatenate([first, first[:20]]) + random.normal(0, 0.3, (60, 2, 3)).astype(np.float32)
    found = find_overlaps((first, second.astype(np.float32)), (SHAPES[0], SHAPES[0]), np.eye(3), enlarge=2)
    possible = np.zeros((len(found.first), len(found.second)))
    possible[tuple(found.pairs[found.overlap > 1 - error].T)] = 1
    best = possible[linear_sum_assignment(possible, maximize=True)].sum() / found.fewer
    assert best / 2 <= found.repeatability(error) <= best
    assert found.repeatability(0.0) == 0


def test_equal_frames_all_repeat_and_matches_are_told_true_from_false() -> None:
    frames = random_frames(np.random.default_rng(2), 30)
    found = find_overlaps((frames, frames), (SHAPES[0], SHAPES[0]), np.eye(3))
    assert found.repeatability(0.1) == 1
    same = np.stack([np.arange(len(found.first))] * 2, 1)
    assert found.are_true(same, 0.1).all()
    far = found.first[:, 0, 2].argmin(), found.first[:, 0, 2].argmax()
    assert not found.are_true(np.array([far]), 0.5).any()


def test_no_frames_repeat_where_there_are_none() -> None:
    nothing = np.zeros((0, 2, 3), np.float32)
    found = find_overlaps((nothing, random_frames(np.random.default_rng(3), 5)), SHAPES, np.eye(3))
    assert found.repeatability(0.5) == 0
    assert found.are_true(np.zeros((0, 2), np.int64), 0.5).shape == (0,)
