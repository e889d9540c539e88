"""K-means, on any device and the same for the same seed."""

import torch
from torch import Tensor

MOST_ROUNDS = 100
SETTLED = 0.001


def k_means(points: Tensor, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Lloyd's rounds from a k-means++ start, until at most one point in 1,000 changes its cluster, or 100 rounds.

    Args:
        points: (N, d).
        count: K, at most N.
        random: draws the start; on the CPU, so that it is the same for any device.

    Returns:
        Centres (K, d), and the cluster of each point, (N,) in 0..K-1, whose centre is nearest to it. A cluster
        that loses all its points keeps its centre.
    """
    centres = _spread(points, count, random)
    clusters = _nearest(points, centres)
    # A product rather than `index_add_`, which on a GPU promises no order of additions.
    member = points.new_zeros(len(points), count).scatter_(1, clusters[:, None], 1)
    sums, sizes = member.T @ points, member.sum(0)
    for _ in range(MOST_ROUNDS):
        centres = torch.where(sizes[:, None] > 0, sums / sizes[:, None].clamp(min=1), centres)
        previous, clusters = clusters, _nearest(points, centres)
        moved = (clusters != previous).nonzero()[:, 0]
        if len(moved) <= SETTLED * len(points):
            break
        change = points.new_zeros(len(moved), count).scatter_(1, clusters[moved, None], 1)
        change.scatter_(1, previous[moved, None], -1)
        sums += change.T @ points[moved]
        sizes += change.sum(0)
    return centres, clusters


def _nearest(points: Tensor, centres: Tensor) -> Tensor:
    # |x - c|² less |x|², which is the same for all centres.
    return torch.addmm(centres.square().sum(1), points, centres.T, alpha=-2).argmin(1)


def _spread(points: Tensor, count: int, random: torch.Generator) -> Tensor:
    """The start of k-means++: each centre is a point, drawn by its squared distance from those before."""
    chances = torch.rand(count, generator=random, dtype=torch.float64).to(points.device)
    lengths = points.square().sum(1)
    squared = torch.ones_like(lengths)
    centres = []
    for number, chance in enumerate(chances):
        total = squared.double().cumsum(0)
        centre = points[torch.searchsorted(total, chance * total[-1], right=True).clamp(max=len(points) - 1)]
        centres.append(centre)
        from_here = (lengths - 2 * (points @ centre) + centre.square().sum()).clamp(min=0)
        squared = torch.minimum(squared, from_here) if number else from_here
    return torch.stack(centres)
