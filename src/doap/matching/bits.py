"""Exact search of nearest bit strings by Hamming distance.

The distance of b bits is (b - s) / 2 with the product s of the bits as ±1. Products are integers, exact in every type
and order: the first group that holds an item's largest product (`maxima`) holds its nearest neighbour, and the first of
equal products in it is the first of the equally near items.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from doap.devices import uses_triton
from doap.matching.maxima import bit_dtype, bit_maxima, group_runs, multiply, product_dtype, second_largest

PAIRS = 1 << 16  # pairs of an item and a group compared at once: 32 MiB of products
NO_PRODUCT = -(1 << 14)  # below every product, and exact in every type of products
MAX_BITS = -NO_PRODUCT - 8  # of whole bytes


@dataclass(frozen=True)
class _Direction:
    """Search from the bits `own` in the bits `other`, both as ±1.

    Attributes:
        maxima: (groups of `other`, N) largest products.
        size: Items per group.
    """

    own: Tensor
    other: Tensor
    maxima: Tensor
    size: int

    def nearest(self, items: Tensor | None = None) -> Tensor:
        """Find the nearest of the given items, or of all: (M,) indices."""
        maxima = self.maxima if items is None else self.maxima.index_select(1, items)
        if items is None:
            items = torch.arange(len(self.own), device=self.own.device)
        groups = maxima.argmax(0)  # the first of equal maxima
        indices = torch.empty_like(items)
        for block, products in self._products(items, groups):
            indices[block] = groups[block] * self.size + products.argmax(1)
        return indices

    def second(self, items: Tensor, nearest: Tensor) -> Tensor:
        """Return the largest product with another item than the nearest, (M,); NO_PRODUCT if there is none."""
        groups = nearest // self.size
        largest = self.maxima.index_select(1, items).scatter(0, groups[None], NO_PRODUCT).amax(0)
        for block, products in self._products(items, groups):
            products.scatter_(1, (nearest[block] % self.size)[:, None], NO_PRODUCT)
            largest[block] = torch.maximum(largest[block], products.amax(1))
        return largest

    def _products(self, items: Tensor, groups: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield blocks of positions in `items`, (B,), and the products of these items and their groups, (B, size)."""
        order = groups.argsort()
        for start in range(0, len(order), PAIRS):
            block = order[start : start + PAIRS]
            if uses_triton(self.own):
                kernels = import_module("doap.matching.triton_maxima")
                yield block, kernels.bit_scores(self.own, self.other, items[block], groups[block], NO_PRODUCT)
            else:
                yield block, self._sorted_products(items[block], groups[block])

    def _sorted_products(self, items: Tensor, groups: Tensor) -> Tensor:
        """Compute the products of items and their groups, in ascending order of the groups."""
        dtype = product_dtype(self.own.dtype)
        products = torch.full((len(items), self.size), NO_PRODUCT, dtype=dtype, device=items.device)
        for group, run in group_runs(groups):
            block = self.other[group * self.size : (group + 1) * self.size]
            products[run, : len(block)] = multiply(self.own.index_select(0, items[run]), block)
        return products


class BitSearch:
    """Search between two sets of packed bits; see `doap.matching.nearest`.

    Args:
        first: (N, bits / 8) uint8, N > 0.
        second: (K, bits / 8) uint8 on the same device, K > 0.
        both: Whether `is_mutual` will be called.

    Raises:
        ValueError: If the bit strings are longer than `MAX_BITS`.
    """

    def __init__(self, first: Tensor, second: Tensor, both: bool) -> None:
        bits = 8 * first.shape[1]
        if bits > MAX_BITS:
            raise ValueError(f"bit strings have {bits:,} bits, at most {MAX_BITS:,} can be compared")
        dtype = bit_dtype(first, second)
        a, b = unpack_signs(first, dtype), unpack_signs(second, dtype)
        maxima = bit_maxima(a, b, both)
        self._forward = _Direction(a, b, maxima.forward, maxima.size)
        self._backward = None if maxima.backward is None else _Direction(b, a, maxima.backward, maxima.size)

    def distinct_items(self, ratio: float) -> Tensor:
        """Select the items of the first set that can pass the ratio test, among others: (M,)."""
        maxima, bits = self._forward.maxima, self._forward.own.shape[1]
        # The second nearest is at least as near as the second largest maximum.
        nearest, second = ((bits - x.float()) for x in (maxima.amax(0), second_largest(maxima)))
        return (nearest <= ratio * (1 + 1e-5) * second).nonzero()[:, 0]

    def forward(self, items: Tensor | None = None) -> Tensor:
        """Find the nearest item of the second set of each item of the first, or of the given: (M,) indices."""
        return self._forward.nearest(items)

    def distances(self, items: Tensor, indices: Tensor) -> Tensor:
        """Count the bits that differ in each pair, (P,)."""
        return (self._forward.own.index_select(0, items) != self._forward.other.index_select(0, indices)).sum(1)

    def is_mutual(self, items: Tensor, indices: Tensor) -> Tensor:
        """Return whether each item of the first set is the nearest of its nearest, `indices`: (M,)."""
        assert self._backward is not None
        is_mutual = self._forward.maxima.amax(0)[items] == self._backward.maxima.amax(0)[indices]
        possible = is_mutual.nonzero()[:, 0]
        is_mutual[possible] = self._backward.nearest(indices[possible]) == items[possible]
        return is_mutual

    def second_distances(self, items: Tensor, indices: Tensor) -> Tensor:
        """Return the distances of items of the first set to the nearest but one, (P,); infinity if there is none."""
        products = self._forward.second(items, indices)
        distances = (self._forward.own.shape[1] - products.float()) / 2
        return distances.masked_fill(products == NO_PRODUCT, torch.inf)


def unpack_signs(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """Unpack (N, bits / 8) uint8 to (N, bits) values ±1, the most significant bit first."""
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=packed.device)
    bits = (packed[:, :, None] >> shifts) & 1
    return bits.flatten(1).to(dtype).mul_(2).sub_(1)
