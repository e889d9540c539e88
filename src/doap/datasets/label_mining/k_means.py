"""K-means on any device, with the same clusters for the same seed.

Implemented here because scikit-learn and OpenCV cluster on the CPU only; this runs on the device of the patches.
"""

import torch
from torch import Tensor

MAX_ITERATIONS = 100
TOLERANCE = 0.001  # fraction of points that may still change their cluster


def k_means(points: Tensor, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Cluster points with Lloyd's algorithm from a k-means++ start.

    Stops when at most one point in 1,000 changes its cluster, or after 100 iterations.

    Args:
        points: (N, d).
        count: K, at most N.
        random: Generator of the start; on the CPU, so that the start is the same for every device.

    Returns:
        Centres (K, d), and the cluster of each point, (N,) in 0..K-1, whose centre is nearest to it. A cluster
        that loses all its points keeps its centre.
    """
    centres = _sample_start(points, count, random)
    clusters = _nearest(points, centres)
    # A matrix product instead of `index_add_`, whose order of additions on a GPU is not fixed.
    member = points.new_zeros(len(points), count).scatter_(1, clusters[:, None], 1)
    sums, sizes = member.T @ points, member.sum(0)
    for _ in range(MAX_ITERATIONS):
        centres = torch.where(sizes[:, None] > 0, sums / sizes[:, None].clamp(min=1), centres)
        previous, clusters = clusters, _nearest(points, centres)
        moved = (clusters != previous).nonzero()[:, 0]
        if len(moved) <= TOLERANCE * len(points):
            break
        change = points.new_zeros(len(moved), count).scatter_(1, clusters[moved, None], 1)
        change.scatter_(1, previous[moved, None], -1)
        sums += change.T @ points[moved]
        sizes += change.sum(0)
    return centres, clusters


def _nearest(points: Tensor, centres: Tensor) -> Tensor:
    # |x - c|² - |x|², which has the same minimum over c.
    return torch.addmm(centres.square().sum(1), points, centres.T, alpha=-2).argmin(1)


def _sample_start(points: Tensor, count: int, random: torch.Generator) -> Tensor:
    """Sample the centres of k-means++: points, weighted by the squared distance from the centres before."""
    uniform = torch.rand(count, generator=random, dtype=torch.float64).to(points.device)
    squared_norms = points.square().sum(1)
    squared = torch.ones_like(squared_norms)
    centres = []
    for number, value in enumerate(uniform):
        total = squared.double().cumsum(0)
        centre = points[torch.searchsorted(total, value * total[-1], right=True).clamp(max=len(points) - 1)]
        centres.append(centre)
        distances = (squared_norms - 2 * (points @ centre) + centre.square().sum()).clamp(min=0)
        squared = torch.minimum(squared, distances) if number else distances
    return torch.stack(centres)
