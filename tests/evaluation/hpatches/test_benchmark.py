"""The HPatches benchmark: opening a folder, evaluating descriptors, tables, the figure, and exported descriptors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from PIL import Image

from doap.errors import DoapError
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import Selection, open_methods
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.hpatches.benchmark import HPatches
from doap.evaluation.hpatches.figure import draw_hpatches
from doap.evaluation.hpatches.matching import matching
from doap.evaluation.hpatches.tables import HEADLINES, hpatches_tables, mean_score
from doap.evaluation.hpatches.task_data import TASKS, open_tasks
from doap.types import Descriptors, Progress, no_progress
from support.figures import points, record_figures
from support.sets.small_official_sets import make_hpatches, make_tasks
from support.slow_hpatches import some_codes

NAMES = ("i_one", "v_two", "v_three")


class RandomDescriptors:
    """Random descriptors, one per patch."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind

    def metadata(self) -> dict[str, Any]:
        return {"name": self.name}

    def describe_patches(self, selection: Selection, progress: Progress = no_progress) -> Descriptors:
        progress(1, 1)
        return some_codes(self.kind, len(selection))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    return make_hpatches(tmp_path / "hpatches", NAMES, patches=6)


@pytest.fixture
def result(folder: Path) -> Result:
    return HPatches(folder).evaluate([RandomDescriptors("one", "bits"), RandomDescriptors("another", "vectors")])


def test_every_condition_is_scored_once(result: Result) -> None:
    rows = [tuple(value for key, value in score.items() if key != "value") for score in result.scores]
    assert len(set(rows)) == len(rows) == 2 * (24 + 3 * 3 * 2 + 1 * 3 * 2)
    assert list(result.scores[0]) == ["descriptor", "task", "balance", "condition", "noise", "pool", "rule", "value"]
    assert all(0 <= float(score["value"] or 0) <= 100 for score in result.scores)
    assert result.settings["sequences"] == sorted(NAMES)
    assert result.settings["verification lists"] == "sampled, 360 pairs of each kind, seed 0"
    assert result.settings["retrieval lists"] == "sampled, 6 queries and 12 distractors, seed 0"
    json.loads(result.model_dump_json())


@pytest.mark.parametrize("rows", [(1, 2), (1, 1, 1), (2, 1, 5, 1)])
@pytest.mark.parametrize("flat", [(), (0,), (0, 1, 2, 3)])
def test_small_and_flat_sequences_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: tuple[int, ...], flat: tuple[int, ...]
) -> None:
    """Sequences without a query, without a distractor, of one row, and of one grey level."""
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    for number, count in enumerate(rows):
        make_hpatches(tmp_path / "hpatches", (f"v_{number}",), patches=count)
        if number in flat:
            for file in (tmp_path / "hpatches" / f"v_{number}").iterdir():
                Image.new("L", (65, 65 * count), 128).save(file)
    result = HPatches(tmp_path / "hpatches").evaluate(
        [RandomDescriptors("bits", "bits"), RandomDescriptors("vectors", "vectors")]
    )
    assert {score["task"] for score in result.scores} == set(result.settings["tasks"])
    values = np.array([score["value"] for score in result.scores], np.float64)
    assert ((values >= 0) & (values <= 100 + 1e-9)).all()
    assert len(result.settings["tasks"]) + len(result.settings["left out"]) >= len(TASKS)
    assert hpatches_tables(result)


