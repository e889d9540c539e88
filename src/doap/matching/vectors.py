"""Exact search of nearest vectors by Euclidean distance.

Maxima over groups (`maxima`) select the groups that can hold the nearest vector. Their vectors are compared by products
in float64, and those that differ only by rounding by the distance

    |a - b| = sqrt(Σ (a - b)²)  in float64, summed in a fixed order

which is the same on every device and for equal vectors, wherever they are. Of equally near vectors the first is taken.
Of equal vectors only the first is searched: sets with thousands of copies would have as many candidates.
"""

import math
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import torch
from torch import Tensor

from doap.devices import uses_triton
from doap.matching.maxima import group_runs, parallel_map, second_largest, vector_maxima

CPU_PAIRS = 1 << 11  # pairs of an item and a group compared at once by one thread: 2 MiB of products
DEVICE_PAIRS = 1 << 18
DIFFERENCES = 1 << 16  # vectors subtracted at once
ROUNDING = 2.0**-52  # of one float64 operation
HASHED = 16  # values of a vector that show in most sets that all vectors differ
MAX_CANDIDATES = 4  # per group, beyond which float32 similarities are replaced by float64


class UniqueVectors:
    """The different vectors of a set, in the order of their first occurrence.

    Attributes:
        values: (U, D) vectors, all different.
        indices: (U,) index of the first occurrence of each, or None if all vectors of the set are different.
        inverse: (N,) index into `values` of each vector of the set, or None.
        is_repeated: (U,) whether the set holds the vector more than once, or None.
    """

    def __init__(self, vectors: Tensor) -> None:
        self.values = vectors
        self.indices: Tensor | None = None
        self.inverse: Tensor | None = None
        self.is_repeated: Tensor | None = None
        first = _first_equal(vectors)
        if first is None:
            return
        self.indices = (first == torch.arange(len(first), device=first.device)).nonzero()[:, 0]
        position = torch.empty_like(first)
        position[self.indices] = torch.arange(len(self.indices), device=first.device)
        self.inverse = position[first]
        self.is_repeated = torch.bincount(self.inverse, minlength=len(self.indices)) > 1
        self.values = vectors[self.indices]

    def to_set(self, indices: Tensor) -> Tensor:
        """Return the indices into the set of indices into `values`."""
        return indices if self.indices is None else self.indices[indices]

    def from_set(self, indices: Tensor) -> Tensor:
        """Return the indices into `values` of indices into the set."""
        return indices if self.inverse is None else self.inverse[indices]


