"""Objectives over the batches of all ranks: every query ranks the patches of every rank.

Each rank gathers all descriptors (O(M d)), computes the histograms of its share of the queries and gathers those of the
others (O(M b)), so that all ranks have the same loss. In backward, each rank computes the gradient of its share of
the descriptors, as queries and as items of every rank's lists, and gathers the rest. The O(M²) work on pairs is split
evenly, and no rank holds an M x M tensor.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from doap.objectives.fused import fused_histograms
from doap.objectives.lists import IgnoreTable, check_labels, check_matches
from doap.objectives.loss import AveragePrecisionLoss, DescriptorBatch
from doap.types import Kind


class DistributedAveragePrecisionLoss(AveragePrecisionLoss):
    """`AveragePrecisionLoss` over the concatenated batches of all ranks, which may differ in size.

    The value is the same on every rank and equals that of one process with the whole batch. The gradient of each
    rank is multiplied by the number of ranks, so that averaging the parameter gradients over ranks, as
    `DistributedDataParallel` does, gives the gradient of one process. All ranks must call forward and backward
    together and scale the loss alike.

    Groups, pools, ignore labels and the ignore table must have the same meaning on all ranks. A dense M x M ignore
    mask is not supported. `average_precisions` and `histograms` return those of the whole batch.
    """

    def forward(
        self,
        outputs: Tensor,
        groups: Tensor,
        ignore: IgnoreTable | Tensor | None = None,
        pools: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of the whole batch, a scalar, from this rank's part.

        Arguments as in `AveragePrecisionLoss.forward`, for this rank's patches.
        """
        if pools is not None:
            pools = _gather_rows(pools.to(outputs.device), _row_counts(pools, outputs.device))
        return super().forward(outputs, groups, ignore, pools)

    def _check(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | Tensor | None) -> DescriptorBatch:
        """Gather the batches of all ranks and check the result."""
        if isinstance(ignore, Tensor):
            raise ValueError("an ignore mask does not span processes: give an IgnoreTable")
        check_labels("groups", groups, len(outputs))
        return super()._check(*_gather_batch(outputs, groups, ignore))

    def _check_has_match(self, groups: Tensor, matches: Tensor) -> None:  # noqa: ARG002 (one rank may have no match)
        check_matches(~(matches.sum(1) <= 0))  # NaN, of outputs that are not finite, is told by the loss

    def _fused_histograms(
        self, descriptors: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | None
    ) -> tuple[Tensor, Tensor]:
        ranks, rank, items = dist.get_world_size(), dist.get_rank(), len(groups)
        bounds = [items * r // ranks for r in range(ranks + 1)]
        counts = [end - start for start, end in pairwise(bounds)]
        rows = range(bounds[rank], bounds[rank + 1])
        return fused_histograms(
            descriptors, groups, kind, bins, ignore, rows, gather_rows=lambda share: _gather_rows(share, counts)
        )


class GatheredLoss(nn.Module):
    """Any objective over the concatenated batches of all ranks, computed in full on every rank.

    Value and gradient are scaled as in `DistributedAveragePrecisionLoss`; the work is not split.

    Args:
        objective: Maps (M, d) outputs, (M,) groups, an `IgnoreTable` or None, and feature maps if there are any, to a
            scalar.
    """

    def __init__(self, objective: nn.Module) -> None:
        super().__init__()
        self.objective = objective

    def forward(
        self,
        outputs: Tensor,
        groups: Tensor,
        ignore: IgnoreTable | None = None,
        feature_maps: Sequence[Tensor] = (),
    ) -> Tensor:
        """Compute the loss of the whole batch, a scalar.

        Args:
            outputs: (m, d) raw activations of this rank.
            groups: (m,) integer group of each of its patches.
            ignore: Pairs to leave out, with (m,) labels.
            feature_maps: (m, values) per map, for an objective that compares feature maps.
        """
        check_labels("groups", groups, len(outputs))
        gathered = _gather_batch(outputs, groups, ignore)
        maps = [gather_outputs(values) for values in feature_maps]
        loss: Tensor = self.objective(*gathered, maps) if maps else self.objective(*gathered)
        return loss


class _GatherOutputs(torch.autograd.Function):
    """Concatenation of all ranks' outputs. Backward expects the whole gradient on every rank."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        return _gather_rows(outputs, counts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rank = dist.get_rank()
        start = sum(ctx.counts[:rank])
        return gradient[start : start + ctx.counts[rank]] * len(ctx.counts), None


def _gather_batch(
    outputs: Tensor, groups: Tensor, ignore: IgnoreTable | None
) -> tuple[Tensor, Tensor, IgnoreTable | None]:
    """Return all ranks' outputs, with gradient, their groups, and the pairs to ignore."""
    device = outputs.device
    counts = _row_counts(outputs, device)
    if ignore is not None:
        ignore = IgnoreTable(_gather_rows(ignore.labels.to(device), counts), ignore.table)
    return gather_outputs(outputs, counts), _gather_rows(groups.to(device), counts), ignore


def gather_outputs(outputs: Tensor, counts: list[int] | None = None) -> Tensor:
    """Return all ranks' (m, d) outputs, concatenated, with gradient, for a loss that every rank computes in full.

    The gradient is multiplied by the number of ranks, as in `DistributedAveragePrecisionLoss`.

    Args:
        outputs: (m, d) outputs of this rank.
        counts: Number of rows of each rank; gathered if not given.
    """
    gathered: Tensor = _GatherOutputs.apply(outputs, counts or _row_counts(outputs, outputs.device))  # type: ignore[no-untyped-call]
    return gathered


def _row_counts(rows: Tensor, device: torch.device) -> list[int]:
    """Return the number of rows of each rank."""
    if not dist.is_initialized():
        raise ValueError("there is no process group to gather from: call torch.distributed.init_process_group first")
    counts = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([len(rows)], device=device))
    return [int(count) for count in counts]


def _gather_rows(rows: Tensor, counts: list[int]) -> Tensor:
    """Return all ranks' rows, concatenated; `counts` is the number of rows of each rank."""
    # all_gather needs equal shapes: pad to the longest.
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(gathered, padded)
    return torch.cat([rows_of_rank[:count] for rows_of_rank, count in zip(gathered, counts, strict=True)])
