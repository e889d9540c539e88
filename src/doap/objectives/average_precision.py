"""Relaxed Average Precision, the listwise objective with a gradient (paper, section 3.2).

Every patch of a batch is a query that ranks all the others. Distances are quantised into bins k = 0..b with
centres z_k = k w by the triangular kernel δ(d, k) = max(0, 1 - |d - z_k| / w):

    h⁺_k = Σ_{x ∈ S⁺} δ(D(q, x), k)          soft count of matches at distance z_k
    h_k  = Σ_{x ∈ S⁺ ∪ S⁻} δ(D(q, x), k)     soft count of all ranked items at distance z_k
    H_k  = h_0 + … + h_k                     (H⁺_k likewise)

    AP(q) = 1/|S⁺| Σ_k h⁺_k (H⁺_{k-1} + H⁺_k + 1) / (H_{k-1} + H_k + 1)

    D(x, x') = √(2 - 2 F(x)ᵀF(x'))           real-valued: Euclidean between unit vectors, in [0, 2]
    D(x, x') = (d - F(x)ᵀF(x')) / 2          binary: Hamming between d bits relaxed by tanh, in [0, d]

S⁺ are the other patches of the query's group, S⁻ the patches of other groups without the ignored ones.

This file is the definition, with M x M tensors. `fused` computes the same histograms without them.
"""

from importlib import import_module

import torch
from torch import Tensor

from doap.devices import uses_triton
from doap.objectives.lists import IgnoreTable, max_distance
from doap.types import Kind


def has_triton_kernels(values: Tensor) -> bool:
    """Return whether the Triton kernels support these values: on NVIDIA GPUs, and not in float64."""
    return uses_triton(values) and values.dtype != torch.float64


def relaxed_descriptors(outputs: Tensor, kind: Kind) -> Tensor:
    """Return the descriptors to measure distances between: unit vectors, or bits relaxed by tanh.

    Args:
        outputs: (M, d) raw activations.
        kind: "real" or "binary".

    Returns:
        (M, d), at least float32: counts up to M and distances near 0 need the precision. An output of zeros
        has no direction: it stays 0, with gradient 0. So do outputs whose squared length overflows or underflows,
        in float32 those longer than 1e19 or shorter than 1e-19.
    """
    if kind == "real" and has_triton_kernels(outputs):
        unit: Tensor = import_module("doap.objectives.triton_rowwise").NormaliseRows.apply(outputs)
        return unit
    if outputs.dtype in (torch.float16, torch.bfloat16):
        outputs = outputs.float()
    if kind == "binary":
        return outputs.tanh()
    norm = outputs.norm(dim=1, keepdim=True)
    is_nonzero = norm != 0
    return torch.where(is_nonzero, outputs / torch.where(is_nonzero, norm, 1), 0)


def zero_threshold(dtype: torch.dtype) -> float:
    """Return the largest squared distance of unit vectors that rounding cannot distinguish from 0: a few ulp of 2."""
    return 16 * torch.finfo(dtype).eps


def safe_sqrt(squared: Tensor) -> Tensor:
    """Return √x, with value and gradient 0 where x is 0 up to rounding: there the slope of √ is infinite.

    NaN stays NaN.
    """
    is_positive = ~(squared <= zero_threshold(squared.dtype))
    return torch.where(is_positive, squared, 1).sqrt() * is_positive


def inner_products(descriptors: Tensor, others: Tensor) -> Tensor:
    """Return F(x)ᵀF(x'), (M, N), in full precision under autocast too: half precision would shift small distances."""
    with torch.autocast(descriptors.device.type, enabled=False):
        return descriptors @ others.T


def distances_from_products(products: Tensor, kind: Kind, dimensions: int) -> Tensor:
    """Return D from inner products of any shape, clamped to 0..`max_distance`.

    D = √(2 - 2 F(x)ᵀF(x')) for real-valued and (d - F(x)ᵀF(x')) / 2 for binary descriptors.
    """
    if kind == "real":
        return safe_sqrt((2 - 2 * products).clamp(max=4))
    return ((dimensions - products) / 2).clamp(0, dimensions)


def euclidean_distances(descriptors: Tensor, others: Tensor) -> Tensor:
    """Return D(x, x') = √(2 - 2 F(x)ᵀF(x')) between unit vectors.

    Args:
        descriptors: (M, d), each row of length 1.
        others: (N, d), likewise.

    Returns:
        (M, N), in [0, 2]. Equal descriptors are at distance 0 with gradient 0.
    """
    return distances_from_products(inner_products(descriptors, others), "real", descriptors.shape[1])


def hamming_distances(descriptors: Tensor) -> Tensor:
    """Return D(x, x') = (d - F(x)ᵀF(x')) / 2, (M, M) in [0, d], of (M, d) descriptors in [-1, 1]."""
    return distances_from_products(inner_products(descriptors, descriptors), "binary", descriptors.shape[1])


def triangular_kernel(positions: Tensor, bins: int) -> Tensor:
    """Return δ of N distances and each bin, (N, bins + 1).

    Args:
        positions: (N,) distances in bin widths.
        bins: b, the number of bin intervals.
    """
    return (1 - (positions[:, None] - torch.arange(bins + 1, device=positions.device)).abs()).relu()


