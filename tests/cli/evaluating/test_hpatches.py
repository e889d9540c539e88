"""`doap eval hpatches`, as a user calls it."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from doap.datasets.official.opening import open_dataset
from doap.evaluation.harness.result import read_result
from support.command_line import Doap
from support.figures import is_drawn_from
from support.sets.small_official_sets import make_hpatches


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    return make_hpatches(tmp_path / "hpatches", patches=5)


def test_all_tasks_tables_and_files(doap: Doap, data: Path, tmp_path: Path) -> None:
    outputs = ("--json", "hp.json", "--csv", "hp.csv", "--figure", "hp.png", "--export", "descriptors")
    status, shown, _ = doap("eval", "hpatches", "sift", "doap-demo-256b", "--data", data, *outputs)
    assert status == 0
    for word in ("Verification", "Matching", "Retrieval", "official", "tie-aware", "doap-demo-256b", "seed 0"):
        assert word in shown
    result = read_result(tmp_path / "hp.json")
    assert [about["name"] for about in result.methods] == ["sift", "doap-demo-256b"]
    with (tmp_path / "hp.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == len(result.scores)
    assert is_drawn_from(tmp_path / "hp.png", tmp_path / "hp.json")

    read = [tmp_path / "descriptors" / name for name in ("sift", "doap-demo-256b")]
    again = ("--descriptors", read[0], "--descriptors", read[1], "--json", "again.json")
    assert doap("eval", "hpatches", "--data", data, *again)[0] == 0
    for old, new in zip(result.scores, read_result(tmp_path / "again.json").scores, strict=True):
        assert new == {**old, "value": pytest.approx(old["value"], abs=1e-9)}


def test_one_sequence_one_task(doap: Doap, data: Path) -> None:
    call = ("eval", "hpatches", "sift", "--data", data / "i_one")
    status, shown, _ = doap(*call, "--tasks", "matching", "--tasks", "retrieval")
    assert status == 0
    assert "left out: retrieval: needs distractors of other sequences" in shown
    assert "Verification" not in shown


def test_data_that_allows_no_task_is_one_line(doap: Doap, data: Path, tmp_path: Path) -> None:
    call = ("eval", "hpatches", "sift", "--data", data / "i_one", "--tasks", "retrieval")
    status, _, complaint = doap(*call, "--json", "hp.json", "--figure", "hp.png")
    assert status == 1
    reason = "retrieval: needs distractors of other sequences; give another folder or task"
    assert complaint == f"doap: {data / 'i_one'}: {reason}\n"
    assert not (tmp_path / "hp.json").exists()


def test_nothing_is_exported_outside_the_output(doap: Doap, data: Path, tmp_path: Path) -> None:
    outside = str(tmp_path / "outside")
    open_dataset(data).save(tmp_path / "set")
    shutil.copytree(tmp_path / "set", data, dirs_exist_ok=True)  # a folder that is both is opened as a set
    manifest = json.loads((data / "set.json").read_text())
    for name in (outside, "../../outside"):
        names = [name, *manifest["sequence_names"][1:]]
        (data / "set.json").write_text(json.dumps({**manifest, "sequence_names": names}))
        status, _, complaint = doap("eval", "hpatches", "sift", "--data", data, "--export", "descriptors")
        assert status == 1
        assert f"sequence_names: '{name}' is not a name" in complaint
        assert complaint.count("\n") == 1
    assert not Path(outside).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tasks", "detection"), "task detection: unknown; choose one of "),
        (("--data", "nothere"), "nothere: no such folder"),
        (("--split", "a"), "no splits.json"),
        (("--figure", "x.txt"), "figures are written as"),
        (("--descriptors", "absent"), "absent: no such folder"),
        (("--descriptors", "sift"), "two descriptors are called sift"),
        (("--export", "."), "sift: exists already"),
    ],
)
def test_errors_are_one_line(doap: Doap, data: Path, arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "sift").mkdir()
    status, _, complaint = doap("eval", "hpatches", "sift", "--data", data, *arguments)
    assert status == 1
    assert message in complaint
    assert complaint.count("\n") == 1


def test_an_export_needs_a_model(doap: Doap, data: Path, tmp_path: Path) -> None:
    assert doap("eval", "hpatches", "sift", "--data", data, "--tasks", "matching", "--export", "mine")[0] == 0
    given = ("eval", "hpatches", "--data", data, "--descriptors", "mine/sift", "--tasks", "matching")
    assert doap(*given)[0] == 0
    status, _, complaint = doap(*given, "--export", "other")
    assert (status, complaint) == (1, "doap: --export writes the descriptors of models; name one\n")
    assert not (tmp_path / "other").exists()
