"""Distributed losses against one process with the whole batch: values and parameter gradients."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

from doap.objectives import AveragePrecisionLoss, DistributedAveragePrecisionLoss, IgnoreTable, backward_in_chunks
from doap.types import Kind

SIZES = {2: [13, 24], 4: [13, 8, 2, 14]}  # number of the 37 patches on each rank
# Arguments of the objective, and whether pairs are ignored.
CASES: list[tuple[Kind, float, float, float | None, bool]] = [
    ("real", 0.0, 0.0, None, False),
    ("real", 0.7, 0.0, None, True),
    ("real", 0.0, 2.0, None, True),
    ("real", 0.7, 2.0, 1.5, True),
    ("binary", 0.7, 0.5, None, True),
]


def make_batch() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    patches = torch.randn(37, 6, dtype=torch.float64, generator=generator)
    groups = torch.randint(0, 9, (37,), generator=generator)  # groups straddle the ranks
    labels = torch.randint(0, 4, (37,), generator=generator)
    table = torch.rand(4, 4, generator=generator) < 0.4
    pools = torch.randint(0, 3, (37,), generator=generator)
    return patches, groups, labels, table | table.T, pools


def make_network() -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 5)).double()


def gradients(network: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]


def single(
    kind: Kind, pooled_weight: float, matching_weight: float, bin_power: float | None, ignored: bool
) -> tuple[Tensor, list[Tensor]]:
    """Return value and gradients of one process with the whole batch."""
    patches, groups, labels, table, pools = make_batch()
    network = make_network()
    ignore = IgnoreTable(labels, table) if ignored else None
    objective = AveragePrecisionLoss(kind, 12, pooled_weight, matching_weight, bin_power)
    loss = objective(network(patches), groups, ignore, pools)
    loss.backward()
    return loss.detach(), gradients(network)


def work(rank: int, ranks: int, store: str, results: str) -> None:
    """Run all cases on one rank, and save their values and averaged gradients."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    start = sum(SIZES[ranks][:rank])
    patches, groups, labels, table, pools = make_batch()
    mine = slice(start, start + SIZES[ranks][rank])
    computed = []
    for kind, pooled_weight, matching_weight, bin_power, ignored in CASES:
        network = DistributedDataParallel(make_network())
        ignore = IgnoreTable(labels[mine], table) if ignored else None
        objective = DistributedAveragePrecisionLoss(kind, 12, pooled_weight, matching_weight, bin_power)
        loss = objective(network(patches[mine]), groups[mine], ignore, pools[mine])
        loss.backward()
        computed.append((loss.detach(), gradients(network)))
    # The last objective again, the network in chunks.
    chunked = make_network()
    chunks = torch.split(patches[mine], 5)
    value = backward_in_chunks(chunked, chunks, lambda outputs: objective(outputs, groups[mine]))
    for gradient in gradients(chunked):
        dist.all_reduce(gradient)
    computed.append((value, [gradient / ranks for gradient in gradients(chunked)]))
    torch.save(computed, Path(results) / f"{rank}.pt")
    dist.destroy_process_group()


def start_ranks(_: int, folder: str) -> None:
    """Fork the ranks of all sizes from this process, so that torch is imported once."""
    import torch._dynamo  # takes seconds, and every rank would import it for DistributedDataParallel

    torch.set_num_threads(1)
    for ranks in SIZES:
        (Path(folder) / str(ranks)).mkdir()
        arguments = (ranks, f"{folder}/store-{ranks}", f"{folder}/{ranks}")
        start_processes(work, arguments, ranks, start_method="fork")  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_equals_one_process(tmp_path: Path) -> None:
    start_processes(start_ranks, (str(tmp_path),), 1)  # type: ignore[no-untyped-call]
    expected = [single(*case) for case in CASES]
    patches, groups, *_ = make_batch()
    network = make_network()
    plain = AveragePrecisionLoss("binary", 12, 0.7, 0.5)(network(patches), groups)
    plain.backward()
    expected.append((plain.detach(), gradients(network)))
    for ranks in SIZES:
        for rank in range(ranks):
            computed = torch.load(tmp_path / str(ranks) / f"{rank}.pt")
            for (value, gradient), (expected_value, expected_gradient) in zip(computed, expected, strict=True):
                torch.testing.assert_close(value, expected_value, rtol=0, atol=1e-12)
                torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-12)


def test_needs_a_process_group() -> None:
    with pytest.raises(ValueError, match="init_process_group"):
        DistributedAveragePrecisionLoss("real")(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]))


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_outputs_that_are_not_finite_give_a_loss_that_is_not(kind: Kind, tmp_path: Path) -> None:
    """A training then stops with its own message, on every rank."""
    outputs, groups = torch.randn(16, 8), torch.arange(16) // 4
    outputs[3] = torch.nan
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        assert not torch.isfinite(DistributedAveragePrecisionLoss(kind)(outputs, groups))
        with pytest.raises(ValueError, match="no patch of this batch has a match"):
            DistributedAveragePrecisionLoss(kind)(torch.randn(4, 8), torch.arange(4))
    finally:
        dist.destroy_process_group()


def test_refuses_a_mask() -> None:
    with pytest.raises(ValueError, match="give an IgnoreTable"):
        DistributedAveragePrecisionLoss("real")(
            torch.randn(4, 2), torch.tensor([0, 0, 1, 1]), torch.zeros(4, 4, dtype=torch.bool)
        )
