"""The two passes over all pairs, tile by tile in plain PyTorch: for CPUs, and any device without its own kernels.

A pair's distance lies `position` bin widths from 0, between the bins ⌊position⌋ and ⌊position⌋ + 1, and
gives the upper one the share position - ⌊position⌋ and the lower one the rest. So a query's histogram
follows from two sums over the pairs that share a lower bin k, their count c_k and their shares' sum s_k:

    h_k = c_k - s_k + s_{k-1}

and the slope of the loss by one distance is (∂L/∂h_{k+1} - ∂L/∂h_k) / w: work a pair whatever the bins.
A distance is the same from both its ends, so a tile of pairs within `rows` is visited once for both.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from doap.objectives.average_precision import same_below
from doap.objectives.lists import Lists


class _Tile(NamedTuple):
    queries: slice
    items: slice
    mirrored: bool  # the items are queries too, in no other tile with these: serve them here
    diagonal: bool  # queries and items are the same


def histograms(descriptors: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
    """First pass: the soft histograms of the queries in `lists.rows`.

    Args:
        descriptors: (M, d) unit vectors or relaxed bits, sorted by group.

    Returns:
        h⁺ and h, each (len(rows), bins + 1).
    """
    if not descriptors.isfinite().all():  # such a distance lies in no bin: no histogram is a number
        nothing = descriptors.new_full((len(lists.rows), lists.bins + 1), torch.nan)
        return nothing, nothing.clone()
    # A column for each lower bin 0..b, and one for the pairs that are in no list.
    sums = descriptors.new_zeros(2, 2, len(lists.rows), lists.bins + 2)
    (match_counts, match_shares), (counts, shares) = sums
    one = descriptors.new_ones(1, 1)
    for tile in _tiles(lists, len(descriptors), _side(descriptors)):
        match = _matches(lists, tile)
        position, below = _positions(descriptors, lists, tile, match)
        share = position.frac_()
        additions = [(counts, one.expand_as(share)), (shares, share)]
        if match is not None:
            additions += [(match_counts, match.to(share.dtype)), (match_shares, match * share)]
        for total, addition in additions:
            _part(total, lists, tile.queries).scatter_add_(1, below, addition)
            if tile.mirrored:
                _part(total, lists, tile.items).T.scatter_add_(0, below, addition)
    return _soft(match_counts, match_shares), _soft(counts, shares)


def descriptor_gradient(descriptors: Tensor, lists: Lists, by_matches: Tensor, by_ranked: Tensor) -> Tensor:
    """Second pass: the gradient of the loss by the descriptors in `lists.rows`, as queries and as items.

    Args:
        descriptors: (M, d), as in `histograms`.
        by_matches: ∂L/∂h⁺ of all M queries, (M, bins + 1).
        by_ranked: ∂L/∂h of all M queries, (M, bins + 1).

    Returns:
        (len(rows), d). Up to a multiple of the descriptor itself for unit vectors: normalising drops it.
    """
    if not descriptors.isfinite().all():
        return torch.full_like(descriptors[lists.rows.start : lists.rows.stop], torch.nan)
    match_slope, slope = _slopes(by_matches, lists.width), _slopes(by_ranked, lists.width)
    gradient = descriptors.new_zeros(len(lists.rows), descriptors.shape[1])
    for tile in _tiles(lists, len(descriptors), _side(descriptors)):
        match = _matches(lists, tile)
        position, below = _positions(descriptors, lists, tile, match)
        by_distance = _both_ends(slope, tile, below)
        if match is not None:
            by_distance += match * _both_ends(match_slope, tile, below)
        if lists.kind == "real":  # ∂D/∂F(x) = -F(x') / D, and 0 at D = 0
            by_product = by_distance.div_(position.mul_(-lists.width)).masked_fill_(position == 0, 0)
        else:  # ∂D/∂F(x) = -F(x') / 2
            by_product = by_distance.mul_(-0.5)
        _part(gradient, lists, tile.queries).addmm_(by_product, descriptors[tile.items])
        if tile.mirrored:
            # Written so because it is faster than with the large factor transposed.
            _part(gradient, lists, tile.items).add_((descriptors[tile.queries].T @ by_product).T)
    return gradient


def _part(of_rows: Tensor, lists: Lists, items: slice) -> Tensor:
    """The view of a tensor with a row for each query in `lists.rows` that belongs to some of these."""
    return of_rows[items.start - lists.rows.start : items.stop - lists.rows.start]


def _side(descriptors: Tensor) -> int:
    """Rows and columns of a tile: on a CPU what its cache holds, elsewhere enough work for one launch."""
    return 512 if descriptors.device.type == "cpu" else 4096


def _tiles(lists: Lists, items: int, side: int) -> Iterator[_Tile]:
    """Cover the pairs of each query in `rows` with every item."""
    rows = lists.rows
    inside = _cut(rows.start, rows.stop, side)
    outside = _cut(0, rows.start, side) + _cut(rows.stop, items, side)
    for number, queries in enumerate(inside):
        yield _Tile(queries, queries, mirrored=False, diagonal=True)
        for columns in inside[number + 1 :]:
            yield _Tile(queries, columns, mirrored=True, diagonal=False)
        for columns in outside:
            yield _Tile(queries, columns, mirrored=False, diagonal=False)


def _cut(start: int, stop: int, side: int) -> list[slice]:
    return [slice(first, min(first + side, stop)) for first in range(start, stop, side)]


def _positions(descriptors: Tensor, lists: Lists, tile: _Tile, match: Tensor | None) -> tuple[Tensor, Tensor]:
    """Each pair's distance in bin widths, and the bin below it: bins + 1 for a pair that is in no list."""
    products = descriptors[tile.queries] @ descriptors[tile.items].T
    if lists.kind == "real":
        squared = products.mul_(-2).add_(2)
        distance = F.threshold(squared, same_below(squared.dtype), 0, inplace=True).sqrt_()
    else:
        distance = products.mul_(-0.5).add_(descriptors.shape[1] / 2)
    position = distance.mul_(1 / lists.width).clamp_(0, lists.bins)
    below = position.long()
    if tile.diagonal:
        below.fill_diagonal_(lists.bins + 1)
    if lists.ignore is not None:
        table, labels = lists.ignore.table, lists.ignore.labels
        ignored = table[labels[tile.queries]][:, labels[tile.items]]
        if match is not None:
            ignored &= ~match
        below.masked_fill_(ignored, lists.bins + 1)
    return position, below


