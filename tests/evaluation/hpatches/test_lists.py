"""Task lists: official ones are used as they are, sampled ones follow the rule."""

from pathlib import Path

import numpy as np
import pytest

from doap.datasets.sets.patch_set import PatchSet
from doap.evaluation.hpatches.lists import retrieval_lists, sample_pairs, sample_queries, verification_lists
from support.slow_hpatches import ROWS, small_set

PAIRS = "s1,t1,idx1,s2,t2,idx2\n"


def test_sampled_pairs_follow_the_rule() -> None:
    rows = {"i_a": 3, "v_b": 40, "v_one": 1, "v_c": 8}
    lists = sample_pairs(small_set(rows), 0)
    assert lists
    first, second = lists.positives
    names = np.array(first.sequence_names)
    assert len(first) == 20 * sum(rows.values())
    shares = np.bincount(first.sequences, minlength=4) / len(first)
    np.testing.assert_allclose(shares, [1 / 3, 1 / 3, 0, 1 / 3], atol=0.05)  # a sequence of one row has no second one
    for places in (first, second, *(other for _, other in lists.negatives.values())):
        assert (places.rows < np.array([rows[name] for name in names])[places.sequences]).all()
        assert set(places.images) == {0, 1, 2, 3, 4}
    assert (first.images != second.images).all()
    np.testing.assert_array_equal(first.rows, second.rows)
    np.testing.assert_array_equal(first.sequences, second.sequences)
    (same, intra), (again, inter) = lists.negatives["intra"], lists.negatives["inter"]
    assert same is again is first
    assert ((intra.sequences == first.sequences) & (intra.rows != first.rows)).all()
    assert (inter.sequences != first.sequences).all()
    assert set(inter.sequences) == {0, 1, 2, 3}
    assert "seed 0" in lists.origin


def test_the_seed_determines_the_lists() -> None:
    patches = small_set()
    for sample, field in ((sample_pairs, "positives"), (sample_queries, "queries")):
        rows = []
        for seed in (0, 0, 1):
            locations = getattr(sample(patches, seed), field)
            rows.append((locations[1] if field == "positives" else locations).rows.tolist())
        assert rows[0] == rows[1] != rows[2]


def test_sampled_queries_follow_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.evaluation.hpatches.lists.QUERIES", 100)
    monkeypatch.setattr("doap.evaluation.hpatches.lists.DISTRACTORS", 200)
    rows = {"i_a": 400, "v_b": 4000, "v_c": 1000}
    pixels = small_set(rows)
    flat = np.array(pixels.shards[0])
    flat[: 400 * 16] = 7  # the first sequence has nothing to see
    patches = PatchSet([flat], pixels.groups, pixels.sequences, sequence_names=pixels.sequence_names)
    lists = sample_queries(patches, 0)
    assert lists
    assert (len(lists.queries), len(lists.distractors)) == (100, 200)
    sampled = [
        pair for each in (lists.queries, lists.distractors) for pair in zip(each.sequences, each.rows, strict=True)
    ]
    assert len(set(sampled)) == 300
    sequences = np.array([sequence for sequence, _ in sampled])
    assert set(sequences) == {1, 2}
    assert abs((sequences == 1).mean() - 0.5) < 0.1  # equally often, though one is four times as long


def test_a_small_folder_gives_a_third_as_queries() -> None:
    lists = sample_queries(small_set(), 0)
    assert lists
    total = sum(ROWS.values())
    assert (len(lists.queries), len(lists.distractors)) == (total // 3, total - total // 3)


def test_what_cannot_be_sampled() -> None:
    alone = sample_pairs(small_set({"i_a": 5}), 0)
    assert alone
    assert list(alone.negatives) == ["intra"]
    assert sample_queries(small_set({"i_a": 50}), 0) is None
    assert sample_pairs(small_set({"i_a": 1, "v_b": 1}), 0) is None
    assert sample_queries(small_set({"i_a": 1, "v_b": 1}), 0) is None


def test_official_lists_are_used_where_all_are_there(tmp_path: Path) -> None:
    folder, tasks = tmp_path / "hpatches", tmp_path / "hpatches-tasks"
    folder.mkdir()
    tasks.mkdir()
    patches = small_set()
    (tasks / "verif_pos_split-a.csv").write_text(PAIRS + "i_moon,0,2,i_moon,3,2\n")
    (tasks / "verif_neg_intra_split-a.csv").write_text(PAIRS + "i_moon,0,2,i_moon,3,1\n")
    sampled = verification_lists(patches, folder, "a", 0)
    assert sampled
    assert sampled.origin.startswith("sampled")
    (tasks / "verif_neg_inter_split-a.csv").write_text(PAIRS + "i_moon,0,2,v_wall,3,9\n")
    official = verification_lists(patches, folder, "a", 0)
    assert official
    assert official.origin == "official (verif_pos_split-a.csv …)"
    assert official.negatives["inter"][1].rows.tolist() == [9]
    (tasks / "retr_queries_split-a.csv").write_text("s,idx\ni_moon,3\n")
    (tasks / "retr_distractors_split-a.csv").write_text("s,idx\nv_wall,11\nv_wall,2\n")
    actual = retrieval_lists(patches, folder, "a", 0)
    assert actual
    assert (actual.queries.rows.tolist(), actual.distractors.rows.tolist()) == ([3], [11, 2])
    for other in (retrieval_lists(patches, folder, "b", 0), retrieval_lists(patches, folder, None, 0)):
        assert other
        assert other.origin.startswith("sampled")
