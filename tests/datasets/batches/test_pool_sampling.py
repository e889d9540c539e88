from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doap import DoapError
from doap.datasets.batches.pool_sampling import PoolBatches, SequencePairs
from doap.datasets.sets.groups import Grouping


def grouping_of(groups_per_sequence: list[int], size: int = 4, names: tuple[str, ...] = ()) -> Grouping:
    sequence_of_group = np.repeat(np.arange(len(groups_per_sequence)), groups_per_sequence)
    groups = np.repeat(np.arange(len(sequence_of_group)), size)
    np.random.default_rng(0).shuffle(groups)
    return Grouping(groups, sequence_of_group[groups], names)


def groups_of(grouping: Grouping, indices: np.ndarray) -> np.ndarray:
    """The groups of a batch, in order; each must be whole and in one piece."""
    runs = grouping.groups[indices][np.flatnonzero(np.diff(grouping.groups[indices], prepend=-1))]
    assert len(np.unique(runs)) == len(runs)
    return runs


def test_an_epoch_visits_every_pair_of_sequences_once() -> None:
    grouping = grouping_of([20] * 9, size=16)
    sampler = SequencePairs(grouping, 16 * 16, seed=0)
    pairs: Counter[tuple[int, ...]] = Counter()
    for indices in sampler.batches(0):
        assert len(indices) == 256
        sequences, counts = np.unique(grouping.sequences[indices], return_counts=True)
        np.testing.assert_array_equal(counts, [128, 128])
        assert len(groups_of(grouping, indices)) == 16
        pairs[tuple(sequences)] += 1
    assert len(pairs) == sampler.count(0) == 36
    assert set(pairs.values()) == {1}


def test_the_hpatches_epoch_has_2850_batches() -> None:
    assert SequencePairs(grouping_of([2] * 76), 16, seed=0).count(0) == 2850


def test_a_small_sequence_lowers_both_halves() -> None:
    grouping = grouping_of([3, 20, 20])
    for indices in SequencePairs(grouping, 64, seed=0).batches(0):
        _, counts = np.unique(grouping.sequences[indices], return_counts=True)
        assert counts.tolist() == ([12, 12] if 0 in grouping.sequences[indices] else [32, 32])


def test_groups_of_a_sequence_are_drawn_uniformly() -> None:
    grouping = grouping_of([40] * 5)
    sampler = SequencePairs(grouping, 64, seed=0)
    drawn = np.concatenate([groups_of(grouping, i) for epoch in range(50) for i in sampler.batches(epoch)])
    times = np.bincount(drawn, minlength=200)
    assert np.abs(times - 40).max() < 5 * np.sqrt(40)  # 200 draws of 8 from 40


@pytest.mark.parametrize("kind", ["pairs", "pools"])
def test_determinism_and_resumption(kind: str) -> None:
    grouping = grouping_of([7, 12, 9, 30, 5], size=5)

    def sampler(seed: int) -> SequencePairs | PoolBatches:
        return SequencePairs(grouping, 40, seed, 3) if kind == "pairs" else PoolBatches(grouping, 2, 3, seed, 3)

    one, same, other = (list(sampler(seed).batches(4)) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0], other[0])
    assert not np.array_equal(one[0], next(sampler(0).batches(5)))
    assert len(one) == sampler(0).count(4) >= 7
    for a, b in zip(one[3:], sampler(0).batches(4, start=3), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("per_sequence", "size", "list_size", "message"),
    [
        ([20], 4, 64, "two sequences or more"),
        ([20, 20], 16, 16, "does not fit half a list of 16"),
    ],
)
def test_impossible_pairs_are_refused(per_sequence: list[int], size: int, list_size: int, message: str) -> None:
    with pytest.raises(DoapError, match=message):
        SequencePairs(grouping_of(per_sequence, size), list_size, seed=0)


def test_a_sequence_without_matches_is_named() -> None:
    grouping = Grouping([0, 0, 1, 1, 2], [0, 0, 1, 1, 2], ["north", "east", "south"])
    with pytest.raises(DoapError, match="sequence south has no group with a match"):
        SequencePairs(grouping, 8, seed=0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 99))
def test_pools_give_all_they_can(sizes: list[int], per_batch: int, per_pool: int, seed: int) -> None:
    grouping = grouping_of(sizes, size=2)
    hands = np.array(sizes) // per_pool
    if (hands > 0).sum() < per_batch:
        with pytest.raises(DoapError, match="lower one of the two"):
            PoolBatches(grouping, per_batch, per_pool, seed)
        return
    sampler = PoolBatches(grouping, per_batch, per_pool, seed)
    drawn = [groups_of(grouping, indices) for indices in sampler.batches(0)]
    assert len(drawn) == sampler.count(0)
    for groups in drawn:
        _, counts = np.unique(grouping.group_sequences[groups], return_counts=True)
        assert counts.tolist() == [per_pool] * per_batch
    every = np.concatenate(drawn)
    assert len(np.unique(every)) == len(every)
    # Exactly the most batches: with one more there would be too few hands, at one a batch and pool.
    assert np.minimum(hands, len(drawn)).sum() >= per_batch * len(drawn)
    assert np.minimum(hands, len(drawn) + 1).sum() < per_batch * (len(drawn) + 1)
    # Hands left out beyond those are fewer than a batch.
    assert np.minimum(hands, len(drawn)).sum() - per_batch * len(drawn) < per_batch


def test_even_pools_are_used_up_and_meet_many_others() -> None:
    grouping = grouping_of([32] * 12)
    sampler = PoolBatches(grouping, 3, 4, seed=0)
    drawn = [groups_of(grouping, indices) for indices in sampler.batches(0)]
    assert sorted(np.concatenate(drawn)) == list(range(12 * 32))
    met = {tuple(np.unique(grouping.group_sequences[groups])) for groups in drawn}
    assert len(met) > 25  # of 32 batches


def test_pools_can_be_any_partition() -> None:
    grouping = grouping_of([64])
    photos = np.arange(64) % 8 * 100
    for indices in PoolBatches(grouping, 2, 4, 0, pools=photos).batches(0):
        _, counts = np.unique(photos[groups_of(grouping, indices)], return_counts=True)
        assert counts.tolist() == [4, 4]
    with pytest.raises(DoapError, match=r"pools has shape \(3,\), but there are 64 groups"):
        PoolBatches(grouping, 2, 4, 0, pools=np.arange(3))
