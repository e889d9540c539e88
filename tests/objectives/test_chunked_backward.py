"""Chunked backward against the gradient of the whole list."""

import copy

import pytest
import torch
from torch import Tensor, nn

from doap.networks.l2net import L2Net
from doap.objectives import AveragePrecisionLoss, backward_in_chunks

GROUPS = torch.arange(40) // 4


def gradients(network: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]


@pytest.fixture
def batch_normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 8)).double()


@pytest.mark.parametrize("sizes", [[40], [20, 20], [7, 12, 21]])
def test_gradient_equals_one_shot(batch_normed: nn.Module, sizes: list[int], device: torch.device) -> None:
    """One shot: all chunks through the network with their graph, one objective, one backward."""
    network = batch_normed.to(device)
    one_shot = copy.deepcopy(network)
    patches = torch.randn(40, 6, dtype=torch.float64, device=device)
    chunks = torch.split(patches, sizes)
    objective = AveragePrecisionLoss("real", pooled_weight=0.5)
    torch.manual_seed(5)
    expected = objective(torch.cat([one_shot(chunk) for chunk in chunks]), GROUPS)
    expected.backward()
    after = torch.rand(1)
    torch.manual_seed(5)
    value = backward_in_chunks(network, chunks, lambda outputs: objective(outputs, GROUPS))
    assert torch.equal(torch.rand(1), after)  # the second pass leaves the random state unchanged
    torch.testing.assert_close(value, expected.detach(), rtol=0, atol=1e-14)
    assert len(gradients(network)) == 6
    torch.testing.assert_close(gradients(network), gradients(one_shot), rtol=1e-10, atol=1e-12)
    for buffer, other in zip(network.buffers(), one_shot.buffers(), strict=True):
        assert torch.equal(buffer, other)  # running statistics are updated once


def test_gradient_equals_the_plain_whole_without_batch_norm() -> None:
    network = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8)).double()
    whole = copy.deepcopy(network)
    patches = torch.randn(40, 6, dtype=torch.float64)
    objective = AveragePrecisionLoss("binary")
    objective(whole(patches), GROUPS).backward()
    backward_in_chunks(network, torch.split(patches, 16), lambda outputs: objective(outputs, GROUPS))
    torch.testing.assert_close(gradients(network), gradients(whole), rtol=1e-10, atol=1e-14)


def test_gradients_accumulate_and_evaluation_mode_is_kept(batch_normed: nn.Module) -> None:
    batch_normed.eval()
    patches = torch.randn(40, 6, dtype=torch.float64)
    objective = AveragePrecisionLoss("real")
    before = [buffer.clone() for buffer in batch_normed.buffers()]
    backward_in_chunks(batch_normed, torch.split(patches, 10), lambda outputs: objective(outputs, GROUPS))
    once = [gradient.clone() for gradient in gradients(batch_normed)]
    backward_in_chunks(batch_normed, torch.split(patches, 20), lambda outputs: objective(outputs, GROUPS))
    torch.testing.assert_close(gradients(batch_normed), [2 * gradient for gradient in once])
    assert all(torch.equal(a, b) for a, b in zip(before, batch_normed.buffers(), strict=True))


def test_trains_l2net() -> None:
    network = L2Net(16, width=4)
    patches = torch.rand(40, 1, 32, 32) * 255
    objective = AveragePrecisionLoss("real")
    value = backward_in_chunks(network, torch.split(patches, 20), lambda outputs: objective(outputs, GROUPS))
    assert 0 < float(value) < 1
    assert not value.requires_grad
    assert all(float(gradient.abs().max()) > 0 for gradient in gradients(network))
