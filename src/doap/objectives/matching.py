"""The AP of matching: what one nearest neighbour a query, ranked by distance in one list of all queries, is worth.

That is how images are matched, and how benchmarks of matching judge. Each query's own list leaves open how distances
of different queries compare; a pool of all pairs counts thousands of easy non-matches for each match. This list holds
every matching pair P = {(q, x) : x ∈ S⁺(q)} and, as often, the query's nearest non-match (notation as in
`average_precision`):

    n(q) = argmin_{x ∈ S⁻(q)} D(q, x)
    h⁺_k = Σ_P δ(D(q, x) + a, k)
    h_k  = h⁺_k + Σ_P δ(D(q, n(q)), k)
    a    = max(0, mean_P D(q, n(q)) - mean_P D(q, x))

a is a handicap: matches start behind by the lead that they have on average. Without it the list is soon all but sorted,
and few pairs have a gradient left; with it the list stays undecided however good the descriptor becomes. It is a
constant of each batch and has no gradient. S⁻ may be empty: then the second sum leaves the query out.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from doap.objectives.average_precision import distances_of, inner_products, kernel, relaxed_average_precision
from doap.objectives.lists import IgnoreTable, reach
from doap.types import Kind

ENTRIES = 1 << 24  # of the distances that are held at once


def matching_precision(
    descriptors: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | Tensor | None = None
) -> Tensor:
    """Relaxed AP of the list of matching, a scalar with a gradient.

    Args:
        descriptors: (M, d) unit vectors or relaxed bits.
        groups: (M,) integers, on any device; at least two are equal.
        bins: b, the number of bin intervals.
        ignore: an `IgnoreTable` on the descriptors' device, or an (M, M) bool mask there.
    """
    device = descriptors.device
    first, second = matching_pairs(groups)
    pairs_of = torch.bincount(torch.cat((first, second)), minlength=len(groups))
    # Sent without waiting: a GPU that is waited for stands idle while the next kernels are prepared.
    first, second, pairs_of, groups = (each.to(device, non_blocking=True) for each in (first, second, pairs_of, groups))
    matches = distances(descriptors[first], descriptors[second], kind)
    near, exists = nearest_non_matches(descriptors, groups, ignore)
    others = distances(descriptors, descriptors[near], kind)
    counted = (pairs_of * exists).to(others.dtype)
    handicap = (counted * others).sum() / counted.sum().clamp(min=1) - matches.mean()
    farthest = reach(kind, descriptors.shape[1])
    # Of each pair both ends are queries.
    twice = torch.full_like(matches, 2)
    matched = _histogram(matches + handicap.detach().clamp(min=0), twice, bins, farthest)
    return relaxed_average_precision(matched, matched + _histogram(others, counted, bins, farthest)).squeeze(0)


def matching_pairs(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Where the patches of each matching pair are, both (P,): every pair once, on the device of the groups.

    Example:
        >>> first, second = matching_pairs(torch.tensor([5, 5, 7, 5]))
        >>> list(zip(first.tolist(), second.tolist()))
        [(0, 1), (1, 3), (0, 3)]
    """
    in_order, order = groups.sort(stable=True)
    firsts, seconds = [order[:0]], [order[:0]]
    for apart in range(1, len(groups)):
        start = (in_order[apart:] == in_order[:-apart]).nonzero().flatten()
        if not len(start):
            break
        firsts.append(order[start])
        seconds.append(order[start + apart])
    return torch.cat(firsts), torch.cat(seconds)


@torch.no_grad()
def nearest_non_matches(
    descriptors: Tensor, groups: Tensor, ignore: IgnoreTable | Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Of each query, where its nearest non-match is, (M,), and whether there is one, (M,) bool.

    Among unit vectors and among relaxed bits the nearest has the largest inner product.
    """
    found = []
    for rows in _slices(len(descriptors)):
        products = inner_products(descriptors[rows], descriptors)
        products.masked_fill_(groups[rows, None] == groups, -torch.inf)
        if isinstance(ignore, IgnoreTable):
            products.masked_fill_(ignore.table[ignore.labels[rows]][:, ignore.labels], -torch.inf)
        elif ignore is not None:
            products.masked_fill_(ignore[rows], -torch.inf)
        found.append(products.max(1))
    values, places = (torch.cat([each[part] for each in found]) for part in (0, 1))
    return places, values > -torch.inf


def distances(one: Tensor, other: Tensor, kind: Kind) -> Tensor:
    """D of each row of two (N, d) descriptors, (N,)."""
    return distances_of((one * other).sum(1), kind, one.shape[1])


def _histogram(values: Tensor, weights: Tensor, bins: int, farthest: float) -> Tensor:
    """h_k = Σ weight δ(value, k) of one list, (1, bins + 1).

    Summed densely: one list is cheap, and the sums of a GPU do not depend on the order of its threads.
    """
    positions = values.clamp(max=farthest) * (bins / farthest)
    return (weights[:, None] * kernel(positions, bins)).sum(0, keepdim=True)


def _slices(items: int) -> Iterator[slice]:
    side = max(1, ENTRIES // max(1, items))
    return (slice(start, start + side) for start in range(0, items, side))
