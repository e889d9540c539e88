from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doap import DoapError, PatchSet
from doap.datasets.batches.sampling import EveryGroupFirstSampler, GroupSampler, Sampler, shard_batch
from doap.datasets.sets.groups import GroupedSet


class JitteredSet(GroupedSet):
    is_jittered = True


def group_ids(sizes: list[int]) -> np.ndarray:
    groups = np.repeat(np.arange(len(sizes)) * 10, sizes)
    np.random.default_rng(0).shuffle(groups)
    return groups


def set_of(sizes: list[int]) -> PatchSet:
    groups = group_ids(sizes)
    return PatchSet([np.zeros((len(groups), 4, 4), np.uint8)], groups)


MIXED = [2, 3, 1, 5, 4] * 40

SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "groups": lambda seed: GroupSampler(set_of(MIXED), 64, seed),
    "groups, views": lambda seed: GroupSampler(set_of(MIXED), 64, seed, views_per_group=3),
    "groups, jittered": lambda seed: GroupSampler(JitteredSet(group_ids(MIXED)), 64, seed, views_per_group=4),
    "every group": lambda seed: EveryGroupFirstSampler(set_of(MIXED), 64, seed),
    "every group, views": lambda seed: EveryGroupFirstSampler(set_of(MIXED), 64, seed, views_per_group=2),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_seed_fixes_batches_and_epochs_differ(name: str) -> None:
    one, same, other = (list(SAMPLERS[name](seed).batches(0)) for seed in (0, 0, 1))
    next_epoch = list(SAMPLERS[name](0).batches(1))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0], other[0])
    assert not np.array_equal(one[0], next_epoch[0])


@pytest.mark.parametrize("name", SAMPLERS)
def test_resuming_in_the_middle_gives_the_same_batches(name: str) -> None:
    batches = SAMPLERS[name](3)
    whole = list(batches.batches(2))
    assert len(whole) == batches.count(2) > 4
    assert all(indices.dtype == np.int64 for indices in whole)
    for start in (1, 3, len(whole) - 1, len(whole)):
        for a, b in zip(whole[start:], batches.batches(2, start=start), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", SAMPLERS)
def test_groups_come_together_and_once_in_a_batch(name: str) -> None:
    groups = group_ids(MIXED)
    for indices in SAMPLERS[name](1).batches(0):
        runs = groups[indices][np.flatnonzero(np.diff(groups[indices], prepend=-1))]
        assert len(np.unique(runs)) == len(runs) > 10
        assert len(indices) <= 64


def test_every_match_is_in_the_batch() -> None:
    patches = set_of(MIXED)
    for sampler in (GroupSampler(patches, 64, seed=0), EveryGroupFirstSampler(patches, 64, seed=0)):
        for indices in sampler.batches(0):
            for group in np.unique(patches.groups[indices]):
                assert (patches.groups[indices] == group).sum() == (patches.groups == group).sum() >= 2


def test_no_group_occurs_twice_and_batches_are_full() -> None:
    patches = set_of(MIXED)
    batches = GroupSampler(patches, 64, seed=0)
    sampled = [indices for epoch in range(3) for indices in batches.batches(epoch)]
    assert all(64 - max(MIXED) < len(indices) <= 64 for indices in sampled)
    first = np.concatenate(list(batches.batches(0)))
    assert len(np.unique(first)) == len(first)
    # the remainder is less than a batch
    assert len(patches) - 40 - len(first) < 64


def test_a_batch_size_that_divides_uses_every_patch() -> None:
    sampled = list(GroupSampler(set_of([4] * 64), 64, seed=0).batches(0))
    assert [len(indices) for indices in sampled] == [64] * 4


def test_all_groups_are_sampled_eventually() -> None:
    patches = set_of(MIXED)
    batches = GroupSampler(patches, 64, seed=0)
    seen = np.unique(np.concatenate([i for epoch in range(20) for i in batches.batches(epoch)]))
    assert len(seen) == len(patches) - 40  # all but the groups of one


@pytest.mark.parametrize("views", [2, 3, 4])
def test_views_are_a_random_choice_of_each_group(views: int) -> None:
    patches = set_of(MIXED)
    batches = GroupSampler(patches, 64, seed=0, views_per_group=views)
    for indices in batches.batches(0):
        assert len(np.unique(indices)) == len(indices)
        groups, counts = np.unique(patches.groups[indices], return_counts=True)
        sizes = np.array([(patches.groups == g).sum() for g in groups])
        np.testing.assert_array_equal(counts, np.minimum(sizes, views))
    seen = np.concatenate([i for epoch in range(300) for i in batches.batches(epoch)])
    fives = patches.members[patches.members_start[3] : patches.members_start[4]]  # of the first group of 5
    times = np.bincount(seen, minlength=len(patches))[fives]
    expected = times.sum() / 5
    assert np.abs(times - expected).max() < 5 * np.sqrt(expected)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=3, max_size=12), st.integers(2, 7), st.integers(0, 99))
