"""Weak pairs: look-alike places are left out, and no image is lost."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from bridges.colmap.conftest import SETTINGS, write_photos
from bridges.colmap.test_database import rows
from bridges.colmap.test_project import dump
from doap.bridges.colmap import build_project
from doap.bridges.colmap.database import pair_id
from doap.bridges.colmap.pairs import weak_pairs
from doap.errors import DoapError

Counts = dict[tuple[int, int], int]


def random_counts(seed: int, images: int = 12) -> Counts:
    """Return numbers of matches of pairs, some of them 0."""
    random = np.random.default_rng(seed)
    return {pair: int(random.pareto(0.7) * 5) for pair in combinations(range(images), 2)}


def test_two_sides_that_look_alike() -> None:
    """Photos 0 to 2 of the front and 3 to 5 of the back, with a corner photo 6 of both."""
    counts = dict.fromkeys(combinations(range(7), 2), 20)
    counts |= {(0, 1): 500, (1, 2): 400, (0, 2): 100, (3, 4): 300, (4, 5): 450, (3, 5): 200, (2, 6): 90, (3, 6): 80}
    strong = {(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 6), (3, 6)}
    kept = counts.keys() - weak_pairs(counts, 0.1)
    assert kept == strong | {(image, 6) for image in (0, 1, 4, 5)}  # 20 of 90 is not little for photo 6
    assert counts.keys() - weak_pairs(counts, 0.25) == strong


@pytest.mark.parametrize("seed", range(10))
def test_a_pair_is_weak_beside_the_best_pairs_of_both_images(seed: int) -> None:
    counts = random_counts(seed)
    weak = weak_pairs(counts, 0.2)
    for pair in weak:
        for image in pair:
            assert counts[pair] < 0.2 * max(count for other, count in counts.items() if image in other)
    weights = coo_matrix((-np.array(list(counts.values()), float), np.array(list(counts)).T), (12, 12))
    tree = minimum_spanning_tree(weights)  # scipy's, of the negative numbers
    assert sum(counts[pair] for pair in counts.keys() - weak) >= -tree.sum()


@pytest.mark.parametrize("seed", range(10))
def test_images_stay_connected(seed: int) -> None:
    counts = random_counts(seed)
    kept = [pair for pair in counts.keys() - weak_pairs(counts, 1.0) if counts[pair]]
    every = [pair for pair in counts if counts[pair]]
    before, after = (
        connected_components(coo_matrix((np.ones(len(pairs)), np.array(pairs).T), (12, 12)))[0]
        for pairs in (every, kept)
    )
    assert before == after


@pytest.mark.parametrize("seed", range(10))
def test_order_of_removal_does_not_matter(seed: int) -> None:
    """What is weak among some images is weak among all, and nothing becomes strong by removing others."""
    counts = random_counts(seed)
    everything = {pair for pair in weak_pairs(counts, 0.2) if counts[pair]}
    some = {pair: count for pair, count in counts.items() if max(pair) < 8}
    first = weak_pairs(some, 0.2)
    left = {pair: 0 if pair in first else count for pair, count in counts.items()}
    second = weak_pairs(left, 0.2)
    assert {pair for pair in first | second if counts[pair]} == everything


def test_no_pair_is_weak_without_a_share() -> None:
    assert not weak_pairs(random_counts(0), 0)
    assert not weak_pairs({}, 0.5)
    with pytest.raises(DoapError, match="between 0 and 1, not 2"):
        replace(SETTINGS, min_share=2)


@pytest.mark.usefixtures("in_process")
def test_matches_of_weak_pairs_are_not_verified(project: Path, tmp_path: Path) -> None:
    before = rows(project / "database.db", "two_view_geometries", "pair_id, rows")
    counts = {pair: count for pair, count in before if count}
    weakest = min(counts, key=lambda pair: counts[pair])
    assert len(counts) == 3  # of the three photos: one is not in the spanning tree
    settings = replace(SETTINGS, min_share=1.0)
    summary = build_project(write_photos(tmp_path / "photos"), tmp_path, settings)
    assert summary.weak == 1
    assert sorted(count for count in summary.verified if count) == sorted(counts.values())[1:]
    after = dict(rows(tmp_path / "database.db", "two_view_geometries", "pair_id, rows"))
    assert after[weakest] == 0
    assert rows(tmp_path / "database.db", "matches", "*") == rows(project / "database.db", "matches", "*")
    content = dump(tmp_path / "database.db")
    assert build_project(tmp_path / "photos", tmp_path, settings).weak == 0
    assert dump(tmp_path / "database.db") == content
    assert pair_id(1, 3) in after  # the photo without keypoints