def test_short_official_lists_are_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pair of each kind, at the same distance; one query whose only distractor is of its own sequence."""
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    folder = make_hpatches(tmp_path / "hpatches")
    make_tasks(folder)
    result = HPatches(folder, "full").evaluate([RandomDescriptors("bits", "bits")])
    assert result.settings["left out"] == ["retrieval: needs distractors of other sequences"]
    assert mean_score(result, HEADLINES["verification"], {"rule": "tie-aware"}) == pytest.approx(75)
    assert mean_score(result, {"task": "verification", "balance": "balanced", "rule": "tie-aware"}) == 50


def test_each_descriptor_has_its_own_scores(folder: Path, result: Result) -> None:
    data = open_tasks(folder)
    codes = torch.from_numpy(some_codes("vectors", len(data.patches)))
    own = [score for score in result.scores if (score["descriptor"], score["task"]) == ("another", "matching")]
    assert [score["value"] for score in own] == [score["value"] for score in matching(codes, data.patches)]


def test_means(result: Result) -> None:
    values = [
        float(score["value"] or 0)
        for score in result.scores
        if (score["descriptor"], score["balance"], score["rule"], score["noise"])
        == ("one", "imbalanced", "tie-aware", "easy")
    ]
    assert len(values) == 2
    selected = {"descriptor": "one", "balance": "imbalanced", "rule": "official", "noise": "easy"}
    assert mean_score(result, selected, {"rule": "tie-aware"}) == pytest.approx(np.mean(values))
    assert mean_score(result, {"descriptor": "nobody"}) is None


def test_retrieval_counts_the_official_pools() -> None:
    rows = [(100, 10.0), (500, 20.0), (2000, 99.0), (3333, 99.0)]
    scores: list[Score] = [
        {"descriptor": "x", "task": "retrieval", "pool": pool, "value": value} for pool, value in rows
    ]
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
        assert [row[1] for row in rows] == ["official", "tie-aware"] * 2
        assert {row[0] for row in rows} == {"one", "another"}
        assert rows[0][0] == rows[1][0]
        assert float(rows[0][5]) >= float(rows[2][5])
        means = [np.mean([float(cell) for cell in row[2:5]]) for row in rows]
        np.testing.assert_allclose([float(row[5]) for row in rows], means, atol=0.02)


def test_one_sequence_has_no_inter_sequence_pairs(folder: Path) -> None:
    data = open_tasks(folder / "i_one")
    assert data.tasks == ("verification", "matching")
    assert data.left_out == (
        "verification, inter: needs a second sequence",
        "retrieval: needs distractors of other sequences",
    )
    result = HPatches(folder / "i_one").evaluate([RandomDescriptors("one", "bits")])
    assert result.settings["left out"] == list(data.left_out)
    assert {score["task"] for score in result.scores} == {"verification", "matching"}
    assert {score["condition"] for score in result.scores} == {"intra", "illumination", "all"}
    assert len(hpatches_tables(result)) == 3


def test_a_split_names_the_sequences(folder: Path) -> None:
    (folder / "splits.json").write_text(json.dumps({"a": {"name": "a", "test": ["v_two", "i_one"], "train": []}}))
    (folder / "retr_queries_split-a.csv").write_text("s,idx\ni_one,5\n")
    (folder / "retr_distractors_split-a.csv").write_text("s,idx\nv_two,1\nv_two,2\n")
    data = open_tasks(folder, "a", ["retrieval"])
    assert len(data.patches) == 2 * 16 * 6
    assert data.pairs is None
    result = HPatches(folder, "a", ["retrieval"]).evaluate([RandomDescriptors("one", "vectors")])
    assert result.settings["retrieval lists"] == "official (retr_queries_split-a.csv …)"
    assert {score["task"] for score in result.scores} == {"retrieval"}
    with pytest.raises(DoapError, match="no split b"):
        open_tasks(folder, "b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: {"folder": Path("absent")}, "absent: no such folder"),
        (lambda f: {"folder": f, "tasks": ["detection"]}, "task detection: unknown; choose one of verification"),
        (lambda f: {"folder": f, "split": "a"}, r"no splits\.json"),
    ],
)
def test_what_cannot_be_opened(folder: Path, change: Any, message: str) -> None:
    with pytest.raises(DoapError, match=message):
        open_tasks(**change(folder))


def test_descriptors_that_are_no_numbers_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomDescriptors, "describe_patches", lambda *_: np.full((288, 4), np.nan, np.float32))
    with pytest.raises(DoapError, match="one: some descriptors are not numbers"):
        HPatches(folder).evaluate([RandomDescriptors("one", "vectors")])


def test_two_descriptors_of_one_name_are_refused_before_any_is_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(DoapError, match="two descriptors are called one"):
        HPatches(folder, descriptors=[tmp_path / "one"]).evaluate([RandomDescriptors("one", "bits")])


def test_exported_descriptors_score_as_the_method_does(folder: Path, tmp_path: Path) -> None:
    methods = open_methods(["sift"], cache=DescriptorCache(tmp_path / "descriptors"))
    benchmark = HPatches(folder, tasks=["matching"])
    steps: list[str] = []
    benchmark.export(methods, tmp_path / "out", lambda step, _done, _total: steps.append(step))
    assert "writing, sift" in steps
    own = benchmark.evaluate(methods).scores
    read = HPatches(folder, tasks=["matching"], descriptors=[tmp_path / "out" / "sift"]).evaluate([])
    assert read.scores == own
    assert read.methods[0]["dimensions"] == 128
    with pytest.raises(DoapError, match="sift: exists already"):
        benchmark.export(methods, tmp_path / "out")


def bar_widths(axes: Axes) -> dict[str, float]:
    """Return the widths of the bars of a panel by the labels of their rows."""
    (bars,) = [container for container in axes.containers if isinstance(container, BarContainer)]
    names = [label.get_text() for label in axes.get_yticklabels()]
    return {name: bar.get_width() for name, bar in zip(names, bars.patches, strict=True)}


@pytest.mark.parametrize("count", [3, 2, 1])
def test_the_figure_has_one_panel_per_task(
    result: Result, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selected = result.model_copy(update={"scores": [s for s in result.scores if s["task"] in TASKS[:count]]})
    figures = record_figures(monkeypatch)
    draw_hpatches(selected, tmp_path / "tasks.png")
    panels = figures[0].axes
    assert [axes.get_xlabel().split()[1] for axes in panels] == list(TASKS[:count])
    for axes, task in zip(panels, TASKS, strict=False):
        widths = bar_widths(axes)
        assert list(widths.values()) == sorted(widths.values())  # the best is on top
        for y, (name, width) in enumerate(widths.items()):
            own = {**HEADLINES[task], "descriptor": name}
            assert width == mean_score(result, own, {"rule": "official"})
            ticks = [points(line) for line in axes.lines if line.get_marker() == "|"]
            assert ticks[y] == [[mean_score(result, own, {"rule": "tie-aware"}), y]]
        marks = [line for line in axes.lines if line.get_marker() != "|"]
        assert len(marks) == 2 * 3 * {"verification": 2, "matching": 2, "retrieval": 1}[task]
    assert [text.get_text() for text in figures[0].legends[0].get_texts()][-1] == "mean, tie-aware"


def test_the_figure_is_written(result: Result, tmp_path: Path) -> None:
    HPatches.draw(result, tmp_path / "tasks.png")
    assert (tmp_path / "tasks.png").read_bytes().startswith(b"\x89PNG")
