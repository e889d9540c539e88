"""The objective on degenerate batches, its options, and the input that it refuses."""

import pytest
import torch
from torch import Tensor

from doap.objectives import AveragePrecisionLoss, FastAPLoss, IgnoreTable
from doap.types import Kind
from support.textbook import textbook_histograms, textbook_loss

KINDS = pytest.mark.parametrize("kind", ["real", "binary"])


def check_against_textbook(
    outputs: Tensor, groups: Tensor, kind: Kind, bins: int = 25, ignore: IgnoreTable | Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return value and gradient; the value is that of the textbook, the gradient is finite."""
    outputs = outputs.detach().requires_grad_()
    loss = AveragePrecisionLoss(kind, bins, pooled_weight=0.3)(outputs, groups, ignore)
    (gradient,) = torch.autograd.grad(loss, outputs)
    assert gradient.isfinite().all()
    slow = textbook_loss(outputs.detach().double().cpu(), groups.cpu(), kind, bins, ignore, 0.3)
    torch.testing.assert_close(loss.detach().double().cpu(), slow, rtol=0, atol=1e-4)
    return loss.detach(), gradient


@KINDS
def test_duplicate_patches(kind: Kind, device: torch.device) -> None:
    outputs = torch.randn(6, 8, device=device).repeat_interleave(3, 0)
    _, gradient = check_against_textbook(outputs, torch.arange(18, device=device) // 3, kind)
    assert gradient.abs().max() < 10


@KINDS
def test_all_one_group(kind: Kind, device: torch.device) -> None:
    outputs = torch.randn(20, 8, device=device)
    loss, gradient = check_against_textbook(outputs, torch.zeros(20, dtype=torch.int64, device=device), kind)
    assert float(loss) == pytest.approx(0, abs=1e-5)
    assert float(gradient.abs().max()) < 1e-5


@KINDS
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_network(kind: Kind, value: float, device: torch.device) -> None:
    """All distances are equal: AP is that of one tie, and no direction is better than another."""
    outputs = torch.full((24, 8), value, device=device)
    groups = torch.arange(24, device=device) // 4
    _, gradient = check_against_textbook(outputs, groups, kind)
    if kind == "real":
        assert float(gradient.abs().max()) < 1e-6
    else:  # tanh bits of equal outputs have a distance above 0: all gradients are equal
        torch.testing.assert_close(gradient, gradient[:1].expand_as(gradient))


def test_distances_of_exactly_zero_and_two(device: torch.device) -> None:
    outputs = torch.tensor([[1.0, 0], [1, 0], [-1, 0], [-1, 0], [0, 1]], device=device)
    check_against_textbook(outputs, torch.tensor([0, 1, 0, 1, 0], device=device), "real", bins=10)


@KINDS
def test_saturated_bits_and_antipodes(kind: Kind, device: torch.device) -> None:
    signs = torch.tensor([[1.0, 1, 1], [1, 1, 1], [-1, -1, -1], [-1, -1, -1]], device=device) * 50
    check_against_textbook(signs, torch.tensor([0, 1, 0, 1], device=device), kind, bins=3)


def test_every_distance_in_one_bin(device: torch.device) -> None:
    outputs = torch.eye(16, device=device) + 0.01 * torch.rand(16, 16, device=device)  # all distances are about √2
    check_against_textbook(outputs, torch.arange(16, device=device) // 2, "real", bins=4)


@KINDS
@pytest.mark.parametrize("items", [2, 3, 511, 513])
def test_odd_sizes(kind: Kind, items: int, device: torch.device) -> None:
    outputs = torch.randn(items, 3, device=device, requires_grad=True)
    groups = torch.arange(items, device=device) // 2
    loss = AveragePrecisionLoss(kind, 10)
    mask = torch.zeros(items, items, dtype=torch.bool)  # masks use the dense definition
    (gradient,) = torch.autograd.grad(loss(outputs, groups), outputs)
    (expected,) = torch.autograd.grad(loss(outputs, groups, mask), outputs)
    torch.testing.assert_close(loss(outputs, groups), loss(outputs, groups, mask), rtol=1e-4, atol=1e-5)
    assert float((gradient - expected).norm()) <= 0.02 * float(expected.norm()) + 1e-5


def test_groups_of_one_are_no_queries(device: torch.device) -> None:
    outputs = torch.randn(9, 4, device=device)
    groups = torch.tensor([5, 1, 2, 5, 3, 4, 6, 5, 7], device=device)
    precisions, has_match = AveragePrecisionLoss("real").average_precisions(outputs, groups)
    assert has_match.tolist() == (groups == 5).tolist()
    assert precisions[~has_match].tolist() == [0] * 6
    loss = AveragePrecisionLoss("real")(outputs, groups)
    torch.testing.assert_close(loss, 1 - precisions[groups == 5].mean())
    check_against_textbook(outputs, groups, "real")


@KINDS
def test_ignored_pairs_that_swallow_a_whole_list(kind: Kind, device: torch.device) -> None:
    outputs = torch.randn(12, 4, device=device)
    groups = torch.arange(12, device=device) // 3
    everything = IgnoreTable(torch.zeros(12, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool))
    loss, gradient = check_against_textbook(outputs, groups, kind, ignore=everything)
    assert float(loss) == pytest.approx(0, abs=1e-5)  # only matches are left to rank
    assert float(gradient.abs().max()) < 1e-5


def test_a_mask_and_a_table_say_the_same(device: torch.device) -> None:
    outputs = torch.randn(40, 6, device=device)
    groups = torch.arange(40, device=device) // 4
    labels = torch.randint(0, 5, (40,))
    table = torch.rand(5, 5) < 0.4
    table |= table.T.clone()
    loss = AveragePrecisionLoss("real", pooled_weight=1.0)
    by_table = loss(outputs, groups, IgnoreTable(labels.to(torch.int32), table))
    by_mask = loss(outputs, groups, table[labels][:, labels])
    torch.testing.assert_close(by_table, by_mask)
    assert abs(float(by_table - loss(outputs, groups))) > 1e-3


def test_a_mask_may_be_one_sided() -> None:
    outputs = torch.randn(10, 4, dtype=torch.float64)
    groups = torch.arange(10) // 2
    mask = torch.rand(10, 10) < 0.5
    check_against_textbook(outputs, groups, "real", ignore=mask)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_labels_of_any_integer_type_on_any_device(dtype: torch.dtype, device: torch.device) -> None:
    outputs = torch.randn(20, 4, device=device)
    groups = torch.arange(20) // 2
    loss = AveragePrecisionLoss("real", pooled_weight=0.5)
    assert torch.equal(loss(outputs, groups.to(dtype), pools=groups.to(dtype)), loss(outputs, groups, pools=groups))


def test_groups_may_have_any_numbers() -> None:
    outputs = torch.randn(20, 4)
    groups = torch.arange(20) // 4
    loss = AveragePrecisionLoss("real")
    numbers = torch.tensor([10**12, -5, 7, 0, -(10**15)])
    torch.testing.assert_close(loss(outputs, numbers[groups]), loss(outputs, groups))


def test_the_order_of_the_batch_does_not_matter() -> None:
    outputs, groups = torch.randn(30, 5, dtype=torch.float64), torch.arange(30) // 3
    order = torch.randperm(30)
    loss = AveragePrecisionLoss("real", pooled_weight=0.5)
    torch.testing.assert_close(loss(outputs[order], groups[order]), loss(outputs, groups))
    precisions, _ = loss.average_precisions(outputs, groups)
    shuffled, _ = loss.average_precisions(outputs[order], groups[order])
    torch.testing.assert_close(shuffled, precisions[order])


@KINDS
@pytest.mark.parametrize("bin_power", [0.7, 1.5, 2.0])
def test_uneven_bins_are_those_of_the_definition(kind: Kind, bin_power: float, device: torch.device) -> None:
    """Close to the exact kernel; equal, with gradient, to the kernel interpolated at 100 fine bins."""
    outputs = torch.randn(60, 7, device=device)
    groups = torch.arange(60, device=device) // 3
    ignore = IgnoreTable(torch.arange(60) % 4, torch.eye(4, dtype=torch.bool).roll(2, 0))
    loss = AveragePrecisionLoss(kind, 8, pooled_weight=0.3, bin_power=bin_power)
    value = loss(outputs, groups, ignore)
    exact = outputs.double().cpu().requires_grad_()
    textbook = textbook_loss(exact.detach(), groups.cpu(), kind, 8, ignore, 0.3, None, bin_power)
    assert float(value) == pytest.approx(float(textbook), abs=1e-3)
    rebinning = torch.zeros(101, 9, dtype=torch.float64)
    for j in range(101):
        position = 8 * (j / 100) ** bin_power
        lower = min(int(position), 7)
        rebinning[j, lower], rebinning[j, lower + 1] = lower + 1 - position, position - lower
    fine = textbook_histograms(exact, groups.cpu(), kind, 100, ignore, 1.0)
    expected = [histogram @ rebinning for histogram in fine]
    histograms = loss.histograms(exact, groups.cpu(), ignore)
    weights = torch.randn(2, 60, 9, dtype=torch.float64)
    torch.testing.assert_close(histograms, tuple(expected))
    even = AveragePrecisionLoss(kind, 8).histograms(exact, groups.cpu(), ignore)
    assert float((histograms[1] - even[1]).detach().abs().max()) > 2
    (gradient,) = torch.autograd.grad(histograms, exact, tuple(weights))
    (expected_gradient,) = torch.autograd.grad(expected, exact, list(weights))
    torch.testing.assert_close(gradient, expected_gradient)


def test_bins_even_in_squared_distances_are_those_of_fastap(device: torch.device) -> None:
    """FastAP's formula on these histograms is `FastAPLoss`, which is tested against another implementation."""
    outputs = torch.randn(60, 7, device=device)
    groups = torch.arange(60, device=device) // 3
    matches, ranked = AveragePrecisionLoss("real", bin_power=1.0).histograms(outputs, groups)
    assert matches.shape == (60, 11)
    precision = matches * matches.cumsum(1) / ranked.cumsum(1).clamp(min=1e-9)
    expected = FastAPLoss(10)(outputs, groups)
    torch.testing.assert_close(1 - (precision.sum(1) / 2).mean(), expected, rtol=0, atol=1e-4)


def test_pooled_ranks_pairs_of_different_queries() -> None:
    """Each query alone is perfect; pooled, matches of the loose group rank behind non-matches of the tight pairs."""
    angles = torch.tensor([0.0, 0.1, 0.5, 0.6, 2.0, 2.9], dtype=torch.float64)
    outputs = torch.stack((angles.cos(), angles.sin()), 1)
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    alone = AveragePrecisionLoss("real", 200)(outputs, groups)
    both = AveragePrecisionLoss("real", 200, pooled_weight=1.0)(outputs, groups)
    apart = AveragePrecisionLoss("real", 200, pooled_weight=1.0)(outputs, groups, pools=groups)
    assert float(alone) == pytest.approx(0, abs=0.02)
    assert float(both) > 0.1
    assert float(apart) == pytest.approx(0, abs=0.05)


def test_steps_along_the_gradient_raise_ap(device: torch.device) -> None:
    outputs = torch.randn(64, 8, device=device, requires_grad=True)
    groups = torch.arange(64, device=device) // 4
    loss = AveragePrecisionLoss("real", pooled_weight=0.5)
    optimiser = torch.optim.SGD([outputs], lr=20.0)
    first = float(loss(outputs.detach(), groups))
    for _ in range(60):
        optimiser.zero_grad()
        loss(outputs, groups).backward()
        optimiser.step()
    assert float(loss(outputs.detach(), groups)) < 0.5 * first


@pytest.mark.parametrize(
    ("outputs", "groups", "message"),
    [
        (torch.randn(4, 2), torch.arange(4), "no patch of this batch has a match"),
        (torch.randn(1, 2), torch.zeros(1, dtype=torch.int64), "no patch of this batch has a match"),
        (torch.randn(0, 2), torch.zeros(0, dtype=torch.int64), "no patch of this batch has a match"),
        (torch.randn(4, 2, 1), torch.zeros(4, dtype=torch.int64), "outputs must be"),
        (torch.ones(4, 2, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), "outputs must be"),
        (torch.randn(4, 2), torch.zeros(3, dtype=torch.int64), "groups must be 4 integers"),
        (torch.randn(4, 2), torch.zeros(4), "groups must be 4 integers"),
    ],
)
def test_refuses_what_it_cannot_rank(outputs: Tensor, groups: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AveragePrecisionLoss("real")(outputs, groups)


@pytest.mark.parametrize(
    ("labels", "table", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool), "must be \\(K, K\\) bool"),
        (torch.zeros(4, dtype=torch.int64), torch.ones(2, 2), "must be \\(K, K\\) bool"),
        (torch.zeros(4, dtype=torch.int64), torch.tensor([[False, True], [False, False]]), "symmetric"),
        (torch.full((4,), 2), torch.ones(2, 2, dtype=torch.bool), "must lie in 0..1"),
        (torch.full((4,), -1), torch.ones(2, 2, dtype=torch.bool), "must lie in 0..1"),
        (torch.zeros(5, dtype=torch.int64), torch.ones(2, 2, dtype=torch.bool), "ignore labels must be 4"),
    ],
)
def test_refuses_a_wrong_ignore_table(labels: Tensor, table: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AveragePrecisionLoss("real")(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]), IgnoreTable(labels, table))


