"""Opening a folder of HPatches, judging descriptors on it, and the tables and the figure of what came out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from doap.errors import DoapError
from doap.evaluation.harness.methods import Selection
from doap.evaluation.harness.result import Result
from doap.evaluation.hpatches.benchmark import evaluate, open_test
from doap.evaluation.hpatches.figure import draw_hpatches
from doap.evaluation.hpatches.matching import matching
from doap.evaluation.hpatches.tables import hpatches_tables, mean_score
from doap.types import Progress, no_progress
from support.slow_hpatches import some_codes
from support.small_official_sets import make_hpatches

NAMES = ("i_one", "v_two", "v_three")


class Given:
    """Descriptors out of a hat, as many as there are patches."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind

    def about(self) -> dict[str, Any]:
        return {"name": self.name}

    def describe_patches(self, selection: Selection, progress: Progress = no_progress) -> np.ndarray:
        progress(1, 1)
        return some_codes(self.kind, len(selection))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    return make_hpatches(tmp_path / "hpatches", NAMES, patches=6)


@pytest.fixture
def result(folder: Path) -> Result:
    return evaluate(open_test(folder), [Given("one", "bits"), Given("another", "vectors")])


def test_every_condition_is_scored_once(result: Result) -> None:
    rows = [tuple(value for key, value in score.items() if key != "value") for score in result.scores]
    assert len(set(rows)) == len(rows) == 2 * (24 + 3 * 3 * 2 + 1 * 3 * 2)
    assert list(result.scores[0]) == ["descriptor", "task", "balance", "condition", "noise", "pool", "rule", "value"]
    assert all(0 <= float(score["value"] or 0) <= 100 for score in result.scores)
    assert result.settings["sequences"] == sorted(NAMES)
    assert result.settings["verification lists"] == "drawn, 360 pairs of each kind, seed 0"
    assert result.settings["retrieval lists"] == "drawn, 6 queries and 12 distractors, seed 0"
    json.loads(result.model_dump_json())


def test_each_descriptor_has_its_own_scores(folder: Path, result: Result) -> None:
    test = open_test(folder)
    codes = torch.from_numpy(some_codes("vectors", len(test.patches)))
    own = [score for score in result.scores if (score["descriptor"], score["task"]) == ("another", "matching")]
    assert [score["value"] for score in own] == [score["value"] for score in matching(codes, test.patches)]


def test_means(result: Result) -> None:
    values = [
        float(score["value"] or 0)
        for score in result.scores
        if (score["descriptor"], score["balance"], score["rule"], score["noise"])
        == ("one", "imbalanced", "fair", "easy")
    ]
    assert len(values) == 2
    chosen = {"descriptor": "one", "balance": "imbalanced", "rule": "official", "noise": "easy"}
    assert mean_score(result, chosen, {"rule": "fair"}) == pytest.approx(np.mean(values))
    assert mean_score(result, {"descriptor": "nobody"}) is None


def test_retrieval_counts_the_official_pools() -> None:
    rows = [(100, 10.0), (500, 20.0), (2000, 99.0), (3333, 99.0)]
    scores = [{"descriptor": "x", "task": "retrieval", "pool": pool, "value": value} for pool, value in rows]
    result = Result(benchmark="hpatches", settings={}, methods=[], scores=scores)
    assert mean_score(result, {"task": "retrieval"}) == 15
    assert mean_score(result, {"task": "retrieval"}, {"pool": 2000}) == 99
    assert mean_score(result.model_copy(update={"scores": scores[3:]}), {"task": "retrieval"}) == 99


def test_tables_name_the_best_first(result: Result) -> None:
    tables = hpatches_tables(result)
    assert [table.title.split(",")[0] for table in tables] == ["Verification", "Verification", "Matching", "Retrieval"]
    assert tables[0].columns == ("descriptor", "rule", "easy", "hard", "tough", "mean", "intra", "inter")
    assert tables[2].columns[-2:] == ("illum", "view")
    assert tables[3].columns[-1] == "17"
    for table in tables:
        rows = [row.cells for row in table.rows]
        assert [row[1] for row in rows] == ["official", "fair"] * 2
        assert {row[0] for row in rows} == {"one", "another"}
        assert rows[0][0] == rows[1][0]
        assert float(rows[0][5]) >= float(rows[2][5])
        means = [np.mean([float(cell) for cell in row[2:5]]) for row in rows]
        np.testing.assert_allclose([float(row[5]) for row in rows], means, atol=0.02)


def test_one_sequence_has_no_strangers(folder: Path) -> None:
    test = open_test(folder / "i_one")
    assert test.tasks == ("verification", "matching")
    assert test.left_out == (
        "verification, inter: needs a second sequence",
        "retrieval: needs distractors of other sequences",
    )
    result = evaluate(test, [Given("one", "bits")])
    assert {score["task"] for score in result.scores} == {"verification", "matching"}
    assert {score["condition"] for score in result.scores} == {"intra", "illumination", "all"}
    assert len(hpatches_tables(result)) == 3


def test_a_split_names_the_sequences(folder: Path) -> None:
    (folder / "splits.json").write_text(json.dumps({"a": {"name": "a", "test": ["v_two", "i_one"], "train": []}}))
    (folder / "retr_queries_split-a.csv").write_text("s,idx\ni_one,5\n")
    (folder / "retr_distractors_split-a.csv").write_text("s,idx\nv_two,1\nv_two,2\n")
    test = open_test(folder, "a", ["retrieval"])
    assert len(test.patches) == 2 * 16 * 6
    assert test.settings()["retrieval lists"] == "official (retr_queries_split-a.csv …)"
    assert test.pairs is None
    evaluate(test, [Given("one", "vectors")])
    with pytest.raises(DoapError, match="no split b; there are a"):
        open_test(folder, "b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: {"folder": Path("absent")}, "absent: no HPatches sequence here"),
        (lambda f: {"folder": f, "tasks": ["detection"]}, "no task detection"),
        (lambda f: {"folder": f, "split": "a"}, r"no splits\.json"),
    ],
)
def test_what_cannot_be_opened(folder: Path, change: Any, message: str) -> None:
    with pytest.raises(DoapError, match=message):
        open_test(**change(folder))


def test_descriptors_that_are_no_numbers_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Given, "describe_patches", lambda *_: np.full((288, 4), np.nan, np.float32))
    with pytest.raises(DoapError, match="one: some descriptors are not numbers"):
        evaluate(open_test(folder), [Given("one", "vectors")])


@pytest.mark.parametrize("tasks", [3, 2, 1])
def test_the_figure_has_a_panel_a_task(result: Result, tasks: int, tmp_path: Path) -> None:
    kept = ("verification", "matching", "retrieval")[:tasks]
    part = result.model_copy(update={"scores": [score for score in result.scores if score["task"] in kept]})
    draw_hpatches(part, tmp_path / "tasks.png")
    with Image.open(tmp_path / "tasks.png") as picture:
        width, height = picture.size
    assert width / tasks == pytest.approx(110 * (3.4 + 0.075 * len("another")), abs=2)
    assert height > 200
