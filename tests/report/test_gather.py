"""Results are recognised by their content, pictures by their names."""

import json
from pathlib import Path

import pytest

from doap.errors import DoapError
from doap.evaluation.harness.result import Result
from doap.report.gather import gather

RESULT = Result(benchmark="oxford", settings={}, methods=[], scores=[{"descriptor": "sift", "ap": 1.5}])
SWEEP = {"over": "batch_size", "recipe": "r", "tests": [], "rows": [{"batch_size": 64, "ap": 0.5}], "runs": {"x": {}}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    RESULT.write_json(tmp_path / "b.json")
    RESULT.model_copy(update={"benchmark": "hpatches"}).write_json(tmp_path / "a.json")
    (tmp_path / "sweep.json").write_text(json.dumps(SWEEP))
    (tmp_path / "._a.json").write_bytes(b"of macOS")
    (tmp_path / "run.json").write_text('{"data": "liberty"}')
    (tmp_path / "alignment.png").write_bytes(b"picture")
    (tmp_path / "sweep.png").write_bytes(b"picture")
    return tmp_path


def test_all_results_in_a_folder_are_read(folder: Path) -> None:
    gathered = gather([folder])
    assert [(path.name, result.benchmark) for path, result in gathered.results] == [
        ("a.json", "hpatches"),
        ("b.json", "oxford"),
    ]
    assert [(path.name, sweep.over, sweep.rows) for path, sweep in gathered.sweeps] == [
        ("sweep.json", "batch_size", SWEEP["rows"])
    ]
    assert [(path.name, kind) for path, kind in gathered.pictures] == [("alignment.png", "alignment")]
    assert [path.name for path in gathered.left_out] == ["run.json"]


def test_folders_named_as_results_are_left_out(folder: Path) -> None:
    for name in ("old.json", "patches.png"):
        (folder / name).mkdir()
    gathered = gather([folder])
    assert len(gathered.results) == 2
    assert [path.name for path in gathered.left_out] == ["old.json", "patches.png", "run.json"]


def test_files_come_in_the_order_given(folder: Path) -> None:
    gathered = gather([folder / "b.json", folder / "a.json"])
    assert [result.benchmark for _, result in gathered.results] == ["oxford", "hpatches"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nowhere", None, "no such file or folder"),
        ("nowhere.json", None, "no such file or folder"),
        ("alignment.png", None, "no such file"),
        ("words.json", "these are words", "neither a .json file of results nor a picture"),
        ("other.png", "\x89PNG", "neither a .json file of results nor a picture"),
        ("card.json", '{"name": "x"}', "not the result of a benchmark"),
        ("list.json", "[]", "not the result of a benchmark"),
        ("sweep.json", '{"over": "lr", "rows": []}', "a sweep without a run"),
        ("sweep.json", '{"over": "lr", "rows": 3}', r"not of a sweep \(rows: "),
    ],
)
def test_other_files_are_one_line(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DoapError, match=message) as error:
        gather([tmp_path / name])
    assert str(error.value).startswith(str(tmp_path / name))
    assert "\n" not in str(error.value)


def test_a_folder_without_results_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DoapError, match="no results in it"):
        gather([tmp_path])


def test_a_sweep_of_version_0_1_is_read_with_the_names_of_now(tmp_path: Path) -> None:
    old = {"over": "list_size", "recipe": "r", "tests": [], "rows": [{"list_size": 64, "ap": 0.5}], "runs": {"x": {}}}
    (tmp_path / "sweep.json").write_text(json.dumps(old))
    ((_, sweep),) = gather([tmp_path / "sweep.json"]).sweeps
    assert (sweep.over, sweep.rows) == ("batch_size", SWEEP["rows"])


def test_a_measure_named_as_a_key_of_version_0_1_keeps_its_name(tmp_path: Path) -> None:
    rows = [{"lr": 1, "matching": 50.0, "matching hpatches": 50.0}]
    metric = {"label": "HPatches matching mAP %", "better": "more", "column": "matching"}
    content = {"over": "lr", "tests": ["hpatches"], "metric": metric, "rows": rows}
    (tmp_path / "sweep.json").write_text(json.dumps(content))
    ((_, sweep),) = gather([tmp_path / "sweep.json"]).sweeps
    assert sweep.rows == rows
