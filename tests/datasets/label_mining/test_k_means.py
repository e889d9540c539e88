import pytest
import torch
from sklearn.cluster import KMeans

from doap.datasets.label_mining.k_means import k_means


def inertia(points: torch.Tensor, centres: torch.Tensor, clusters: torch.Tensor) -> float:
    return float((points - centres[clusters]).square().sum())


def blobs(count: int = 12, each: int = 60) -> torch.Tensor:
    return (torch.randn(count, 1, 20) * 3 + torch.randn(count, each, 20)).flatten(0, 1)


def test_as_good_as_scikit_learn() -> None:
    points = blobs()
    ours = min(inertia(points, *k_means(points, 12, torch.Generator().manual_seed(seed))) for seed in range(4))
    theirs = KMeans(12, n_init=4, random_state=0).fit(points.numpy()).inertia_
    assert ours < 1.02 * theirs


def test_every_point_is_with_its_nearest_centre_and_centres_are_means() -> None:
    points = blobs()
    centres, clusters = k_means(points, 12, torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.cdist(points, centres).argmin(1), clusters)
    for cluster in range(12):
        torch.testing.assert_close(centres[cluster], points[clusters == cluster].mean(0), atol=1e-4, rtol=1e-4)


def test_the_seed_fixes_the_clusters() -> None:
    points = torch.randn(500, 6)
    one, same, other = (k_means(points, 20, torch.Generator().manual_seed(seed))[1] for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_as_many_clusters_as_points_and_points_that_are_all_the_same() -> None:
    points = torch.randn(7, 3)
    assert sorted(k_means(points, 7, torch.Generator())[1].tolist()) == list(range(7))
    centres, clusters = k_means(torch.ones(9, 3), 4, torch.Generator())
    assert centres.isfinite().all()
    assert len(set(clusters.tolist())) == 1


@pytest.mark.gpu
def test_a_gpu_finds_the_same_clusters() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    points = blobs()
    here = k_means(points, 12, torch.Generator().manual_seed(0))[1]
    there = k_means(points.cuda(), 12, torch.Generator().manual_seed(0))[1]
    assert torch.equal(here, there.cpu())
