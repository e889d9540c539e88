"""Retrieval compared with lists ranked one by one, in fractions; equal descriptors are equally far."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from doap import DoapError
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.romepatches.benchmark import RomePatches, open_halves
from doap.evaluation.romepatches.retrieval import distance_rows, mean_average_precision
from support.sets.official_formats import write_half


def tie_aware_precision(items: list[tuple[float, bool]]) -> float | None:
    """Compute AP by definition: the mean of the precision at each relevant item, over all orders of ties."""
    relevant = sum(is_relevant for _, is_relevant in items)
    if not relevant:
        return None
    total = Fraction(0)
    for distance in sorted({d for d, _ in items}):
        before = [r for d, r in items if d < distance]
        tied = [r for d, r in items if d == distance]
        for rank in range(1, len(tied) + 1):  # in the tie; a relevant item has each with equal probability
            others = Fraction((rank - 1) * (sum(tied) - 1), max(len(tied) - 1, 1))
            chance = Fraction(sum(tied), len(tied))
            total += chance * (sum(before) + 1 + others) / (len(before) + rank)
    return float(total / relevant)


def slow(distances: np.ndarray, groups: np.ndarray, queries: np.ndarray | None) -> float:
    precisions = []
    for query in range(len(groups)):
        if queries is not None and not queries[query]:
            continue
        ranked = [i for i in range(len(groups)) if i != query and (queries is None or not queries[i])]
        found = tie_aware_precision([(distances[query, i], bool(groups[i] == groups[query])) for i in ranked])
        if found is not None:
            precisions.append(found)
    return float(np.mean(precisions))


@pytest.mark.parametrize("official", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_bits_with_many_ties(seed: int, official: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.evaluation.romepatches.retrieval.BLOCK_ENTRIES", 200)  # a few queries at a time
    random = np.random.default_rng(seed)
    groups = np.append(np.repeat(np.arange(9), 5), 99)  # one patch is alone, and has nothing to find
    codes = random.integers(0, 256, (46, 1), dtype=np.uint8) & 0b10110100
    queries = np.arange(46) % 5 == 0 if official else None
    distances = np.array([[bin(int(a[0]) ^ int(b[0])).count("1") for b in codes] for a in codes])
    calls: list[tuple[int, int]] = []
    actual = mean_average_precision(codes, groups, queries, progress=lambda done, total: calls.append((done, total)))
    assert actual == pytest.approx(slow(distances, groups, queries), abs=1e-12)
    count = 46 if queries is None else int(queries.sum())
    assert (calls[-1], len(calls)) == ((count, count), -(-count // 4))


@pytest.mark.parametrize("official", [False, True])
def test_vectors_of_which_many_are_equal(official: bool) -> None:
    random = np.random.default_rng(5)
    different = random.normal(size=(12, 16)).astype(np.float32)
    vectors = (different / np.linalg.norm(different, axis=1, keepdims=True))[random.integers(0, 12, 60)]
    groups = np.arange(60) // 4
    queries = random.random(60) < 0.3 if official else None
    distances = ((vectors[:, None].astype(np.float64) - vectors) ** 2).sum(2)
    actual = mean_average_precision(vectors, groups, queries)
    assert actual == pytest.approx(slow(distances, groups, queries), abs=1e-12)


def test_equal_descriptors_are_equally_far() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(40, 128)).astype(np.float32)[random.integers(0, 40, 1003)]
    for rows, distances in distance_rows(vectors, np.arange(1003), "cpu"):
        for row, to_others in zip(rows[:20], distances[:20].numpy(), strict=True):
            for other in range(40):
                alike = to_others[(vectors == vectors[other]).all(1)]
                assert (alike == alike[0]).all()
            np.testing.assert_allclose(to_others, ((vectors[row].astype(float) - vectors) ** 2).sum(1), atol=1e-10)


def test_one_point_for_all_gains_nothing() -> None:
    groups = np.arange(1000) // 10
    constant = np.ones((1000, 8), np.float32)
    assert 0.009 < mean_average_precision(constant, groups) < 0.02  # 9 of 999, and a little for the first ranks


def test_nothing_to_find_is_an_error() -> None:
    with pytest.raises(DoapError, match="no query has another patch of its group"):
        mean_average_precision(np.ones((3, 8), np.float32), np.arange(3))
    for count in (0, 3):
        with pytest.raises(DoapError, match="no query has another patch"):
            mean_average_precision(np.ones((count, 8), np.float32), np.zeros(count, np.int64), np.zeros(count, bool))


@pytest.fixture
def rome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    for seed, half in enumerate(("train", "test")):
        write_half(tmp_path / "rome", half, seed=seed)
    return tmp_path / "rome"


def test_both_halves_of_an_official_folder(rome: Path, tmp_path: Path) -> None:
    methods = open_methods(["doap-demo-128", "doap-demo-256b"], cache=DescriptorCache(tmp_path / "descriptors"))
    patches = open_halves(rome)
    result = RomePatches(rome).evaluate(methods)
    assert [(score["descriptor"], score["half"]) for score in result.scores] == [
        ("doap-demo-128", "train"), ("doap-demo-256b", "train"), ("doap-demo-128", "test"), ("doap-demo-256b", "test"),
    ]  # fmt: skip
    assert result.settings["patches"] == {"train": 60, "test": 60}
    for score in result.scores:
        here = np.flatnonzero(patches.sequences == patches.sequence_names.index(str(score["half"])))
        model = next(each.model for each in methods if each.name == score["descriptor"])
        with torch.inference_mode():
            described = model(torch.from_numpy(patches.take(here))).numpy()
        if described.dtype == np.uint8:
            distances = np.unpackbits(described[:, None] ^ described, axis=2).sum(2)
        else:
            distances = ((described[:, None].astype(float) - described) ** 2).sum(2)
        query = patches.labels["query"][here] == 1
        for column, queries in (("map", None), ("map official queries", query)):
            assert score[column] == pytest.approx(100 * slow(distances, patches.groups[here], queries), abs=1e-3)


def test_other_folders_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="not an official folder of RomePatches"):
        open_halves(tmp_path)
