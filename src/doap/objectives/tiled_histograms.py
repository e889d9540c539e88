"""The two passes of the fused histograms in plain PyTorch, tile by tile: for CPUs and devices without kernels.

A distance D lies at position D / w, between the bins k = ⌊D / w⌋ and k + 1. It adds the fraction D / w - k to the
upper bin and the rest to the lower one. With c_k the number of pairs whose lower bin is k, and s_k the sum of their
fractions, a query's histogram and the slope of the loss L with respect to one distance are

    h_k   = c_k - s_k + s_{k-1}
    ∂L/∂D = (∂L/∂h_{k+1} - ∂L/∂h_k) / w

so the work per pair does not depend on the number of bins. The chain rule (paper, appendix A) continues with

    ∂D/∂F(x) = -F(x') / D    real-valued (0 at D = 0)
    ∂D/∂F(x) = -F(x') / 2    binary

Distances are symmetric, so a tile of pairs within `rows` is visited once for both of its sides.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from doap.objectives.average_precision import zero_threshold
from doap.objectives.lists import RankedLists


class _Tile(NamedTuple):
    queries: slice
    items: slice
    is_mirrored: bool  # the items are queries too, and no other tile holds these pairs
    is_diagonal: bool  # queries and items are the same


def histograms(descriptors: Tensor, lists: RankedLists) -> tuple[Tensor, Tensor]:
    """Compute the soft histograms of the queries in `lists.rows`: the first pass.

    Args:
        descriptors: (M, d) unit vectors or relaxed bits, sorted by group.
        lists: Parameters of the histograms.

    Returns:
        h⁺ and h, each (len(rows), bins + 1); NaN if a descriptor is not finite.
    """
    if not descriptors.isfinite().all():
        undefined = descriptors.new_full((len(lists.rows), lists.bins + 1), torch.nan)
        return undefined, undefined.clone()
    # One column per lower bin 0..b, and a last one for the pairs that are in no list.
    sums = descriptors.new_zeros(2, 2, len(lists.rows), lists.bins + 2)
    (match_counts, match_fractions), (counts, fractions) = sums
    ones = descriptors.new_ones(1, 1)
    for tile in _tiles(lists, len(descriptors), _tile_size(descriptors)):
        is_match = _match_mask(lists, tile)
        position, lower_bin = _bin_positions(descriptors, lists, tile, is_match)
        fraction = position.frac_()
        additions = [(counts, ones.expand_as(fraction)), (fractions, fraction)]
        if is_match is not None:
            additions += [(match_counts, is_match.to(fraction.dtype)), (match_fractions, is_match * fraction)]
        for total, addition in additions:
            _select_rows(total, lists, tile.queries).scatter_add_(1, lower_bin, addition)
            if tile.is_mirrored:
                _select_rows(total, lists, tile.items).T.scatter_add_(0, lower_bin, addition)
    return _combine_sums(match_counts, match_fractions), _combine_sums(counts, fractions)


def descriptor_gradient(descriptors: Tensor, lists: RankedLists, grad_matches: Tensor, grad_ranked: Tensor) -> Tensor:
    """Compute the gradient of the descriptors in `lists.rows`, as queries and as items: the second pass.

    Args:
        descriptors: (M, d), as in `histograms`.
        lists: Parameters of the histograms.
        grad_matches: ∂L/∂h⁺ of all M queries, (M, bins + 1).
        grad_ranked: ∂L/∂h of all M queries, (M, bins + 1).

    Returns:
        (len(rows), d). For unit vectors correct up to a multiple of the descriptor itself, which the gradient of
        the normalisation removes.
    """
    if not descriptors.isfinite().all():
        return torch.full_like(descriptors[lists.rows.start : lists.rows.stop], torch.nan)
    match_slopes, slopes = _distance_slopes(grad_matches, lists.width), _distance_slopes(grad_ranked, lists.width)
    gradient = descriptors.new_zeros(len(lists.rows), descriptors.shape[1])
    for tile in _tiles(lists, len(descriptors), _tile_size(descriptors)):
        is_match = _match_mask(lists, tile)
        position, lower_bin = _bin_positions(descriptors, lists, tile, is_match)
        grad_distance = _pair_slopes(slopes, tile, lower_bin)
        if is_match is not None:
            grad_distance += is_match * _pair_slopes(match_slopes, tile, lower_bin)
        if lists.kind == "real":  # ∂D/∂F(x) = -F(x') / D, and 0 at D = 0
            grad_product = grad_distance.div_(position.mul_(-lists.width)).masked_fill_(position == 0, 0)
        else:  # ∂D/∂F(x) = -F(x') / 2
            grad_product = grad_distance.mul_(-0.5)
        _select_rows(gradient, lists, tile.queries).addmm_(grad_product, descriptors[tile.items])
        if tile.is_mirrored:
            # Faster than transposing the large factor.
            _select_rows(gradient, lists, tile.items).add_((descriptors[tile.queries].T @ grad_product).T)
    return gradient


def _select_rows(values: Tensor, lists: RankedLists, items: slice) -> Tensor:
    """Return the view of some items in a tensor with one row per query in `lists.rows`."""
    return values[items.start - lists.rows.start : items.stop - lists.rows.start]


def _tile_size(descriptors: Tensor) -> int:
    """Return the side of a tile: small enough for the cache of a CPU, or large enough for one launch on a GPU."""
    return 512 if descriptors.device.type == "cpu" else 4096


def _tiles(lists: RankedLists, items: int, size: int) -> Iterator[_Tile]:
    """Yield tiles that cover the pairs of each query in `rows` with every item."""
    rows = lists.rows
    inside = _split_range(rows.start, rows.stop, size)
    outside = _split_range(0, rows.start, size) + _split_range(rows.stop, items, size)
    for number, queries in enumerate(inside):
        yield _Tile(queries, queries, is_mirrored=False, is_diagonal=True)
        for columns in inside[number + 1 :]:
            yield _Tile(queries, columns, is_mirrored=True, is_diagonal=False)
        for columns in outside:
            yield _Tile(queries, columns, is_mirrored=False, is_diagonal=False)


def _split_range(start: int, stop: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def _bin_positions(
    descriptors: Tensor, lists: RankedLists, tile: _Tile, is_match: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return each pair's distance in bin widths and its lower bin, which is bins + 1 for a pair in no list."""
    products = descriptors[tile.queries] @ descriptors[tile.items].T
    if lists.kind == "real":
        squared = products.mul_(-2).add_(2)
        distance = F.threshold(squared, zero_threshold(squared.dtype), 0, inplace=True).sqrt_()
    else:
        distance = products.mul_(-0.5).add_(descriptors.shape[1] / 2)
    position = distance.mul_(1 / lists.width).clamp_(0, lists.bins)
    lower_bin = position.long()
    if tile.is_diagonal:
        lower_bin.fill_diagonal_(lists.bins + 1)
    if lists.ignore is not None:
        table, labels = lists.ignore.table, lists.ignore.labels
        ignored = table[labels[tile.queries]][:, labels[tile.items]]
        if is_match is not None:
            ignored &= ~is_match
        lower_bin.masked_fill_(ignored, lists.bins + 1)
    return position, lower_bin


