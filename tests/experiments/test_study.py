import csv
import json
from pathlib import Path

import numpy as np
import pytest

from doap import Descriptor, DoapError, PatchSet, load
from doap.experiments import series as series_module
from doap.experiments.series import Series
from doap.experiments.study import best_tries, run_study
from doap.experiments.study_plan import Study, read_study
from doap.training import trainer
from doap.training.log import Status
from doap.training.run_folder import Source
from doap.training.trainer import train
from doap.training.validation import CommonLists, Validation

FILE = """
recipe: small.yaml
seeds: [3, 4]
tune: {lr: [0.5, 2.0]}
runs:
  ap:
  hardnet: {settings: {objective: hardnet}, tune: {}}
"""


@pytest.fixture
def patches() -> PatchSet:
    random = np.random.default_rng(0)
    views = random.normal(128, 40, (60, 1, 32, 32)) + random.normal(0, 15, (60, 4, 32, 32))
    return PatchSet([np.clip(views, 0, 255).astype(np.uint8).reshape(-1, 32, 32)], np.arange(240) // 4)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text("width: 2\ndimensions: 16\nbatch_size: 64\nepochs: 1\nprecision: fp32\n")
    Path("study.yaml").write_text(FILE)
    return read_study("study.yaml")


def preferring(wanted: str, calls: list[str] | None = None):  # type: ignore[no-untyped-def]
    """A judge that prefers a rate, and hangs on every weight."""

    def judge(run: Path, model: Descriptor) -> dict[str, float]:
        if calls is not None:
            calls.append(run.name)
        total = sum(float(value.double().sum()) for value in model.network.state_dict().values())
        return {"score": float(wanted in run.name) + 1e-6 * total, "total": total}

    return judge


@pytest.mark.parametrize("wanted", ["lr=0.5", "lr=2.0"])
def test_tries_go_first_then_the_best_of_them_with_the_other_seeds(
    study: Study, patches: PatchSet, tmp_path: Path, wanted: str
) -> None:
    counts: list[int] = []
    series = Series(patches, tmp_path / "runs", Source("noise"))
    rows = run_study(study, series, preferring(wanted), {"by": 1}, lambda rows: counts.append(len(rows)))
    assert [(row["run"], row["tried"], row["seed"]) for row in rows] == [
        ("ap", "lr=0.5", 3),
        ("ap", "lr=2.0", 3),
        ("hardnet", "", 3),
        ("ap", wanted, 4),
        ("hardnet", "", 4),
    ]
    assert counts == [1, 2, 3, 4, 5]
    assert best_tries(rows) == {"ap": wanted, "hardnet": ""}
    alone = train(study.recipe("ap", wanted, 4), patches, tmp_path / "alone")
    assert rows[3]["total"] == pytest.approx(preferring("x")(tmp_path, alone)["total"], rel=1e-12)
    assert len({row["total"] for row in rows}) == 5
    with (tmp_path / "runs" / "study.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(line["total"]) for line in table] == [row["total"] for row in rows]
    content = json.loads((tmp_path / "runs" / "study.json").read_text())
    assert (content["rows"], content["judged_by"]) == (rows, {"by": 1})
    run = content["runs"]["hardnet,seed=4"]
    assert (run["recipe"]["objective"], run["recipe"]["seed"], run["data"]) == ("hardnet", 4, "noise")


def test_a_study_that_was_stopped_goes_on_and_judges_nothing_twice(
    study: Study, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_study(study, Series(patches, tmp_path / "whole"), preferring("lr=2.0"), {"by": 1})
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)

    def stop(run: str, status: Status) -> None:
        if run == "hardnet,seed=3" and not status.doing and status.done > 0.5:
            raise KeyboardInterrupt

    folder = tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        run_study(study, Series(patches, folder, progress=stop), preferring("lr=2.0"), {"by": 1})
    judged: list[str] = []
    assert run_study(study, Series(patches, folder), preferring("lr=2.0", judged), {"by": 1}) == whole
    assert judged == ["hardnet,seed=3", "ap,lr=2.0,seed=4", "hardnet,seed=4"]
    assert (folder / "study.csv").read_text() == (tmp_path / "whole" / "study.csv").read_text()

    monkeypatch.setattr(series_module, "train", None)
    judged.clear()
    assert run_study(study, Series(patches, folder), preferring("lr=2.0", judged), {"by": 1}) == whole
    assert judged == []
    run_study(study, Series(patches, folder), preferring("lr=2.0", judged), {"by": 2})
    assert len(judged) == 5
    (folder / "study.json").write_text("half of")
    assert run_study(study, Series(patches, folder), preferring("lr=2.0", judged), {"by": 2}) == whole
    assert len(judged) == 10


def test_a_training_that_fails_has_lost(
    study: Study, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = trainer.make_objective

    def failing(recipe, ranks):  # type: ignore[no-untyped-def]
        whole = make(recipe, ranks)
        bad = recipe.objective == "hardnet" or recipe.lr == 2.0
        return lambda *arguments: whole(*arguments) * (float("nan") if bad else 1)

    monkeypatch.setattr(trainer, "make_objective", failing)
    rows = run_study(study, Series(patches, tmp_path / "runs"), preferring("lr=2.0"), {})
    tried = [(row["run"], row["tried"], row["seed"], "score" in row) for row in rows]
    assert tried == [("ap", "lr=0.5", 3, True), ("ap", "lr=2.0", 3, False), ("hardnet", "", 3, False),
                     ("ap", "lr=0.5", 4, True)]  # fmt: skip
    assert best_tries(rows) == {"ap": "lr=0.5"}
    monkeypatch.setattr(series_module, "train", None)  # what failed is not tried again
    assert run_study(study, Series(patches, tmp_path / "runs"), preferring("lr=2.0"), {}) == rows


def test_other_faults_end_a_study(study: Study, patches: PatchSet, tmp_path: Path) -> None:
    few = PatchSet([patches.take(range(40))], np.arange(40) // 4)
    with pytest.raises(DoapError, match="fewer than a list of 64"):
        run_study(study, Series(few, tmp_path / "runs"), preferring("x"), {})
    with pytest.raises(DoapError, match="holds a run on another set"):
        run_study(study, Series(patches, tmp_path / "runs"), preferring("x"), {})


def test_common_lists_are_the_same_for_all_and_drawn_once(
    study: Study, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = Series(patches, tmp_path / "runs", validation=patches)
    model = series.train("one", study.recipe("ap", "lr=0.5", 3))
    lists = CommonLists(patches, study.lists, "cpu", series.sources)
    expected = Validation(patches, study.lists, series.sources._loaded[0].device, 32).average_precision(model.network)
    assert lists.average_precision(model) == expected
    monkeypatch.setattr("doap.training.validation.Batches", None)
    assert lists.average_precision(load(tmp_path / "runs" / "one" / "weights.safetensors")) == expected
