"""The histograms of `average_precision` without an M x M tensor: O(M b) memory, O(M²) work, the same numbers.

Forward visits the pairs in tiles and accumulates the histograms. Backward visits the tiles again, recomputes their
distances, and turns the gradient of the histograms into the gradient of the descriptors. AP and everything else
computed from the histograms is ordinary autograd on (M, b + 1) tensors.

The two passes are `triton_histograms` on an NVIDIA GPU in float32, and `tiled_histograms` elsewhere. Both are
deterministic; `tiled_histograms` on a GPU only with `torch.use_deterministic_algorithms(True)` and
CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment, as usual in PyTorch.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from doap.objectives import tiled_histograms
from doap.objectives.average_precision import has_triton_kernels
from doap.objectives.lists import IgnoreTable, RankedLists, max_distance
from doap.types import Kind


def _backend(descriptors: Tensor) -> ModuleType:
    """Return the module that implements the two passes: Triton kernels, or plain PyTorch."""
    if has_triton_kernels(descriptors):
        return import_module("doap.objectives.triton_histograms")
    return tiled_histograms


class _Histograms(torch.autograd.Function):
    """Both histograms as a function of the descriptors: one pass over the tiles in each direction."""

    @staticmethod
    def forward(
        ctx: Any,
        descriptors: Tensor,
        order: Tensor | None,
        lists: RankedLists,
        gather_rows: Callable[[Tensor], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Compute the histograms; `order` sorts the items by group, None if they are sorted."""
        by_group = _sort_rows(descriptors, order)
        ctx.save_for_backward(by_group, order)
        ctx.lists, ctx.gather_rows = lists, gather_rows
        with torch.autocast(descriptors.device.type, enabled=False):
            matches, ranked = _backend(by_group).histograms(by_group, lists)
        return _unsort_rows(gather_rows(matches), order), _unsort_rows(gather_rows(ranked), order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_matches: Tensor, grad_ranked: Tensor) -> tuple[Tensor, None, None, None]:
        """Turn the gradient of the histograms into that of the descriptors."""
        by_group, order = ctx.saved_tensors
        with torch.autocast(by_group.device.type, enabled=False):
            grad_matches, grad_ranked = _sort_rows(grad_matches, order), _sort_rows(grad_ranked, order)
            gradient = _backend(by_group).descriptor_gradient(by_group, ctx.lists, grad_matches, grad_ranked)
        return _unsort_rows(ctx.gather_rows(gradient), order), None, None, None


def _sort_rows(rows: Tensor, order: Tensor | None) -> Tensor:
    return rows.contiguous() if order is None else rows[order]


def _unsort_rows(rows: Tensor, order: Tensor | None) -> Tensor:
    return rows if order is None else torch.empty_like(rows).index_copy_(0, order, rows)


def _sort_groups(groups: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return ascending groups and the order that sorts them, None if they need not be moved.

    Equal groups only have to be adjacent. Where they are, and are on the CPU so that the check does not
    synchronise a GPU, they are renumbered in order of appearance instead of sorted.
    """
    if groups.device.type == "cpu":
        changes = groups[1:] != groups[:-1]
        first = groups[:1]
        heads = torch.cat((first, groups[1:][changes])).sort().values
        if (heads[1:] != heads[:-1]).all():
            return F.pad(changes.cumsum(0), (1, 0)), None
    sorted_groups, order = groups.sort()
    return sorted_groups, order


def _histograms(*arguments: Any) -> tuple[Tensor, Tensor]:
    """Apply `_Histograms`, outside of torch.compile: tiles and scatters leave a compiler nothing to fuse."""
    apply: Any = _Histograms.apply
    if torch.compiler.is_compiling():  # else the compiler, which takes seconds to import, is not needed
        apply = torch.compiler.disable(apply)  # type: ignore[no-untyped-call]
    matches, ranked = apply(*arguments)
    return matches, ranked


def fused_histograms(
    descriptors: Tensor,
    groups: Tensor,
    kind: Kind,
    bins: int,
    ignore: IgnoreTable | None = None,
    rows: range | None = None,
    gather_rows: Callable[[Tensor], Tensor] = lambda rows: rows,
) -> tuple[Tensor, Tensor]:
    """Return h⁺ and h of every query, as `average_precision.dense_histograms` does.

    Args:
        descriptors: (M, d) unit vectors or relaxed bits, float32 or float64.
        groups: (M,) integers, on the descriptors' device, or on the CPU, which avoids sorting on a GPU.
        kind: "real" or "binary".
        bins: b, the number of bin intervals.
        ignore: Pairs to ignore, on the descriptors' device, or None.
        rows: The range of the sorted items that this process computes, all by default.
        gather_rows: Concatenates the rows of all processes in order; needed if `rows` is given.

    Returns:
        h⁺ and h, each (M, bins + 1).
    """
    sorted_groups, order = _sort_groups(groups)
    sorted_groups = sorted_groups.to(descriptors.device, non_blocking=True)
    order = None if order is None else order.to(descriptors.device, non_blocking=True)
    if ignore is not None and order is not None:
        ignore = IgnoreTable(ignore.labels[order], ignore.table)
    width = max_distance(kind, descriptors.shape[1]) / bins
    lists = RankedLists(kind, bins, width, sorted_groups, ignore, range(len(groups)) if rows is None else rows)
    return _histograms(descriptors, order, lists, gather_rows)
