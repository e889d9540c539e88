"""The histograms of `average_precision`, the same numbers without an M x M tensor: O(M b) memory, O(M²) work.

One pass over tiles of pairs makes the histograms; backward visits the tiles again, recomputing their
distances, to turn the gradient of the histograms into that of the descriptors. Everything between, AP and
whatever else is made of the histograms, is ordinary autograd on (M, b + 1) tensors.

The two passes are `triton_kernels` on an NVIDIA GPU, in float32, and `tiles` elsewhere. Both are deterministic,
`tiles` on a GPU on request, as everything in PyTorch: by `torch.use_deterministic_algorithms(True)`, with
CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from doap.objectives import tiles
from doap.objectives.average_precision import has_kernels
from doap.objectives.lists import IgnoreTable, Lists, reach
from doap.types import Kind


def _passes(descriptors: Tensor) -> ModuleType:
    """Where the two passes are: in Triton kernels, or in plain PyTorch."""
    return import_module("doap.objectives.triton_kernels") if has_kernels(descriptors) else tiles


class _Histograms(torch.autograd.Function):
    """Both histograms as a function of the descriptors, a pass over the tiles each way."""

    @staticmethod
    def forward(
        ctx: Any, descriptors: Tensor, order: Tensor | None, lists: Lists, collect: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Make the histograms; `order` sorts the items as `lists` has them, None if they are so already."""
        by_group = _sort(descriptors, order)
        ctx.save_for_backward(by_group, order)
        ctx.lists, ctx.collect = lists, collect
        with torch.autocast(descriptors.device.type, enabled=False):
            matches, ranked = _passes(by_group).histograms(by_group, lists)
        return _unsort(collect(matches), order), _unsort(collect(ranked), order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_matches: Tensor, by_ranked: Tensor) -> tuple[Tensor, None, None, None]:
        """Turn the gradient of the histograms into that of the descriptors."""
        by_group, order = ctx.saved_tensors
        with torch.autocast(by_group.device.type, enabled=False):
            by_matches, by_ranked = _sort(by_matches, order), _sort(by_ranked, order)
            gradient = _passes(by_group).descriptor_gradient(by_group, ctx.lists, by_matches, by_ranked)
        return _unsort(ctx.collect(gradient), order), None, None, None


def _sort(rows: Tensor, order: Tensor | None) -> Tensor:
    return rows.contiguous() if order is None else rows[order]


def _unsort(rows: Tensor, order: Tensor | None) -> Tensor:
    return rows if order is None else torch.empty_like(rows).index_copy_(0, order, rows)


def _order(groups: Tensor) -> tuple[Tensor, Tensor | None]:
    """Groups in ascending order, and the order that sorts them.

    Only that equal ones sit together matters. Where they do already, and the CPU can tell without making a GPU
    wait, they are numbered anew as they come, and nothing has to move.
    """
    if groups.device.type == "cpu":
        changes = groups[1:] != groups[:-1]
        first = groups[:1]
        heads = torch.cat((first, groups[1:][changes])).sort().values
        if (heads[1:] != heads[:-1]).all():
            return F.pad(changes.cumsum(0), (1, 0)), None
    in_order, order = groups.sort()
    return in_order, order


# A compiled caller runs it as it is: tiles and scatters leave a compiler nothing to join.
_histograms = torch.compiler.disable(_Histograms.apply)  # type: ignore[no-untyped-call]


def fused_histograms(
    descriptors: Tensor,
    groups: Tensor,
    kind: Kind,
    bins: int,
    ignore: IgnoreTable | None = None,
    rows: range | None = None,
    collect: Callable[[Tensor], Tensor] = lambda rows: rows,
) -> tuple[Tensor, Tensor]:
    """h⁺ and h of every query, as `average_precision.dense_histograms`.

    Args:
        descriptors: (M, d) unit vectors or relaxed bits, float32 or float64.
        groups: (M,) integers, on the descriptors' device or, which spares a GPU the sorting, on the CPU.
        rows: the part of the sorted items that this process works on, all by default; then `collect`
            must put together the rows of all processes, in order.

    Returns:
        Two of (M, bins + 1).
    """
    in_order, order = _order(groups)
    in_order = in_order.to(descriptors.device, non_blocking=True)
    order = None if order is None else order.to(descriptors.device, non_blocking=True)
    if ignore is not None and order is not None:
        ignore = IgnoreTable(ignore.labels[order], ignore.table)
    width = reach(kind, descriptors.shape[1]) / bins
    lists = Lists(kind, bins, width, in_order, ignore, range(len(groups)) if rows is None else rows)
    matches, ranked = _histograms(descriptors, order, lists, collect)
    return matches, ranked
