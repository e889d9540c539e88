"""Weights of sources in a batch."""

import numpy as np
import pytest

from doap import DoapError
from doap.datasets.batches.source_sampling import SourceSampler
from doap.datasets.sets.frame_set import SOURCES, FrameSet, encode

# Sequence, source and number of groups of each pool; sequence 3 has pools of two sources.
POOLS = [
    (0, "views", 30), (1, "views", 9), (2, "views", 12), (3, "views", 25), (4, "views", 40),
    (5, "static", 16), (3, "static", 11), (6, "static", 2), (7, "tracks", 20), (8, "tracks", 14),
]  # fmt: skip


@pytest.fixture(scope="module")
def frames() -> FrameSet:
    """Return a set with groups of 1 (views), 3 (static) and 5 (tracks) frames, shuffled."""
    of_group = np.array([(s, SOURCES.index(source)) for s, source, groups in POOLS for _ in range(groups)])
    groups = np.repeat(np.arange(len(of_group)), 1 + 2 * of_group[:, 1])
    groups = np.random.default_rng(0).permutation(groups)
    geometry = np.tile(np.array([[4, 0, 20], [0, 4, 20]], np.float32), (len(groups), 1, 1))
    image = encode(np.zeros((40, 40), np.uint8))
    photos = np.zeros(len(groups), np.int64)
    sequences, sources = of_group[groups].T
    return FrameSet([image], ["photo"], photos, geometry, groups, sequences.copy(), sources.copy())


def sampled_groups(frames: FrameSet, sampler: SourceSampler, epochs: int = 1) -> list[np.ndarray]:
    """Return the groups of each batch; each must have three contiguous items."""
    batches = []
    for indices in (batch for epoch in range(epochs) for batch in sampler.batches(epoch)):
        groups = frames.groups[indices].reshape(-1, 3)
        assert (groups == groups[:, :1]).all()
        assert len(np.unique(groups[:, 0])) == len(groups)
        batches.append(groups[:, 0])
    return batches


def pools_of(frames: FrameSet, groups: np.ndarray) -> list[tuple[int, int]]:
    """Return the sequence and source of each pool of a batch, of five groups each."""
    first = np.array([np.flatnonzero(frames.groups == group)[0] for group in groups])
    pools = np.stack((frames.sequences[first], frames.sources[first]), 1).reshape(-1, 5, 2)
    assert (pools == pools[:, :1]).all()
    return [(int(sequence), int(source)) for sequence, source in pools[:, 0]]


def test_batches_have_the_weights_and_no_pool_twice(frames: FrameSet) -> None:
    sampler = SourceSampler(frames, 4, 5, 0, 3, {"views": 2, "static": 1.2, "tracks": 0.8})
    assert sampler.count(0) == 179 // 20
    counts = []
    for groups in sampled_groups(frames, sampler, 60):
        pools = pools_of(frames, groups)
        assert len(set(pools)) == 4
        assert (6, 1) not in pools  # two groups are no pool of five
        counts.append(np.bincount([source for _, source in pools], minlength=3))
    assert set(map(tuple, counts)) == {(2, 1, 1), (2, 2, 0)}  # rounded up or down
    assert np.mean(counts, 0) == pytest.approx([2, 1.2, 0.8], abs=0.08)  # 480 batches, deviation 0.018


def test_larger_pools_come_more_often_and_their_groups_alike(frames: FrameSet) -> None:
    sampler = SourceSampler(frames, 1, 5, 0, 3, {"views": 1})
    batches = sampled_groups(frames, sampler, 60)  # of 35
    sequences = [pools_of(frames, groups)[0][0] for groups in batches]
    expected = len(batches) * np.array([30, 9, 12, 25, 40]) / 116
    assert (np.abs(np.bincount(sequences, minlength=5) - expected) < 5 * np.sqrt(expected)).all()
    times = np.bincount(np.concatenate(batches), minlength=179)
    assert times[116:].sum() == 0
    assert (np.abs(times[:116] - len(batches) * 5 / 116) < 5 * np.sqrt(len(batches) * 5 / 116)).all()


def test_batches_are_the_same_from_any_start_and_differ_between_epochs(frames: FrameSet) -> None:
    sampler = SourceSampler(frames, 3, 5, 4, 3, {"views": 1, "tracks": 1})
    whole = list(sampler.batches(1))
    np.testing.assert_array_equal(np.stack(list(sampler.batches(1, 4))), np.stack(whole[4:]))
    assert not np.array_equal(whole[0], next(sampler.batches(2)))
    assert not np.array_equal(whole[0], next(SourceSampler(frames, 3, 5, 5, 3, {"views": 1, "tracks": 1}).batches(1)))


def test_a_source_with_few_pools_gives_all_and_the_others_fill_up(frames: FrameSet) -> None:
    sampler = SourceSampler(frames, 6, 5, 0, 3, {"views": 2, "static": 1, "tracks": 9})
    counts = [
        np.bincount([source for _, source in pools_of(frames, groups)], minlength=3)
        for groups in sampled_groups(frames, sampler, 60)
    ]
    assert set(map(tuple, counts)) == {(3, 1, 2), (2, 2, 2)}
    assert np.mean(counts, 0) == pytest.approx([8 / 3, 4 / 3, 2], abs=0.1)


def test_a_source_that_the_set_lacks_is_left_out(frames: FrameSet) -> None:
    part = frames.select(frames.sources == SOURCES.index("views"))
    (views,) = {
        tuple(source for _, source in pools_of(part, groups))
        for groups in sampled_groups(part, SourceSampler(part, 4, 5, 0, 3, {"views": 1, "static": 1, "tracks": 1}))
    }
    assert views == (0, 0, 0, 0)


def test_too_few_pools(frames: FrameSet) -> None:
    with pytest.raises(DoapError, match=r"4 sequences have 5 groups of static or tracks, but a batch takes 5"):
        SourceSampler(frames, 5, 5, 0, 3, {"static": 1.9, "tracks": 2.1})
