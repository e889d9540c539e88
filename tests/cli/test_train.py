import json
from pathlib import Path

import pytest
import torch

from doap import load
from doap.training.run_folder import read_run
from support.command_line import Doap
from support.small_official_sets import make_hpatches

SMALL = "width: 2\ndimensions: 16\nbatch_size: 48\nepochs: 2\nprecision: 'fp32'\n"
SPLITS = {"a": {"name": "a", "train": ["i_one", "v_three"], "test": ["v_two"]}}


@pytest.fixture
def hpatches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "r.yaml").write_text(SMALL)
    return make_hpatches(tmp_path / "data" / "hpatches", patches=4)


def test_the_training_half_of_a_split(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    (hpatches.parent / "hpatches-tasks").mkdir()
    (hpatches.parent / "hpatches-tasks" / "splits.json").write_text(json.dumps(SPLITS))
    status, shown, _ = doap("train", "r.yaml", "--data", hpatches, "--split", "a", "-o", "run", "--device", "cpu")
    assert status == 0
    assert "128 patches of 65x65, 8 groups, 2 sequences" in shown
    assert read_run(tmp_path / "run").source.split == "a"
    whole = load(tmp_path / "run" / "weights.safetensors").network.state_dict()
    for file in ("weights.safetensors", "weights.json", "checkpoint.safetensors"):
        (tmp_path / "run" / file).unlink()
    assert doap("train", "--resume", "run")[0] == 0
    again = load(tmp_path / "run" / "weights.safetensors").network.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in whole.items())


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (None, "no splits.json in it or beside it; doap data download hpatches-tasks brings it"),
        ({"b": {**SPLITS["a"], "name": "b"}}, "no split a; there are b"),
        ({"a": {"name": "a", "test": ["v_two"]}}, "split a has no train half"),
        ({"a": {**SPLITS["a"], "train": ["i_nowhere"]}}, "1 of 1 sequences are not in the set: i_nowhere"),
    ],
)
def test_a_split_that_cannot_be_is_one_line(doap: Doap, hpatches: Path, splits: object, message: str) -> None:
    if splits:
        (hpatches / "splits.json").write_text(json.dumps(splits))
    status, _, errors = doap("train", "r.yaml", "--data", hpatches, "--split", "a", "-o", "run", "--device", "cpu")
    assert (status, message in errors, errors.count("\n")) == (1, True, 1)


def test_another_set_judges_every_epoch(doap: Doap, hpatches: Path, tmp_path: Path) -> None:
    other = make_hpatches(tmp_path / "data" / "other", names=("v_four",), patches=3)
    words = ("train", "r.yaml", "--data", hpatches, "--val", other, "-o", "run", "--device", "cpu")
    status, shown, _ = doap(*words)
    assert status == 0
    assert "held-out AP" in shown
    assert len((tmp_path / "run" / "validation.csv").read_text().split()) == 3
    assert (tmp_path / "run" / "training.png").stat().st_size > 5000
    card = json.loads((tmp_path / "run" / "best.json").read_text())
    assert next(iter(card["origin"]["figures"])).startswith("held-out AP % after epoch")
    for file in ("weights.safetensors", "weights.json"):
        (tmp_path / "run" / file).unlink()
    assert doap("train", "--resume", "run")[0] == 0


def test_resuming_takes_nothing_else(doap: Doap, tmp_path: Path) -> None:
    status, _, errors = doap("train", "--resume", "run", "--devices", "2")
    assert (status, "give nothing else with it" in errors) == (1, True)
    status, _, errors = doap("train", "--resume", tmp_path)
    assert (status, "not the folder of a run" in errors) == (1, True)
