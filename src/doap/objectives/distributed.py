"""Lists across processes: every query ranks the patches of all ranks, not only of its own.

Each rank gathers all descriptors (O(M d)), makes the histograms of its share of the queries and shares them
(O(M b)), so all ranks see the same loss; in backward each rank makes the gradient of its share of the
descriptors, in both their roles, as query and as item of every other rank's lists, and shares that. The
pairs, the O(M²) part, are split evenly, and no rank holds an M x M tensor.
"""

from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from doap.objectives.fused import fused_histograms
from doap.objectives.lists import IgnoreTable, check_labels, check_matches
from doap.objectives.loss import AveragePrecisionLoss, Batch
from doap.types import Kind


class DistributedAveragePrecisionLoss(AveragePrecisionLoss):
    """`AveragePrecisionLoss` of the union of all ranks' batches; each rank gives its own, of any size.

    The value, the same on every rank, is that of one process with the whole batch, rank after rank. For the
    gradient to be that of one process too, average the ranks' parameter gradients, as
    `DistributedDataParallel` does: each rank's part comes multiplied by the number of ranks. All ranks must
    call forward and backward together, and scale the loss alike.

    Groups, pools and ignore labels mean the same on all ranks, and so must the ignore table; a dense ignore
    mask, M x M, is refused. `average_precisions` and `histograms` return those of the whole union.
    """

    def forward(
        self,
        outputs: Tensor,
        groups: Tensor,
        ignore: IgnoreTable | Tensor | None = None,
        pools: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of the union, a scalar; arguments as `AveragePrecisionLoss.forward`, this rank's."""
        if pools is not None:
            pools = _gather(pools.to(outputs.device), _sizes(pools, outputs.device))
        return super().forward(outputs, groups, ignore, pools)

    def _check(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | Tensor | None) -> Batch:
        """The union of all ranks' batches."""
        if isinstance(ignore, Tensor):
            raise ValueError("an ignore mask does not span processes: give an IgnoreTable")
        check_labels("groups", groups, len(outputs))
        return super()._check(*_union(outputs, groups, ignore))

    def _require_a_match(self, groups: Tensor, matches: Tensor) -> None:  # noqa: ARG002 (a rank's own need not match)
        check_matches(matches.sum(1) > 0)

    def _fused(
        self, descriptors: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | None
    ) -> tuple[Tensor, Tensor]:
        ranks, rank, items = dist.get_world_size(), dist.get_rank(), len(groups)
        cuts = [items * r // ranks for r in range(ranks + 1)]
        shares = [end - start for start, end in pairwise(cuts)]
        rows = range(cuts[rank], cuts[rank + 1])
        return fused_histograms(
            descriptors, groups, kind, bins, ignore, rows, collect=lambda part: _gather(part, shares)
        )


class UnionLoss(nn.Module):
    """Any other objective over the union of all ranks' batches, computed whole on every rank.

    Value and gradient are as those of `DistributedAveragePrecisionLoss`, without its sharing of the work.

    Args:
        objective: (M, d) outputs, (M,) groups and what to ignore to a scalar.
    """

    def __init__(self, objective: nn.Module) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None = None) -> Tensor:
        """Compute the loss of the union from this rank's (m, d) outputs, (m,) groups and (m,) labels to ignore."""
        check_labels("groups", groups, len(outputs))
        loss: Tensor = self.objective(*_union(outputs, groups, ignore))
        return loss


class _GatherOutputs(torch.autograd.Function):
    """All ranks' outputs, one after the other. Backward expects the whole gradient on every rank."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        return _gather(outputs, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rank = dist.get_rank()
        start = sum(ctx.sizes[:rank])
        return gradient[start : start + ctx.sizes[rank]] * len(ctx.sizes), None


def _union(outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None) -> tuple[Tensor, Tensor, IgnoreTable | None]:
    """All ranks' outputs, which carry the gradient, their groups, and what they ignore."""
    device = outputs.device
    sizes = _sizes(outputs, device)
    if ignore is not None:
        ignore = IgnoreTable(_gather(ignore.labels.to(device), sizes), ignore.table)
    return union(outputs, sizes), _gather(groups.to(device), sizes), ignore


def union(outputs: Tensor, sizes: list[int] | None = None) -> Tensor:
    """All ranks' (m, d) outputs, one after the other, for a loss that every rank computes whole.

    They carry the gradient; each rank's part comes multiplied by the number of ranks, as in
    `DistributedAveragePrecisionLoss`.

    Args:
        outputs: this rank's.
        sizes: how many each rank has, where that is known.
    """
    gathered: Tensor = _GatherOutputs.apply(outputs, sizes or _sizes(outputs, outputs.device))  # type: ignore[no-untyped-call]
    return gathered


def _sizes(rows: Tensor, device: torch.device) -> list[int]:
    """How many rows each rank has."""
    if not dist.is_initialized():
        raise ValueError("there are no processes to share the list with: call torch.distributed.init_process_group")
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(rows)], device=device))
    return [int(size) for size in sizes]


def _gather(rows: Tensor, sizes: list[int]) -> Tensor:
    """All ranks' rows, one after the other; `sizes` says how many each has."""
    # Collectives want the same shape of all: pad to the longest.
    padded = rows.new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
