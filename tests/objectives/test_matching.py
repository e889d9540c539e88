"""The AP of the matching list against its definition, pair by pair."""

import pytest
import torch
from torch import Tensor

from doap.objectives import AveragePrecisionLoss, IgnoreTable
from doap.objectives import matching as module
from doap.objectives.average_precision import relaxed_descriptors
from doap.objectives.matching import matching_average_precision, nearest_non_matches
from doap.types import Kind
from support.textbook import textbook_matching

KINDS = pytest.mark.parametrize("kind", ["real", "binary"])


def matching_precision(
    outputs: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | Tensor | None = None
) -> Tensor:
    return matching_average_precision(relaxed_descriptors(outputs, kind), groups, kind, bins, ignore)


def batch(seed: int) -> tuple[Tensor, Tensor]:
    """Return groups of one to several patches in any order; matches are nearer than non-matches on average."""
    random = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, 7, (24,), generator=random)
    centres = torch.randn(7, 6, dtype=torch.float64, generator=random)
    return centres[groups] + 0.4 * torch.randn(24, 6, dtype=torch.float64, generator=random), groups


@KINDS
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ignored", [False, True])
def test_value_and_gradient_are_those_of_the_definition(kind: Kind, seed: int, ignored: bool) -> None:
    outputs, groups = batch(seed)
    outputs.requires_grad_()
    random = torch.Generator().manual_seed(seed)
    mask = torch.rand(24, 24, generator=random) < 0.5 * ignored
    value = matching_precision(outputs, groups, kind, 15, mask if ignored else None)
    expected, margin = textbook_matching(outputs, groups, kind, 15, mask)
    assert float(margin) > 0
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, outputs), torch.autograd.grad(expected, outputs))


@KINDS
def test_the_gradient_is_that_of_small_steps_with_the_margin_constant(kind: Kind) -> None:
    outputs, groups = batch(5)
    _, margin = textbook_matching(outputs, groups, kind, 9, torch.zeros(24, 24))
    outputs.requires_grad_()
    (gradient,) = torch.autograd.grad(matching_precision(outputs, groups, kind, 9), outputs)
    direction = torch.randn(24, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ahead, behind = (
            textbook_matching(outputs + step * direction, groups, kind, 9, torch.zeros(24, 24), margin)[0]
            for step in (1e-6, -1e-6)
        )
    torch.testing.assert_close((gradient * direction).sum(), (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-7)
    assert float(gradient.norm()) > 1e-3


@KINDS
def test_a_table_says_the_same_as_its_mask(kind: Kind) -> None:
    outputs, groups = batch(2)
    labels = torch.randint(0, 4, (24,), generator=torch.Generator().manual_seed(0))
    table = torch.eye(4, dtype=torch.bool)
    by_table = matching_precision(outputs, groups, kind, 10, IgnoreTable(labels, table))
    torch.testing.assert_close(by_table, matching_precision(outputs, groups, kind, 10, table[labels][:, labels]))
    assert not torch.isclose(by_table, matching_precision(outputs, groups, kind, 10))


def test_nearest_non_matches_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, groups = batch(3)
    unit = relaxed_descriptors(outputs, "real")
    whole = nearest_non_matches(unit, groups)
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 24 * 5)
    in_blocks = nearest_non_matches(unit, groups)
    assert torch.equal(in_blocks[0], whole[0])
    assert whole[1].all()
    for query, near in enumerate(in_blocks[0].tolist()):
        distances = [float((unit[query] - unit[j]).norm()) if groups[j] != groups[query] else 9 for j in range(24)]
        assert distances[near] == min(distances) < 9


def test_without_a_non_match_the_list_is_perfect_and_has_no_gradient(device: torch.device) -> None:
    outputs = torch.randn(8, 4, device=device, requires_grad=True)
    value = matching_precision(outputs, torch.zeros(8, dtype=torch.int64), "real", 10)
    assert float(value.detach()) == pytest.approx(1, abs=1e-6)
    assert float(torch.autograd.grad(value, outputs)[0].abs().max()) < 1e-6


@KINDS
def test_on_every_device_as_in_double_precision(kind: Kind, device: torch.device) -> None:
    outputs, groups = batch(4)
    there = outputs.to(device, torch.float32).requires_grad_()
    here = outputs.clone().requires_grad_()
    value, expected = matching_precision(there, groups, kind, 12), matching_precision(here, groups, kind, 12)
    assert float(value.detach()) == pytest.approx(float(expected.detach()), abs=1e-5)
    (gradient,), (expected_gradient,) = torch.autograd.grad(value, there), torch.autograd.grad(expected, here)
    torch.testing.assert_close(gradient.double().cpu(), expected_gradient, rtol=1e-3, atol=1e-5)


def test_a_sorted_list_keeps_a_gradient() -> None:
    """Every match is much nearer than every non-match: AP is 1, and only the margin leaves a gradient."""
    outputs = torch.eye(8, dtype=torch.float64).repeat_interleave(2, 0)
    outputs = outputs + 0.1 * torch.randn(16, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    groups = torch.arange(16) // 2
    outputs.requires_grad_()
    alone = AveragePrecisionLoss("real", 25)(outputs, groups)
    both = AveragePrecisionLoss("real", 25, matching_weight=1.0)(outputs, groups)
    assert float(alone.detach()) == pytest.approx(0, abs=1e-9)
    assert float(torch.autograd.grad(alone, outputs)[0].norm()) < 1e-9
    assert float(both.detach()) > 0.2
    assert float(torch.autograd.grad(both, outputs)[0].norm()) > 0.01


def test_the_weight_of_the_list() -> None:
    outputs, groups = batch(1)
    alone = AveragePrecisionLoss("real", 25)(outputs, groups)
    both = AveragePrecisionLoss("real", 25, matching_weight=2.0)(outputs, groups)
    torch.testing.assert_close(both, alone + 2 * (1 - matching_precision(outputs, groups, "real", 25)))
    with pytest.raises(ValueError, match="matching_weight must be at least 0 and finite, not -1"):
        AveragePrecisionLoss("real", matching_weight=-1.0)
