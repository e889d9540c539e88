"""The AP of the matching list: all matches and nearest non-matches of all queries, ranked by distance in one list.

Image matching takes one nearest neighbour per query, and benchmarks rank these neighbours over all queries. The AP of
single queries does not constrain how distances of different queries compare. A pool of all pairs counts thousands of
easy non-matches per match. The matching list holds every matching pair P = {(q, x) : x ∈ S⁺(q)} and, equally often,
the query's nearest non-match n(q) (notation as in `average_precision`; not part of the paper):

    n(q) = argmin_{x ∈ S⁻(q)} D(q, x)
    h⁺_k = Σ_P δ(D(q, x) + a, k)
    h_k  = h⁺_k + Σ_P δ(D(q, n(q)), k)
    a    = max(0, mean_P D(q, n(q)) - mean_P D(q, x))

The adaptive margin a is the mean lead of the matches. Without it the list is almost sorted early in training, and few
pairs have a gradient; with it the list stays mixed however good the descriptor becomes. It is computed per batch and
has no gradient. A query with empty S⁻ is left out of the second sum.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from doap.objectives.average_precision import (
    distances_from_products,
    inner_products,
    relaxed_average_precision,
    triangular_kernel,
)
from doap.objectives.lists import IgnoreTable, max_distance
from doap.types import Kind

BLOCK_ENTRIES = 1 << 24  # inner products held at once


def matching_average_precision(
    descriptors: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | Tensor | None = None
) -> Tensor:
    """Compute the relaxed AP of the matching list, a scalar with a gradient.

    Args:
        descriptors: (M, d) unit vectors or relaxed bits.
        groups: (M,) integers, on any device; at least two are equal.
        kind: "real" or "binary".
        bins: b, the number of bin intervals.
        ignore: An `IgnoreTable` on the descriptors' device, or an (M, M) bool mask there.
    """
    device = descriptors.device
    first, second = matching_pairs(groups)
    pair_counts = torch.bincount(torch.cat((first, second)), minlength=len(groups))
    # Copied asynchronously: a synchronised GPU is idle while the next kernels are launched.
    first, second, pair_counts, groups = (
        indices.to(device, non_blocking=True) for indices in (first, second, pair_counts, groups)
    )
    match_distances = rowwise_distances(descriptors[first], descriptors[second], kind)
    nearest, has_non_match = nearest_non_matches(descriptors, groups, ignore)
    non_match_distances = rowwise_distances(descriptors, descriptors[nearest], kind)
    weights = (pair_counts * has_non_match).to(non_match_distances.dtype)
    lead = (weights * non_match_distances).sum() / weights.sum().clamp(min=1) - match_distances.mean()
    margin = lead.detach().clamp(min=0)
    largest = max_distance(kind, descriptors.shape[1])
    pair_weights = torch.full_like(match_distances, 2)  # both patches of a pair are queries
    matches = _histogram(match_distances + margin, pair_weights, bins, largest)
    non_matches = _histogram(non_match_distances, weights, bins, largest)
    return relaxed_average_precision(matches, matches + non_matches).squeeze(0)


def matching_pairs(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices of both patches of every matching pair, (P,) each, on the device of the groups.

    Example:
        >>> first, second = matching_pairs(torch.tensor([5, 5, 7, 5]))
        >>> list(zip(first.tolist(), second.tolist()))
        [(0, 1), (1, 3), (0, 3)]
    """
    sorted_groups, order = groups.sort(stable=True)
    firsts, seconds = [order[:0]], [order[:0]]
    for offset in range(1, len(groups)):
        start = (sorted_groups[offset:] == sorted_groups[:-offset]).nonzero().flatten()
        if not len(start):
            break
        firsts.append(order[start])
        seconds.append(order[start + offset])
    return torch.cat(firsts), torch.cat(seconds)


@torch.no_grad()
def nearest_non_matches(
    descriptors: Tensor, groups: Tensor, ignore: IgnoreTable | Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the index of each query's nearest non-match, (M,), and whether it has one, (M,) bool.

    Among unit vectors and among relaxed bits the nearest item has the largest inner product.
    """
    largest_products, indices = [], []
    for rows in _row_blocks(len(descriptors)):
        products = inner_products(descriptors[rows], descriptors)
        products.masked_fill_(groups[rows, None] == groups, -torch.inf)
        if isinstance(ignore, IgnoreTable):
            products.masked_fill_(ignore.table[ignore.labels[rows]][:, ignore.labels], -torch.inf)
        elif ignore is not None:
            products.masked_fill_(ignore[rows], -torch.inf)
        block_products, block_indices = products.max(1)
        largest_products.append(block_products)
        indices.append(block_indices)
    return torch.cat(indices), torch.cat(largest_products) > -torch.inf


def rowwise_distances(descriptors: Tensor, others: Tensor, kind: Kind) -> Tensor:
    """Return D between corresponding rows of two (N, d) tensors, (N,)."""
    return distances_from_products((descriptors * others).sum(1), kind, descriptors.shape[1])


def _histogram(distances: Tensor, weights: Tensor, bins: int, largest: float) -> Tensor:
    """Return h_k = Σ weight δ(distance, k) of one list, (1, bins + 1).

    Summed densely: one list is cheap, and dense sums on a GPU are deterministic.
    """
    positions = distances.clamp(max=largest) * (bins / largest)
    return (weights[:, None] * triangular_kernel(positions, bins)).sum(0, keepdim=True)


def _row_blocks(items: int) -> Iterator[slice]:
    size = max(1, BLOCK_ENTRIES // max(1, items))
    return (slice(start, start + size) for start in range(0, items, size))
