import numpy as np
import pytest
from benchmarks.repeatability import find_overlaps
from scipy.optimize import linear_sum_assignment

from doap.images.frames import transform_frames
from doap.types import Frames
from support.counted_overlap import counted_overlap

SHAPES = (200, 240), (220, 200)
HOMOGRAPHY = np.array([[0.9, -0.2, 20], [0.25, 0.8, 10], [2e-4, -1e-4, 1]])


def random_frames(random: np.random.Generator, count: int) -> Frames:
    shapes = np.eye(2) + random.normal(0, 0.2, (count, 2, 2))
    shapes *= random.uniform(2, 12, (count, 1, 1))
    return np.concatenate([shapes, random.uniform(0, 199, (count, 2, 1))], 2).astype(np.float32)


def test_every_pair_that_overlaps_by_half_is_found() -> None:
    """Compared with all pairs, counted on a grid."""
    random = np.random.default_rng(0)
    first = random_frames(random, 60)
    mapped = transform_frames(first, HOMOGRAPHY)
    second = np.concatenate([mapped[::2] + random.normal(0, 0.5, (30, 2, 3)), random_frames(random, 30)])
    overlaps = find_overlaps((first, second.astype(np.float32)), SHAPES, HOMOGRAPHY, enlarge=3)
    mapped = transform_frames(overlaps.first, HOMOGRAPHY)
    i, j = (n.ravel() for n in np.indices((len(mapped), len(overlaps.second))))
    grow = np.array([3, 3, 1], np.float32)
    counted = counted_overlap(mapped[i] * grow, overlaps.second[j] * grow, 50)
    computed = np.zeros((len(mapped), len(overlaps.second)))
    computed[tuple(overlaps.pairs.T)] = overlaps.overlap
    half = counted > 0.5
    assert half.sum() > 15
    np.testing.assert_allclose(computed[i, j][half], counted[half], atol=0.04)
    assert (computed[i, j][counted < 0.45] < 0.5).all()


def test_frames_outside_the_other_image_do_not_count() -> None:
    frames = np.array([[[4, 0, 50], [0, 4, 50]], [[4, 0, 190], [0, 4, 50]]], np.float32)
    move = np.array([[1, 0, 40], [0, 1, 0], [0, 0, 1.0]])
    overlaps = find_overlaps((frames, frames[:1]), ((200, 200), (200, 200)), move)
    assert len(overlaps.first) == 1
    assert len(overlaps.second) == 1
    assert overlaps.repeatability(0.5) == 0


@pytest.mark.parametrize("error", [0.2, 0.5])
def test_repeatability_is_a_matching_of_frames_to_frames(error: float) -> None:
    """A greedy matching: at most the largest one-to-one matching, and at least half of it."""
    random = np.random.default_rng(1)
    first = random_frames(random, 40)
    second = np.concatenate([first, first[:20]]) + random.normal(0, 0.3, (60, 2, 3)).astype(np.float32)
    overlaps = find_overlaps((first, second.astype(np.float32)), (SHAPES[0], SHAPES[0]), np.eye(3), enlarge=2)
    possible = np.zeros((len(overlaps.first), len(overlaps.second)))
    possible[tuple(overlaps.pairs[overlaps.overlap > 1 - error].T)] = 1
    best = possible[linear_sum_assignment(possible, maximize=True)].sum() / overlaps.min_frames
    assert best / 2 <= overlaps.repeatability(error) <= best
    assert overlaps.repeatability(0.0) == 0


def test_equal_frames_all_repeat_and_their_matches_are_correct() -> None:
    frames = random_frames(np.random.default_rng(2), 30)
    overlaps = find_overlaps((frames, frames), (SHAPES[0], SHAPES[0]), np.eye(3))
    assert overlaps.repeatability(0.1) == 1
    same = np.stack([np.arange(len(overlaps.first))] * 2, 1)
    assert overlaps.are_correct(same, 0.1).all()
    far = overlaps.first[:, 0, 2].argmin(), overlaps.first[:, 0, 2].argmax()
    assert not overlaps.are_correct(np.array([far]), 0.5).any()


def test_no_frames_repeat_where_there_are_none() -> None:
    nothing = np.zeros((0, 2, 3), np.float32)
    overlaps = find_overlaps((nothing, random_frames(np.random.default_rng(3), 5)), SHAPES, np.eye(3))
    assert overlaps.repeatability(0.5) == 0
    assert overlaps.are_correct(np.zeros((0, 2), np.int64), 0.5).shape == (0,)
