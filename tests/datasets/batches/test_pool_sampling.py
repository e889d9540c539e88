from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doap import DoapError
from doap.datasets.batches.pool_sampling import PoolSampler, SequencePairSampler
from doap.datasets.sets.groups import GroupedSet


def set_of(groups_per_sequence: list[int], size: int = 4, names: tuple[str, ...] = ()) -> GroupedSet:
    sequence_of_group = np.repeat(np.arange(len(groups_per_sequence)), groups_per_sequence)
    groups = np.repeat(np.arange(len(sequence_of_group)), size)
    np.random.default_rng(0).shuffle(groups)
    return GroupedSet(groups, sequence_of_group[groups], names)


def groups_of(data: GroupedSet, indices: np.ndarray) -> np.ndarray:
    """Return the groups of a batch, in order; each must be whole and contiguous."""
    runs = data.groups[indices][np.flatnonzero(np.diff(data.groups[indices], prepend=-1))]
    assert len(np.unique(runs)) == len(runs)
    return np.asarray(runs)


def test_an_epoch_visits_every_pair_of_sequences_once() -> None:
    data = set_of([20] * 9, size=16)
    sampler = SequencePairSampler(data, 16 * 16, seed=0)
    pairs: Counter[tuple[int, ...]] = Counter()
    for indices in sampler.batches(0):
        assert len(indices) == 256
        sequences, counts = np.unique(data.sequences[indices], return_counts=True)
        np.testing.assert_array_equal(counts, [128, 128])
        assert len(groups_of(data, indices)) == 16
        pairs[tuple(sequences)] += 1
    assert len(pairs) == sampler.count(0) == 36
    assert set(pairs.values()) == {1}


def test_the_hpatches_epoch_has_2850_batches() -> None:
    assert SequencePairSampler(set_of([2] * 76), 16, seed=0).count(0) == 2850


def test_a_small_sequence_lowers_both_halves() -> None:
    data = set_of([3, 20, 20])
    for indices in SequencePairSampler(data, 64, seed=0).batches(0):
        _, counts = np.unique(data.sequences[indices], return_counts=True)
        assert counts.tolist() == ([12, 12] if 0 in data.sequences[indices] else [32, 32])


def test_groups_of_a_sequence_are_sampled_uniformly() -> None:
    data = set_of([40] * 5)
    sampler = SequencePairSampler(data, 64, seed=0)
    sampled = np.concatenate([groups_of(data, i) for epoch in range(50) for i in sampler.batches(epoch)])
    times = np.bincount(sampled, minlength=200)
    assert np.abs(times - 40).max() < 5 * np.sqrt(40)  # 200 samples of 8 from 40


@pytest.mark.parametrize("kind", ["pairs", "pools"])
def test_determinism_and_resumption(kind: str) -> None:
    data = set_of([7, 12, 9, 30, 5], size=5)

    def sampler(seed: int) -> SequencePairSampler | PoolSampler:
        return SequencePairSampler(data, 40, seed, 3) if kind == "pairs" else PoolSampler(data, 2, 3, seed, 3)

    one, same, other = (list(sampler(seed).batches(4)) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0], other[0])
    assert not np.array_equal(one[0], next(sampler(0).batches(5)))
    assert len(one) == sampler(0).count(4) >= 7
    for a, b in zip(one[3:], sampler(0).batches(4, start=3), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("per_sequence", "size", "batch_size", "message"),
    [
        ([20], 4, 64, "at least two sequences"),
        ([20, 20], 16, 16, "does not fit half a batch of 16"),
    ],
)
def test_impossible_pairs_are_refused(per_sequence: list[int], size: int, batch_size: int, message: str) -> None:
    with pytest.raises(DoapError, match=message):
        SequencePairSampler(set_of(per_sequence, size), batch_size, seed=0)


def test_a_sequence_without_matches_is_named() -> None:
    data = GroupedSet([0, 0, 1, 1, 2], [0, 0, 1, 1, 2], ["north", "east", "south"])
    with pytest.raises(DoapError, match="sequence south has no group with a match"):
        SequencePairSampler(data, 8, seed=0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 99))
def test_pools_give_all_they_can(sizes: list[int], pools_per_batch: int, groups_per_pool: int, seed: int) -> None:
    data = set_of(sizes, size=2)
    blocks = np.array(sizes) // groups_per_pool
    if (blocks > 0).sum() < pools_per_batch:
        with pytest.raises(DoapError, match="lower groups_per_sequence or batch_size"):
            PoolSampler(data, pools_per_batch, groups_per_pool, seed)
        return
    sampler = PoolSampler(data, pools_per_batch, groups_per_pool, seed)
    sampled = [groups_of(data, indices) for indices in sampler.batches(0)]
    assert len(sampled) == sampler.count(0)
    for groups in sampled:
        _, counts = np.unique(data.group_sequences[groups], return_counts=True)
        assert counts.tolist() == [groups_per_pool] * pools_per_batch
    every = np.concatenate(sampled)
    assert len(np.unique(every)) == len(every)
    # The largest number of batches: one more would need more blocks than there are, at one per batch and pool.
    assert np.minimum(blocks, len(sampled)).sum() >= pools_per_batch * len(sampled)
    assert np.minimum(blocks, len(sampled) + 1).sum() < pools_per_batch * (len(sampled) + 1)
    # The other blocks omitted are fewer than a batch.
    assert np.minimum(blocks, len(sampled)).sum() - pools_per_batch * len(sampled) < pools_per_batch


def test_even_pools_are_used_up_and_meet_many_others() -> None:
    data = set_of([32] * 12)
    sampler = PoolSampler(data, 3, 4, seed=0)
    sampled = [groups_of(data, indices) for indices in sampler.batches(0)]
    assert sorted(np.concatenate(sampled)) == list(range(12 * 32))
    met = {tuple(np.unique(data.group_sequences[groups])) for groups in sampled}
    assert len(met) > 25  # of 32 batches


def test_pools_can_be_any_partition() -> None:
    data = set_of([64])
    photos = np.arange(64) % 8 * 100
    for indices in PoolSampler(data, 2, 4, 0, pools=photos).batches(0):
        _, counts = np.unique(photos[groups_of(data, indices)], return_counts=True)
        assert counts.tolist() == [4, 4]
    with pytest.raises(DoapError, match=r"pools has shape \(3,\), but there are 64 groups"):
        PoolSampler(data, 2, 4, 0, pools=np.arange(3))
