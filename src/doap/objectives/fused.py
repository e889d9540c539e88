"""The histograms of `average_precision`, the same numbers without an M x M tensor: O(M b) memory, O(M²) work.

One pass over tiles of pairs makes the histograms; backward visits the tiles again, recomputing their
distances, to turn the gradient of the histograms into that of the descriptors. Everything between, AP and
whatever else is made of the histograms, is ordinary autograd on (M, b + 1) tensors.

On a CPU the result is deterministic. On a GPU it is on request, as everything in PyTorch: by
`torch.use_deterministic_algorithms(True)`, with CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from doap.objectives import tiles
from doap.objectives.lists import IgnoreTable, Kind, Lists


def _passes(descriptors: Tensor) -> ModuleType:
    """Where the two passes are: Triton kernels for float32 on an NVIDIA GPU, else plain PyTorch."""
    if descriptors.is_cuda and descriptors.dtype == torch.float32 and torch.version.hip is None and find_spec("triton"):
        return import_module("doap.objectives.triton_kernels")
    return tiles


class _Histograms(torch.autograd.Function):
    """Both histograms as a function of the descriptors, a pass over the tiles each way."""

    @staticmethod
    def forward(
        ctx: Any, descriptors: Tensor, order: Tensor, lists: Lists, collect: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Make the histograms; `order` sorts the items as `lists` has them."""
        by_group = descriptors[order]
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
            gradient = _passes(by_group).descriptor_gradient(by_group, ctx.lists, by_matches[order], by_ranked[order])
        return _unsort(ctx.collect(gradient), order), None, None, None


def _unsort(rows: Tensor, order: Tensor) -> Tensor:
    return torch.empty_like(rows).index_copy_(0, order, rows)


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
        groups: (M,) integers, on the descriptors' device or on the CPU, where they are then sorted.
        rows: the part of the sorted items that this process works on, all by default; then `collect`
            must put together the rows of all processes, in order.

    Returns:
        Two of (M, bins + 1).
    """
    in_order, order = (part.to(descriptors.device, non_blocking=True) for part in groups.sort())
    if ignore is not None:
        ignore = IgnoreTable(ignore.labels[order], ignore.table)
    reach = 2.0 if kind == "real" else float(descriptors.shape[1])
    lists = Lists(kind, bins, reach / bins, in_order, ignore, range(len(groups)) if rows is None else rows)
    matches, ranked = _histograms(descriptors, order, lists, collect)
    return matches, ranked