def soft_histogram(distances: Tensor, weights: Tensor, bins: int, width: float) -> Tensor:
    """Return the histogram of each row by the triangular kernel, h_k = Σ_x weight_x δ(D(q, x), k).

    The kernel is as wide as the bins are apart, so each distance contributes to exactly two bins, the one
    below it and the one above, with weights that sum to 1: two scatter-adds for any number of bins.

    Args:
        distances: (M, N), in [0, bins * width].
        weights: (M, N), weight of each distance; 0 leaves it out.
        bins: b, the number of bin intervals.
        width: w, the distance between two bin centres.

    Returns:
        (M, bins + 1).
    """
    position = distances / width
    lower_bin = position.detach().floor().long().clamp(0, bins - 1)
    upper_weight = position - lower_bin
    histogram = distances.new_zeros(len(distances), bins + 1)
    histogram = histogram.scatter_add(1, lower_bin, weights * (1 - upper_weight))
    return histogram.scatter_add(1, lower_bin + 1, weights * upper_weight)


def dense_histograms(
    descriptors: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return h⁺ and h of every query, from the M x M matrix of distances.

    Args:
        descriptors: (M, d) unit vectors or relaxed bits.
        groups: (M,) integer group of each patch.
        kind: "real" or "binary".
        bins: b, the number of bin intervals.
        ignore: An `IgnoreTable`, or an (M, M) bool mask: whether query i ignores item j.

    Returns:
        h⁺ and h, each (M, bins + 1).
    """
    dimensions = descriptors.shape[1]
    distances = distances_from_products(inner_products(descriptors, descriptors), kind, dimensions)
    if isinstance(ignore, IgnoreTable):
        ignore = ignore.table[ignore.labels][:, ignore.labels]
    others = ~torch.eye(len(groups), dtype=torch.bool, device=groups.device)
    same_group = groups[:, None] == groups[None, :]
    matches = same_group & others
    ranked = others if ignore is None else matches | (others & ~ignore)
    width = max_distance(kind, dimensions) / bins
    return (
        soft_histogram(distances, matches.to(distances.dtype), bins, width),
        soft_histogram(distances, ranked.to(distances.dtype), bins, width),
    )


def rebin_histograms(histograms: tuple[Tensor, Tensor], bins: int, power: float) -> tuple[Tensor, Tensor]:
    """Return soft histograms in uneven bins from those in fine even bins, each (N, n + 1) to (N, bins + 1).

    The fine bin j has its centre at u_j = j / n in [0, 1] and is distributed over the new bins k with the weights
    δ(u_j^power, k), w = 1 / bins: a matrix product. The resulting kernel is the exact one, interpolated linearly
    between fine bin centres.
    """
    matches, ranked = histograms
    fine_bins = torch.arange(matches.shape[1], dtype=matches.dtype, device=matches.device)
    weights = triangular_kernel(bins * (fine_bins / fine_bins[-1]) ** power, bins).T
    return inner_products(matches, weights), inner_products(ranked, weights)


def cumulative_histograms(histograms: Tensor) -> Tensor:
    """Return H_k = h_0 + … + h_k along the rows of (N, b + 1) histograms."""
    if not torch.are_deterministic_algorithms_enabled():
        return histograms.cumsum(1)
    # cumsum has no deterministic implementation on a GPU, a matrix product has.
    triangle = torch.ones(
        histograms.shape[1], histograms.shape[1], dtype=torch.float64, device=histograms.device
    ).triu()
    return (histograms.double() @ triangle).to(histograms.dtype)


def relaxed_average_precision(matches: Tensor, ranked: Tensor) -> Tensor:
    """Return the AP of each list from its two histograms, (N,); 0 for a list without a match.

    Args:
        matches: (N, b + 1), h⁺ of the matches.
        ranked: (N, b + 1), h of all ranked items.
    """
    if has_triton_kernels(matches):
        function = import_module("doap.objectives.triton_rowwise").RelaxedAveragePrecision
        precisions: Tensor = function.apply(matches, ranked)
        return precisions
    cumulative_matches, cumulative_ranked = cumulative_histograms(matches), cumulative_histograms(ranked)
    # H_{k-1} + H_k = 2 H_k - h_k
    precision = (2 * cumulative_matches - matches + 1) / (2 * cumulative_ranked - ranked + 1)
    # The number of matches depends on the labels, not on the descriptors: no gradient.
    return (matches * precision).sum(1) / cumulative_matches[:, -1].detach().clamp(min=1)


def pool_histograms(histograms: Tensor, pools: Tensor | None) -> Tensor:
    """Return the histograms of pooled lists, each the sum over its queries: (M, b + 1) to (P, b + 1).

    Args:
        histograms: (M, b + 1), one row per query.
        pools: (M,) integer pool of each query, or None for one pool of all queries.
    """
    if pools is None:
        return histograms.sum(0, keepdim=True)
    labels, indices = torch.unique(pools, return_inverse=True)
    return histograms.new_zeros(len(labels), histograms.shape[1]).index_add(0, indices, histograms)
