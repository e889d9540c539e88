"""The listwise objective: Average Precision, relaxed so that it has a gradient (paper, section 3.2).

Every patch of a batch is a query that ranks all the others. Distances are quantised into bins
k = 0..b with centres z_k = k w by the triangular kernel δ(d, k) = max(0, 1 - |d - z_k| / w):

    h⁺_k = Σ_{x ∈ S⁺} δ(D(q, x), k)          soft count of the query's matches at distance z_k
    h_k  = Σ_{x ∈ S⁺ ∪ S⁻} δ(D(q, x), k)     soft count of all it ranks at distance z_k
    H_k  = h_0 + … + h_k                     (and H⁺_k likewise)

    AP(q) = 1/|S⁺| Σ_k h⁺_k (H⁺_{k-1} + H⁺_k + 1) / (H_{k-1} + H_k + 1)

S⁺ are the other patches of the query's group and S⁻ those of other groups, less the ignored ones. The
distance is Euclidean between unit vectors, in [0, 2], for real-valued descriptors, and the Hamming
distance of tanh-relaxed bits, in [0, bits], for binary ones.

This file is the definition, over M x M tensors; `fused` computes the same histograms without them.
"""

from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from doap.objectives.lists import IgnoreTable, reach
from doap.types import Kind

TRITON = torch.version.hip is None and find_spec("triton") is not None


def has_kernels(values: Tensor) -> bool:
    """Whether our Triton kernels do what is done to these values: not in float64, and on NVIDIA GPUs alone."""
    return TRITON and values.is_cuda and values.dtype != torch.float64


def relaxed_descriptors(outputs: Tensor, kind: Kind) -> Tensor:
    """What the distances are measured between: unit vectors, or bits relaxed by tanh.

    Args:
        outputs: (M, d) raw activations.

    Returns:
        (M, d), float32 at least: counts up to M and distances near 0 need the precision. An output of
        zeros has no direction: it stays 0, with gradient 0.
    """
    if kind == "real" and has_kernels(outputs):
        unit: Tensor = import_module("doap.objectives.triton_rows").Unit.apply(outputs)
        return unit
    if outputs.dtype in (torch.float16, torch.bfloat16):
        outputs = outputs.float()
    if kind == "binary":
        return outputs.tanh()
    norm = outputs.norm(dim=1, keepdim=True)
    directed = norm != 0
    return torch.where(directed, outputs / torch.where(directed, norm, 1), 0)


def same_below(dtype: torch.dtype) -> float:
    """Squared distance of unit vectors that rounding cannot tell from 0: a few units in the last place of 2."""
    return 16 * torch.finfo(dtype).eps


def root(squared: Tensor) -> Tensor:
    """√x with gradient 0 where x is 0 but for rounding: the root's own slope would be infinite."""
    apart = squared > same_below(squared.dtype)
    return torch.where(apart, squared, 1).sqrt() * apart


def inner_products(descriptors: Tensor, others: Tensor) -> Tensor:
    """F(x)ᵀF(x'), (M, N), in full precision under autocast too: half of it would move distances near 0 by bins."""
    with torch.autocast(descriptors.device.type, enabled=False):
        return descriptors @ others.T


def distances_of(products: Tensor, kind: Kind, dimensions: int) -> Tensor:
    """D from F(x)ᵀF(x'), of any shape: √(2 - 2 F(x)ᵀF(x')) or (b - F(x)ᵀF(x')) / 2, from 0 to `reach`."""
    if kind == "real":
        return root((2 - 2 * products).clamp(max=4))
    return ((dimensions - products) / 2).clamp(0, dimensions)


def euclidean_distances(descriptors: Tensor, others: Tensor) -> Tensor:
    """D(x, x') = √(2 - 2 F(x)ᵀF(x')) between unit vectors.

    Args:
        descriptors: (M, d), each row of length 1.
        others: (N, d) likewise.

    Returns:
        (M, N), in [0, 2]. Equal descriptors are at distance 0 with gradient 0.
    """
    return distances_of(inner_products(descriptors, others), "real", descriptors.shape[1])


def hamming_distances(descriptors: Tensor) -> Tensor:
    """D(x, x') = (b - F(x)ᵀF(x')) / 2 for (M, b) descriptors in [-1, 1]; returns (M, M) in [0, b]."""
    return distances_of(inner_products(descriptors, descriptors), "binary", descriptors.shape[1])


