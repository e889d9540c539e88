import json
from pathlib import Path

import pytest

from support.command_line import Doap
from support.figures import is_drawn_from
from support.sets.official_formats import write_half


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    for seed, half in enumerate(("train", "test")):
        write_half(tmp_path / "rome", half, seed=seed)
    return tmp_path / "rome"


def test_both_halves_in_one_run(doap: Doap, data: Path, tmp_path: Path) -> None:
    words = ("eval", "romepatches", "doap-demo-128", "orb", "--data", data, "--device", "cpu")
    status, shown, errors = doap(*words, "--json", "r.json", "--figure", "r.png")
    assert (status, errors) == (0, "")
    content = json.loads((tmp_path / "r.json").read_text())
    scores = {(s["descriptor"], s["half"]): s for s in content["scores"]}
    assert set(scores) == {(model, half) for model in ("doap-demo-128", "orb") for half in ("train", "test")}
    row = next(line for line in shown.splitlines() if "│ orb" in line)
    assert f"{scores['orb', 'test']['map']:.1f} ({scores['orb', 'test']['map official queries']:.1f})" in row
    assert "CKN-grad†" in shown
    assert "ties gain nothing" in shown
    assert is_drawn_from(tmp_path / "r.png", tmp_path / "r.json")


def test_one_half_is_a_column_of_dashes(doap: Doap, data: Path) -> None:
    for file in data.glob("*train*"):
        file.unlink()
    status, shown, _ = doap("eval", "romepatches", "orb", "--data", data, "--figure", "r.png")
    assert status == 0
    row = next(line for line in shown.splitlines() if "│ orb" in line)
    assert [cell.strip() for cell in row.split("│")][2:4] == ["256b", "-"]


def test_errors_are_one_line(doap: Doap, tmp_path: Path) -> None:
    for data, message in (
        (tmp_path, "not an official folder of RomePatches"),
        ("nothere", "nothere: no such folder"),
    ):
        status, _, errors = doap("eval", "romepatches", "orb", "--data", data)
        assert (status, errors.count("\n")) == (1, 1)
        assert message in errors