@dataclass(frozen=True)
class _Direction:
    """Search from the vectors `own` in the vectors `other`.

    Attributes:
        maxima: (groups of `other`, N) largest similarities.
        similarities: (N, K) padded to whole groups, or None; see `GroupMaxima`.
        size: Vectors per group.
        error: () bound of the rounding error of maxima and similarities.
        tolerance: Bound of the difference of two products in float64 whose exact values are equal.
    """

    own: Tensor
    other: Tensor
    maxima: Tensor
    similarities: Tensor | None
    size: int
    error: Tensor
    tolerance: float

    def nearest(self, items: Tensor | None = None) -> Tensor:
        """Find the nearest vector of the given items, or of all: (M,) indices."""
        maxima = self.maxima if items is None else self.maxima.index_select(1, items)
        if items is None:
            items = torch.arange(len(self.own), device=maxima.device)
        groups, positions = (maxima >= maxima.amax(0) - 2 * self.error).nonzero(as_tuple=True)
        return self._compare(items, groups, positions, None)

    def second(self, items: Tensor, excluded: Tensor) -> Tensor:
        """Find the nearest vector but the excluded: (M,) indices, the number of vectors if there is none.

        Args:
            items: (M,) indices.
            excluded: (M,) index of the nearest vector, or -1 to exclude none.
        """
        maxima = self.maxima.index_select(1, items)
        # The second nearest is at least as similar as the second largest maximum, which another vector has.
        groups, positions = (maxima >= second_largest(maxima) - 2 * self.error).nonzero(as_tuple=True)
        return self._compare(items, groups, positions, excluded)

    def squared_distances(self, items: Tensor, indices: Tensor) -> Tensor:
        """Compute the squared distances of pairs in float64, (M,): sums by halves, whose order no device changes."""
        squared = torch.empty(len(items), dtype=torch.float64, device=self.own.device)
        for start in range(0, len(items), DIFFERENCES):
            block = slice(start, start + DIFFERENCES)
            a, b = self.own.index_select(0, items[block]), self.other.index_select(0, indices[block])
            squares = (a.double() - b.double()).square_()
            count = squares.shape[1]
            while count > 1:
                half = (count + 1) // 2
                squares[:, : count - half] += squares[:, half:count]
                count = half
            squared[block] = squares[:, 0]
        return squared

    def _compare(self, items: Tensor, groups: Tensor, positions: Tensor, excluded: Tensor | None) -> Tensor:
        """Find the nearest vector of each item among the vectors of the groups at its position, but the excluded."""

        def candidates(start: int) -> tuple[Tensor, Tensor]:
            group, position = groups[start : start + step], positions[start : start + step]
            column = None if excluded is None else excluded[position] - group * self.size
            pair, column = self._candidates(items[position], group, column)
            return position[pair], group[pair] * self.size + column

        if not len(items):
            return items
        step = CPU_PAIRS if self.own.device.type == "cpu" else DEVICE_PAIRS
        blocks = parallel_map(candidates, range(0, len(groups), step), self.own.device)
        position, index = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        if excluded is None and len(index) == len(items):
            return torch.empty_like(index).scatter_(0, position, index)
        # Distances decide where an item has several candidates. Of equal distances the smallest index is kept.
        tied = (torch.bincount(position, minlength=len(items))[position] > 1).nonzero()[:, 0]
        distance = self.squared_distances(items[position[tied]], index[tied])
        shortest = torch.full((len(items),), math.inf, dtype=torch.float64, device=index.device)
        shortest.scatter_reduce_(0, position[tied], distance, "amin")
        index[tied] = index[tied].masked_fill(distance > shortest[position[tied]], len(self.other))
        nearest = torch.full((len(items),), len(self.other), device=index.device)
        return nearest.scatter_reduce_(0, position, index, "amin")

    def _candidates(self, items: Tensor, groups: Tensor, excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        """Select the vectors that can be the nearest of their group: indices of pairs, and positions in the group.

        Args:
            items: (M,) indices.
            groups: (M,) groups, ascending.
            excluded: (M,) position in the group of a vector to leave out; out of range for none.
        """
        if self.similarities is not None:
            scores = self.similarities.view(len(self.similarities), -1, self.size)[items, groups]
            pair, column = _largest(scores, excluded, 2 * self.error)
            if len(pair) <= MAX_CANDIDATES * len(items):
                return pair, column
        return _largest(self._scores(items, groups), excluded, self.tolerance)

    def _scores(self, items: Tensor, groups: Tensor) -> Tensor:
        """Compare items with the vectors of their groups in float64, up to a constant per item: (M, size)."""
        if uses_triton(self.own):
            scores: Tensor = import_module("doap.matching.triton_maxima").vector_scores(
                self.own, self.other, items, groups
            )
            return scores
        scores = torch.full((len(items), self.size), -math.inf, dtype=torch.float64, device=items.device)
        for group, run in group_runs(groups):
            block = self.other[group * self.size : (group + 1) * self.size].double()
            scores[run, : len(block)] = (
                self.own.index_select(0, items[run]).double() @ block.T - block.square().sum(1) / 2
            )
        return scores


class VectorSearch:
    """Search between two sets of vectors; see `doap.matching.nearest`.

    Args:
        first: (N, D) of a floating-point type, N > 0.
        second: (K, D) of the same type and device, K > 0.
        largest: Largest absolute value in both sets, finite.
        both: Whether `is_mutual` will be called.
    """

    def __init__(self, first: Tensor, second: Tensor, largest: float, both: bool) -> None:
        self.first, self.second = UniqueVectors(first), UniqueVectors(second)
        a, b = self.first.values, self.second.values
        maxima = vector_maxima(a, b, largest, both)
        dimensions = a.shape[1]
        # Both norms are at most sqrt(D) times the largest value; their sum is squared.
        tolerance = 2 * (dimensions + 8) * ROUNDING * 4 * dimensions * largest**2
        if a.device.type == "mps":  # which has no float64
            a, b = a.cpu(), b.cpu()
        shared = maxima.size, maxima.error.to(a.device), tolerance
        kept = maxima.similarities
        self._forward = _Direction(a, b, maxima.forward.to(a.device), kept, *shared)
        self._backward = None
        if maxima.backward is not None:
            kept = None if kept is None else kept.T
            self._backward = _Direction(b, a, maxima.backward.to(a.device), kept, *shared)

    def distinct_items(self, ratio: float) -> Tensor:
        """Select the items of the first set that can be mutual and pass the ratio test, among others: (M,)."""
        maxima, error = self._forward.maxima, self._forward.error
        # A similarity is -d² / 2; the second nearest is at least as similar as the second largest maximum.
        nearest, second = (maxima.amax(0) + error).clamp(max=0), second_largest(maxima) - error
        return self.first.to_set((nearest >= ratio**2 * (1 + 1e-5) * second).nonzero()[:, 0])

    def forward(self, items: Tensor | None = None) -> Tensor:
        """Find the nearest vector of the second set of each item of the first, or of the given: (M,) indices."""
        if items is not None:
            return self.second.to_set(self._forward.nearest(self.first.from_set(items)))
        indices = self.second.to_set(self._forward.nearest())
        return indices if self.first.inverse is None else indices[self.first.inverse]

    def distances(self, items: Tensor, indices: Tensor) -> Tensor:
        """Compute the distances of pairs, (P,) float64."""
        return _root(self._forward.squared_distances(self.first.from_set(items), self.second.from_set(indices)))

    def is_mutual(self, items: Tensor, indices: Tensor) -> Tensor:
        """Return whether each item of the first set is the nearest of its nearest, `indices`: (M,)."""
        assert self._backward is not None
        rows, columns = self.first.from_set(items), self.second.from_set(indices)
        largest, largest_back = self._forward.maxima.amax(0), self._backward.maxima.amax(0)
        is_mutual = largest[rows] >= largest_back[columns] - 2 * self._forward.error
        is_mutual &= self.first.to_set(rows) == items  # of equal items only the first
        possible = is_mutual.nonzero()[:, 0]
        nearest = self.first.to_set(self._backward.nearest(columns[possible]))
        is_mutual[possible] = nearest == items[possible]
        return is_mutual

    def second_distances(self, items: Tensor, indices: Tensor) -> Tensor:
        """Return the distances of items of the first set to the nearest but one, (P,); infinity if there is none."""
        excluded = self.second.from_set(indices)
        if self.second.is_repeated is not None:
            excluded = excluded.masked_fill(self.second.is_repeated[excluded], -1)
        items = self.first.from_set(items)
        indices = self._forward.second(items, excluded)
        is_none = indices == len(self.second.values)
        squared = self._forward.squared_distances(items, indices.masked_fill(is_none, 0))
        return _root(squared).masked_fill(is_none, math.inf)


def _first_equal(vectors: Tensor) -> Tensor | None:
    """Return the index of the first vector equal to each vector, or None if all are different."""
    few = vectors[:, :HASHED]
    if few.shape != vectors.shape and _first_equal(few) is None:
        return None
    width = 8 // vectors.element_size()
    padded = torch.nn.functional.pad(vectors + 0.0, (0, -vectors.shape[1] % width))  # -0 becomes 0
    # Flat, as the rows of a single transposed vector count as contiguous whatever their stride.
    words = padded.flatten().view(torch.int64).reshape(len(vectors), -1)
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(1 << 62), 1 << 62, (words.shape[1],), generator=generator) * 2 + 1
    hashes, order = ((words ^ (words >> 31)) * factors.to(words.device)).sum(1).sort(stable=True)
    is_new = torch.cat([hashes.new_ones(1, dtype=torch.bool), hashes[1:] != hashes[:-1]])
    if bool(is_new.all()):
        return None
    first = torch.empty_like(order)
    first[order] = order[is_new.nonzero()[:, 0]][is_new.cumsum(0) - 1]
    is_equal = (vectors == vectors[first]).all(1)
    return torch.where(is_equal, first, torch.arange(len(first), device=first.device))


def _largest(scores: Tensor, excluded: Tensor | None, tolerance: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return the rows and columns of the scores that are within a tolerance of the largest of their row."""
    if excluded is not None:
        rows = ((excluded >= 0) & (excluded < scores.shape[1])).nonzero()[:, 0]
        scores[rows, excluded[rows]] = -math.inf
    floor = (scores.amax(1, keepdim=True) - tolerance).clamp(min=torch.finfo(scores.dtype).min)
    row, column = (scores >= floor).nonzero(as_tuple=True)
    return row, column


def _root(squared: Tensor) -> Tensor:
    """Return the correctly rounded square roots; PyTorch's on the CPU are not, with MKL."""
    return torch.from_numpy(np.sqrt(squared.numpy())) if squared.device.type == "cpu" else squared.sqrt()