def _match_mask(lists: RankedLists, tile: _Tile) -> Tensor | None:
    """Return which pairs are of one group, or None if the ranges of the sorted groups do not overlap."""
    queries, items = lists.groups[tile.queries], lists.groups[tile.items]
    if queries[-1] < items[0] or items[-1] < queries[0]:
        return None
    return queries[:, None] == items[None, :]


def _combine_sums(counts: Tensor, fractions: Tensor) -> Tensor:
    """Return h_k = c_k - s_k + s_{k-1}, from sums whose last column is for the pairs in no list."""
    counts, fractions = counts[:, :-1], fractions[:, :-1]
    return counts - fractions + F.pad(fractions[:, :-1], (1, 0))


def _distance_slopes(grad_histogram: Tensor, width: float) -> Tensor:
    """Return ∂L/∂D of a distance with lower bin k, (∂L/∂h_{k+1} - ∂L/∂h_k) / w; 0 for a pair in no list.

    A distance at the last bin centre can only decrease, so it takes the slope of the bin before.
    """
    slope = grad_histogram.diff(dim=1) / width
    return F.pad(torch.cat((slope, slope[:, -1:]), 1), (0, 1))


def _pair_slopes(slopes: Tensor, tile: _Tile, lower_bin: Tensor) -> Tensor:
    """Return each pair's slope in its query's list plus that in its item's list."""
    return slopes[tile.queries].gather(1, lower_bin).add_(slopes[tile.items].T.gather(0, lower_bin))
