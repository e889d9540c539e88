import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from doap import AveragePrecisionLoss
from doap.datasets.batches.overlap_tables import OverlapTables
from doap.datasets.sets.groups import GroupedSet
from doap.objectives.lists import IgnoreTable


def random_set(pairs: int, groups: int = 30, seed: int = 0) -> GroupedSet:
    random = np.random.default_rng(seed)
    ids = np.repeat(np.arange(groups) * 7 + 3, 4)
    random.shuffle(ids)
    return GroupedSet(ids, overlaps=random.integers(0, groups, (pairs, 2)) * 7 + 3)


def dense(data: GroupedSet, indices: np.ndarray) -> np.ndarray:
    """Return whether the groups of two items overlap, (M, M), pair by pair."""
    overlap = {frozenset(pair) for pair in data.overlaps.tolist()}
    groups = data.groups[indices].tolist()
    return np.array([[frozenset((a, b)) in overlap for b in groups] for a in groups])


def expand(table: IgnoreTable) -> np.ndarray:
    labels = table.labels.to(table.table.device)
    return table.table[labels][:, labels].cpu().numpy()


@pytest.mark.parametrize("pairs", [0, 1, 60, 400])
def test_tables_equal_the_dense_mask(pairs: int, device: str) -> None:
    data = random_set(pairs)
    tables = OverlapTables(data, device)
    for seed in range(3):
        indices = np.random.default_rng(seed).integers(0, len(data), 50)  # any order, some twice
        table = tables.ignore_table(indices)
        table.check(50)
        assert table.table.device.type == device
        assert len(table.table) == len(np.unique(data.groups[indices]))
        np.testing.assert_array_equal(expand(table), dense(data, indices))


def test_overlapping_groups_get_no_gradient_from_each_other(device: str) -> None:
    # Only two groups, which overlap: no negatives, so AP is 1 and its gradient 0. Without the table it is not.
    data = GroupedSet([0, 0, 1, 1], overlaps=np.array([[1, 0]]))
    table = OverlapTables(data, device).ignore_table(np.arange(4))
    outputs = torch.randn(4, 8).to(device).requires_grad_()
    loss = AveragePrecisionLoss("real")
    (free,) = torch.autograd.grad(loss(outputs, torch.tensor([0, 0, 1, 1])), outputs)
    assert free.abs().max() > 1e-3
    value = loss(outputs, torch.tensor([0, 0, 1, 1]), table)
    (gradient,) = torch.autograd.grad(value, outputs)
    assert value.item() == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-6, rtol=0)


def test_loss_and_gradient_equal_those_of_the_dense_mask(device: str) -> None:
    data = random_set(60)
    indices = data.members[:80]
    outputs = torch.randn(80, 16, dtype=torch.float64, device=device, requires_grad=True)
    groups = torch.from_numpy(data.groups[indices])
    loss = AveragePrecisionLoss("real")
    by_table = loss(outputs, groups, OverlapTables(data, device).ignore_table(indices))
    by_mask = loss(outputs, groups, torch.from_numpy(dense(data, indices)))
    torch.testing.assert_close(by_table, by_mask)
    torch.testing.assert_close(*(torch.autograd.grad(value, outputs)[0] for value in (by_table, by_mask)))
    assert not torch.isclose(by_table, loss(outputs, groups))


def random_table(items: int, labels: int, seed: int) -> IgnoreTable:
    random = np.random.default_rng(seed)
    table = random.random((labels, labels)) < 0.3
    return IgnoreTable(torch.from_numpy(random.integers(0, labels, items)), torch.from_numpy(table | table.T))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_two_tables_in_one_ignore_what_either_does(items: int, first: int, second: int, seed: int) -> None:
    one, other = random_table(items, first, seed), random_table(items, second, seed + 100)
    both = one | other
    both.check(items)
    assert len(both.table) <= min(items, first * second)
    np.testing.assert_array_equal(expand(both), expand(one) | expand(other))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_tables_with_labels_of_any_integer_type_are_united(dtype: torch.dtype) -> None:
    one, other = random_table(200, 90, 0), random_table(200, 100, 1)
    both = IgnoreTable(one.labels.to(dtype), one.table) | IgnoreTable(other.labels.to(dtype), other.table)
    both.check(200)
    np.testing.assert_array_equal(expand(both), expand(one | other))


@pytest.mark.gpu
def test_no_gpu_synchronisation() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    data = random_set(400)
    tables, indices = OverlapTables(data, "cuda"), np.arange(60)
    first = tables.ignore_table(indices)
    try:
        torch.cuda.set_sync_debug_mode("error")
        second = tables.ignore_table(indices)
        both = first | second
    finally:
        torch.cuda.set_sync_debug_mode("default")
    np.testing.assert_array_equal(expand(both), dense(data, indices))


@pytest.mark.gpu
def test_tables_on_a_gpu_join_those_on_the_cpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    one, other = random_table(30, 5, 0), random_table(30, 6, 1)
    expected = expand(one | other)
    on_gpu = IgnoreTable(one.labels, one.table.cuda())
    np.testing.assert_array_equal(expand(on_gpu | other), expected)
    np.testing.assert_array_equal(expand(other | IgnoreTable(one.labels.cuda(), one.table.cuda())), expected)