def test_refuses_other_misuse() -> None:
    outputs, groups = torch.randn(4, 2), torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match="an ignore mask must be"):
        AveragePrecisionLoss("real")(outputs, groups, torch.zeros(4, 4))
    with pytest.raises(ValueError, match="pools must be 4 integers"):
        AveragePrecisionLoss("real", pooled_weight=1.0)(outputs, groups, pools=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="kind must be"):
        AveragePrecisionLoss("cosine")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bins must be"):
        AveragePrecisionLoss("real", bins=0)
    with pytest.raises(ValueError, match="pooled_weight must be at least 0"):
        AveragePrecisionLoss("real", pooled_weight=-1.0)
    with pytest.raises(ValueError, match="bin_power must be greater than 0 and finite, not 0"):
        AveragePrecisionLoss("real", bin_power=0.0)


@pytest.mark.parametrize(
    ("kind", "value"), [("real", torch.nan), ("real", torch.inf), ("real", -torch.inf), ("binary", torch.nan)]
)  # tanh of an infinite output is a bit
def test_an_output_that_is_not_finite_gives_nan(kind: Kind, value: float, device: torch.device) -> None:
    outputs = torch.randn(40, 8, device=device)
    outputs[7, 3] = value
    loss = AveragePrecisionLoss(kind, pooled_weight=1.0)(outputs, torch.arange(40) // 4)
    assert loss.isnan()


def test_groups_may_stay_on_the_cpu(device: torch.device) -> None:
    outputs = torch.randn(40, 8, device=device)
    groups = torch.randint(0, 9, (40,))
    loss = AveragePrecisionLoss("real")
    torch.testing.assert_close(loss(outputs, groups), loss(outputs, groups.to(device)))
