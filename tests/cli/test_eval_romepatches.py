import json
from pathlib import Path

import pytest
from PIL import Image

from support.official_formats import write_half


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    for seed, half in enumerate(("train", "test")):
        write_half(tmp_path / "rome", half, seed=seed)
    return tmp_path / "rome"


def test_both_halves_in_one_run(doap, data: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    words = ("eval", "romepatches", "--data", data, "--models", "doap-demo-128", "orb", "--device", "cpu")
    status, shown, errors = doap(*words, "--json", "r.json", "--figure", "r.png")
    assert (status, errors) == (0, "")
    content = json.loads((tmp_path / "r.json").read_text())
    scores = {(s["descriptor"], s["half"]): s for s in content["scores"]}
    assert set(scores) == {(model, half) for model in ("doap-demo-128", "orb") for half in ("train", "test")}
    row = next(line for line in shown.splitlines() if "│ orb" in line)
    assert f"{scores['orb', 'test']['map']:.1f} ({scores['orb', 'test']['map official queries']:.1f})" in row
    assert "CKN-grad†" in shown
    assert "ties gain nothing" in shown
    with Image.open(tmp_path / "r.png") as picture:
        assert picture.width > 600


def test_one_half_is_a_column_of_dashes(doap, data: Path) -> None:  # type: ignore[no-untyped-def]
    for file in data.glob("*train*"):
        file.unlink()
    status, shown, _ = doap("eval", "romepatches", "--data", data, "--models", "orb", "--figure", "r.png")
    assert status == 0
    row = next(line for line in shown.splitlines() if "│ orb" in line)
    assert [cell.strip() for cell in row.split("│")][2:4] == ["256b", "-"]


def test_faults_are_one_line(doap, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    status, _, errors = doap("eval", "romepatches", "--data", tmp_path, "--models", "orb")
    assert (status, errors.count("\n")) == (1, 1)
    assert "not an official folder of RomePatches" in errors
