"""The nested loss against the mean of the textbook's losses, one per length."""

import pytest
import torch
from torch import Tensor, nn

from doap.objectives import (
    AveragePrecisionLoss,
    HardNetLoss,
    IgnoreTable,
    ImitationLoss,
    NestedLoss,
    SimilarityLoss,
    backward_in_chunks,
)
from doap.types import Kind
from support.textbook import textbook_loss

LENGTHS = (8, 16, 24)
KINDS = pytest.mark.parametrize("kind", ["real", "binary"])


def make_batch() -> tuple[Tensor, Tensor, IgnoreTable]:
    outputs = torch.randn(24, 24, dtype=torch.float64).requires_grad_()
    table = torch.tensor([[False, True, False], [True, False, False], [False, False, False]])
    return outputs, torch.arange(24) // 3, IgnoreTable(torch.arange(24) % 3, table)


@KINDS
@pytest.mark.parametrize("bins", [None, 12])
def test_value_and_gradient_are_the_mean_of_separate_losses(kind: Kind, bins: int | None) -> None:
    outputs, groups, ignore = make_batch()
    nested = NestedLoss(dict.fromkeys(LENGTHS, AveragePrecisionLoss(kind, bins, 0.3)))(outputs, groups, ignore)
    separate = [
        textbook_loss(outputs[:, :k], groups, kind, bins or (25 if kind == "real" else k), ignore, 0.3) for k in LENGTHS
    ]
    expected = torch.stack(separate).mean()
    torch.testing.assert_close(nested, expected, rtol=0, atol=1e-10)
    gradients = [torch.autograd.grad(loss, outputs)[0] for loss in (nested, expected)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-6, atol=1e-10)


@KINDS
def test_gradient_is_that_of_finite_differences(kind: Kind) -> None:
    outputs, groups = torch.randn(8, 6, dtype=torch.float64).requires_grad_(), torch.arange(8) // 2
    loss = NestedLoss(dict.fromkeys((2, 6), AveragePrecisionLoss(kind)))
    assert torch.autograd.gradcheck(lambda values: loss(values, groups), outputs, eps=1e-7, atol=1e-4)


def test_any_loss_of_each_length() -> None:
    outputs, groups, _ = make_batch()
    teacher = torch.randn(24, 24, dtype=torch.float64)
    hardnet = HardNetLoss()
    both = (hardnet(outputs[:, :8], groups) + hardnet(outputs, groups)) / 2
    torch.testing.assert_close(NestedLoss({8: hardnet, 24: hardnet})(outputs, groups), both)
    similarity, imitation = SimilarityLoss("real", "real"), ImitationLoss("real")
    both = (similarity(outputs[:, :8], teacher) + imitation(outputs, teacher)) / 2
    torch.testing.assert_close(NestedLoss({8: similarity, 24: imitation})(outputs, teacher), both)


def test_in_chunks() -> None:
    outputs, groups, _ = make_batch()
    network, loss = nn.Linear(24, 24).double(), NestedLoss(dict.fromkeys(LENGTHS, AveragePrecisionLoss("real")))
    patches = outputs.detach()
    loss(network(patches), groups).backward()
    expected = network.weight.grad
    network.weight.grad = None
    backward_in_chunks(network, torch.split(patches, 7), lambda values: loss(values, groups))
    torch.testing.assert_close(network.weight.grad, expected)


def test_half_precision_on_every_device(device: torch.device) -> None:
    outputs = torch.randn(32, 24, device=device).to(torch.bfloat16).requires_grad_()
    groups = torch.arange(32) // 4
    loss = NestedLoss(dict.fromkeys(LENGTHS, AveragePrecisionLoss("real")))
    value = loss(outputs, groups)
    (gradient,) = torch.autograd.grad(value, outputs)
    torch.testing.assert_close(value.double().cpu(), loss(outputs.double().cpu(), groups), rtol=0, atol=1e-4)
    assert gradient.isfinite().all()
    assert (gradient != 0).any(0).all()


def test_lengths_must_fit() -> None:
    with pytest.raises(ValueError, match=r"at least 1, not \[0, 8\]"):
        NestedLoss({8: HardNetLoss(), 0: HardNetLoss()})
    with pytest.raises(ValueError, match=r"outputs must be \(M, 24\) or wider, not \(4, 16\)"):
        NestedLoss({24: HardNetLoss()})(torch.randn(4, 16), torch.tensor([0, 0, 1, 1]))
