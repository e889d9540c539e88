import json
from pathlib import Path

import pytest

from support.command_line import Doap
from support.figures import is_drawn_from
from support.sets.small_phototour import learnable_phototour


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    for seed, name in enumerate(("liberty", "notredame", "yosemite")):
        learnable_phototour(tmp_path / "data" / f"phototour-{name}", points=40, pairs=60, seed=seed)
    return tmp_path / "data"


def test_several_scenes_and_models_in_one_run(doap: Doap, data: Path, tmp_path: Path) -> None:
    words = ("eval", "phototour", "doap-demo-128", "beblid-256", "--data", data, "--device", "cpu")
    status, shown, errors = doap(*words, "--json", "p.json", "--csv", "p.csv", "--figure", "p.png")
    assert (status, errors) == (0, "")
    content = json.loads((tmp_path / "p.json").read_text())
    assert [(s["descriptor"], s["test"]) for s in content["scores"]] == [
        (model, scene) for scene in ("liberty", "notredame", "yosemite") for model in ("doap-demo-128", "beblid-256")
    ]
    mean = sum(s["fpr95"] for s in content["scores"] if s["descriptor"] == "beblid-256") / 3
    row = next(line for line in shown.splitlines() if "beblid" in line)
    assert f"{mean:.2f}" in row
    assert "DOAP-ST+†" in shown
    assert "† quoted, not measured: He, Lu, Sclaroff" in shown
    assert "every non-matching pair at or below it counts" in shown
    assert (tmp_path / "p.csv").read_text().startswith("descriptor,trained on,test,fpr95,auc\n")
    assert is_drawn_from(tmp_path / "p.png", tmp_path / "p.json")


def test_errors_are_one_line(doap: Doap, data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for words, message in (
        (("--data", "nothere"), "nothere: no such folder"),
        (("--data", "empty"), "empty: not an official folder of Phototour"),
        (("sift", "nobody", "--data", data), "nobody: no such file"),
        (("--data", data, "--figure", "p.doc"), "figures are written as"),
    ):
        status, _, errors = doap("eval", "phototour", *words)
        assert (status, errors.count("\n")) == (1, 1)
        assert message in errors