def test_jittered_items_repeat_evenly(sizes: list[int], views: int, seed: int) -> None:
    data = JitteredSet(group_ids(sizes))
    batch_size = views * 3
    for indices in GroupSampler(data, batch_size, seed, views).batches(0):
        assert len(indices) == batch_size
        for group in np.unique(data.groups[indices]):
            members = np.flatnonzero(data.groups == group)
            times = np.bincount(indices, minlength=len(data))[members]
            assert times.sum() == views
            assert times.max() - times.min() <= 1


def test_single_items_are_used_if_jittered_and_otherwise_skipped() -> None:
    sizes = [1] * 8 + [3] * 8
    repeated = np.concatenate(list(GroupSampler(JitteredSet(group_ids(sizes)), 16, 0, views_per_group=2).batches(0)))
    assert len(np.unique(JitteredSet(group_ids(sizes)).groups[repeated])) == 16
    for data, views in ((JitteredSet(group_ids(sizes)), None), (GroupedSet(group_ids(sizes)), 2)):
        sampled = np.concatenate(list(GroupSampler(data, 8, 0, views).batches(0)))
        assert (data.groups[sampled] >= 80).all()


def test_every_group_comes_first_once() -> None:
    patches = set_of([10] * 100)
    sampler = EveryGroupFirstSampler(patches, 64, seed=0)
    sampled = list(sampler.batches(0))
    assert len(sampled) == sampler.count(0) == 100
    assert [patches.groups[indices[0]] // 10 for indices in sampled] == list(range(100))
    assert all(len(indices) == 60 for indices in sampled)
    times = np.bincount(patches.groups[np.concatenate(sampled)] // 10) // 10
    assert times.min() >= 1
    assert abs(times.std() - np.sqrt(5 * 0.95)) < 1  # the others are sampled uniformly


def test_every_group_first_can_fill_a_list_with_the_whole_set() -> None:
    patches = set_of([2, 3, 4])
    for indices in EveryGroupFirstSampler(patches, 9, seed=0).batches(0):
        assert sorted(indices) == list(range(9))


@pytest.mark.parametrize("sampler", [GroupSampler, EveryGroupFirstSampler])
@pytest.mark.parametrize(
    ("sizes", "batch_size", "views", "message"),
    [
        ([1, 1, 1], 2, None, "nothing to match"),
        ([2, 9], 8, None, "a group of 9 patches does not fit a batch of 8"),
        ([2, 2], 8, None, "fewer than a batch of 8"),
        ([9, 9], 8, 3, "the set has 6 patches with a match, fewer than a batch of 8"),
        ([2, 2], 4, 1, "at least 2 views"),
        ([9, 1], 9, None, "only one group of this set has two patches"),
        ([5, 6, 8], 8, None, "a batch of 8 patches holds one group of 5 or more, so no query has a negative"),
    ],
)
def test_impossible_lists_are_refused(
    sampler: type[GroupSampler], sizes: list[int], batch_size: int, views: int | None, message: str
) -> None:
    with pytest.raises(DoapError, match=message):
        sampler(set_of(sizes), batch_size, 0, views)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(1, 8))
def test_ranks_get_whole_groups_evenly(sizes: list[int], ranks: int) -> None:
    groups = np.repeat(np.random.default_rng(0).permutation(len(sizes)), sizes)
    indices = np.random.default_rng(1).permutation(len(groups))
    if len(sizes) < ranks:
        with pytest.raises(DoapError, match=f"cannot be split across {ranks} ranks"):
            shard_batch(indices, groups, 0, ranks)
        return
    parts = [shard_batch(indices, groups, rank, ranks) for rank in range(ranks)]
    np.testing.assert_array_equal(np.concatenate(parts), indices)
    group_of = dict(zip(indices, groups, strict=True))
    shared = [{group_of[i] for i in part} for part in parts]
    assert all(shared)
    assert sum(map(len, shared)) == len(sizes)
    largest = max(sizes)
    assert max(map(len, parts)) <= len(groups) / ranks + largest + 1


@pytest.mark.parametrize(("count", "ranks"), [(64, 6), (7, 7), (256, 8)])
def test_equal_groups_are_split_evenly(count: int, ranks: int) -> None:
    groups = np.repeat(np.arange(count), 16)
    sizes = [len(shard_batch(np.arange(len(groups)), groups, rank, ranks)) // 16 for rank in range(ranks)]
    assert max(sizes) - min(sizes) <= 1