def soft_histogram(distances: Tensor, weights: Tensor, bins: int, width: float) -> Tensor:
    """Histogram of each row by the triangular kernel, h_k = Σ_x weight_x δ(D(q, x), k).

    The kernel is as wide as the bins are apart, so each distance touches exactly two bins: the one
    below it and the one above, with weights that sum to 1. Hence two scatter-adds, whatever `bins`.

    Args:
        distances: (M, N), in [0, bins * width].
        weights: (M, N), what each distance counts; 0 leaves it out.

    Returns:
        (M, bins + 1).
    """
    position = distances / width
    below = position.detach().floor().long().clamp(0, bins - 1)
    above_share = position - below
    histogram = distances.new_zeros(len(distances), bins + 1)
    histogram = histogram.scatter_add(1, below, weights * (1 - above_share))
    return histogram.scatter_add(1, below + 1, weights * above_share)


def dense_histograms(
    descriptors: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """h⁺ and h of every query, from the M x M matrix of distances.

    Args:
        descriptors: (M, d) unit vectors or relaxed bits.
        groups: (M,) integer group of each patch.
        ignore: an `IgnoreTable`, or an (M, M) bool mask: whether query i ignores item j.

    Returns:
        Two of (M, bins + 1).
    """
    dimensions = descriptors.shape[1]
    distances = distances_of(inner_products(descriptors, descriptors), kind, dimensions)
    if isinstance(ignore, IgnoreTable):
        ignore = ignore.table[ignore.labels][:, ignore.labels]
    others = ~torch.eye(len(groups), dtype=torch.bool, device=groups.device)
    same_group = groups[:, None] == groups[None, :]
    matches = same_group & others
    ranked = others if ignore is None else matches | (others & ~ignore)
    width = reach(kind, dimensions) / bins
    return (
        soft_histogram(distances, matches.to(distances.dtype), bins, width),
        soft_histogram(distances, ranked.to(distances.dtype), bins, width),
    )


def kernel(positions: Tensor, bins: int) -> Tensor:
    """δ of each of N distances, given in bin widths, and each bin: (N,) to (N, bins + 1)."""
    return (1 - (positions[:, None] - torch.arange(bins + 1, device=positions.device)).abs()).relu()


def uneven(histograms: tuple[Tensor, Tensor], bins: int, spacing: float) -> tuple[Tensor, Tensor]:
    """Soft histograms in uneven bins from those in fine even ones, each (N, n + 1) to (N, bins + 1).

    A distance counts by where it lies in between bin centres, and so does a fine bin: with u_j = j / n its centre,
    from 0 to 1, it goes to the bins k by δ(u_j^spacing, k), the kernel with w = 1 / bins. That is a matrix, and the
    new kernel is the exact one drawn with straight lines from fine centre to fine centre.
    """
    matches, ranked = histograms
    fine = torch.arange(matches.shape[1], dtype=matches.dtype, device=matches.device)
    shares = kernel(bins * (fine / fine[-1]) ** spacing, bins).T
    return inner_products(matches, shares), inner_products(ranked, shares)


def cumulative(histograms: Tensor) -> Tensor:
    """H_k = h_0 + … + h_k along the rows of (N, b + 1) histograms."""
    if not torch.are_deterministic_algorithms_enabled():
        return histograms.cumsum(1)
    # A GPU's own running sum promises no order of additions and so refuses; a product keeps one.
    triangle = torch.ones(
        histograms.shape[1], histograms.shape[1], dtype=torch.float64, device=histograms.device
    ).triu()
    return (histograms.double() @ triangle).to(histograms.dtype)


def relaxed_average_precision(matches: Tensor, ranked: Tensor) -> Tensor:
    """AP of each list from its two histograms, both (N, b + 1): h⁺ of its matches, h of all it ranks.

    A list without a match gets 0.
    """
    if has_kernels(matches):
        precisions: Tensor = import_module("doap.objectives.triton_rows").Precision.apply(matches, ranked)
        return precisions
    cumulative_matches, cumulative_ranked = cumulative(matches), cumulative(ranked)
    # H_{k-1} + H_k = 2 H_k - h_k
    precision = (2 * cumulative_matches - matches + 1) / (2 * cumulative_ranked - ranked + 1)
    # How many matches there are is a matter of the labels, not of the descriptors.
    return (matches * precision).sum(1) / cumulative_matches[:, -1].detach().clamp(min=1)


def pool(histograms: Tensor, pools: Tensor | None) -> Tensor:
    """Histograms of pooled lists, each the sum of its queries': (M, b + 1) to (P, b + 1).

    Args:
        pools: (M,) integer pool of each query, or None for one pool of all.
    """
    if pools is None:
        return histograms.sum(0, keepdim=True)
    names, place = torch.unique(pools, return_inverse=True)
    return histograms.new_zeros(len(names), histograms.shape[1]).index_add(0, place, histograms)