def _matches(lists: Lists, tile: _Tile) -> Tensor | None:
    """Which pairs are of one group; None where groups, being sorted, cannot meet."""
    queries, items = lists.groups[tile.queries], lists.groups[tile.items]
    if queries[-1] < items[0] or items[-1] < queries[0]:
        return None
    return queries[:, None] == items[None, :]


def _soft(counts: Tensor, shares: Tensor) -> Tensor:
    """h_k = c_k - s_k + s_{k-1}, from sums with a last column for the pairs in no list."""
    counts, shares = counts[:, :-1], shares[:, :-1]
    return counts - shares + F.pad(shares[:, :-1], (1, 0))


def _slopes(by_histogram: Tensor, width: float) -> Tensor:
    """∂L/∂D of a distance above bin k, (∂L/∂h_{k+1} - ∂L/∂h_k) / w; 0 for a pair in no list.

    A distance on the last bin centre moves towards the bin before it, so it takes the slope there.
    """
    slope = by_histogram.diff(dim=1) / width
    return F.pad(torch.cat((slope, slope[:, -1:]), 1), (0, 1))


def _both_ends(slopes: Tensor, tile: _Tile, below: Tensor) -> Tensor:
    """Each pair's slope in its query's list plus that in its item's list."""
    return slopes[tile.queries].gather(1, below).add_(slopes[tile.items].T.gather(0, below))
