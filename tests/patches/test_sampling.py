import numpy as np
import pytest

from doap import DoapError, PatchSet
from doap.patches.sampling import GroupBatches


def set_of(sizes: list[int]) -> PatchSet:
    groups = np.repeat(np.arange(len(sizes)) * 10, sizes)
    np.random.default_rng(0).shuffle(groups)
    return PatchSet([np.zeros((len(groups), 4, 4), np.uint8)], groups)


MIXED = [2, 3, 1, 5, 4] * 40


def test_every_match_is_in_the_batch() -> None:
    patches = set_of(MIXED)
    for indices in GroupBatches(patches, 64, seed=0).batches(0):
        for group in np.unique(patches.groups[indices]):
            assert (patches.groups[indices] == group).sum() == (patches.groups == group).sum() >= 2


def test_no_group_comes_twice_and_lists_are_full() -> None:
    patches = set_of(MIXED)
    batches = GroupBatches(patches, 64, seed=0)
    drawn = [indices for epoch in range(3) for indices in batches.batches(epoch)]
    assert all(64 - max(MIXED) < len(indices) <= 64 for indices in drawn)
    first = np.concatenate(list(batches.batches(0)))
    assert len(np.unique(first)) == len(first)
    # what is left over is less than a list
    assert len(patches) - 40 - len(first) < 64


def test_a_list_size_that_divides_is_used_to_the_last_patch() -> None:
    drawn = list(GroupBatches(set_of([4] * 64), 64, seed=0).batches(0))
    assert [len(indices) for indices in drawn] == [64] * 4


def test_the_seed_fixes_batches_and_epochs_differ() -> None:
    patches = set_of(MIXED)
    one, same, other = (list(GroupBatches(patches, 64, seed).batches(0)) for seed in (0, 0, 1))
    next_epoch = list(GroupBatches(patches, 64, 0).batches(1))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0], other[0])
    assert not np.array_equal(one[0], next_epoch[0])


def test_resuming_in_the_middle_gives_the_same_batches() -> None:
    batches = GroupBatches(set_of(MIXED), 64, seed=3)
    whole = list(batches.batches(2))
    assert len(whole) == batches.count(2) > 4
    for a, b in zip(whole[3:], batches.batches(2, start=3), strict=True):
        np.testing.assert_array_equal(a, b)


def test_all_groups_are_drawn_in_time() -> None:
    patches = set_of(MIXED)
    batches = GroupBatches(patches, 64, seed=0)
    seen = np.unique(np.concatenate([i for epoch in range(20) for i in batches.batches(epoch)]))
    assert len(seen) == len(patches) - 40  # all but the groups of one


@pytest.mark.parametrize(
    ("sizes", "list_size", "message"),
    [
        ([1, 1, 1], 2, "nothing to match"),
        ([2, 9], 8, "a group of 9 patches does not fit a list of 8"),
        ([2, 2], 8, "fewer than a list of 8"),
    ],
)
def test_impossible_lists_are_refused(sizes: list[int], list_size: int, message: str) -> None:
    with pytest.raises(DoapError, match=message):
        GroupBatches(set_of(sizes), list_size, seed=0)
