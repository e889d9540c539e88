import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from doap import Descriptor, DoapError, PatchSet, load
from doap.experiments import series as series_module
from doap.experiments.series import Evaluator, Series
from doap.experiments.study import best_settings, run_study
from doap.experiments.study_plan import Study, read_study
from doap.locking import only_writer
from doap.training import trainer, validation
from doap.training.log import Status
from doap.training.objective import make_objective
from doap.training.recipes.reading import RENAMED_KEYS
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import DataSpec
from doap.training.trainer import train
from doap.training.validation import CommonValidation, Validation

FILE = """
recipe: small.yaml
seeds: [3, 4]
tune: {lr: [0.5, 2.0]}
runs:
  ap:
  hardnet: {settings: {objective: hardnet}, tune: {}}
"""


@pytest.fixture
def study(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    monkeypatch.chdir(recipe.parent)
    Path("study.yaml").write_text(FILE)
    return read_study("study.yaml")


def preferring(setting: str, calls: list[str] | None = None) -> Evaluator:
    """Return an evaluator that prefers a setting and depends on every weight; the names of runs go to `calls`."""

    def evaluate(run: Path, model: Descriptor) -> dict[str, float]:
        if calls is not None:
            calls.append(run.name)
        total = sum(float(value.double().sum()) for value in model.network.state_dict().values())
        return {"score": float(setting in run.name) + 1e-6 * total, "total": total}

    return evaluate


@pytest.mark.parametrize("best", ["lr=0.5", "lr=2.0"])
def test_settings_are_tuned_first_then_the_best_is_trained_with_the_other_seeds(
    study: Study, patches: PatchSet, tmp_path: Path, best: str
) -> None:
    counts: list[int] = []
    series = Series(patches, tmp_path / "runs", DataSpec(["noise"]))
    rows = run_study(study, series, preferring(best), {"by": 1}, lambda rows: counts.append(len(rows)))
    assert [(row["run"], row["setting"], row["seed"]) for row in rows] == [
        ("ap", "lr=0.5", 3),
        ("ap", "lr=2.0", 3),
        ("hardnet", "", 3),
        ("ap", best, 4),
        ("hardnet", "", 4),
    ]
    assert counts == [1, 2, 3, 4, 5]
    assert best_settings(rows) == {"ap": best, "hardnet": ""}
    alone = train(study.recipe("ap", best, 4), patches, tmp_path / "alone")
    assert rows[3]["total"] == pytest.approx(preferring("x")(tmp_path, alone)["total"], rel=1e-12)
    assert len({row["total"] for row in rows}) == 5
    with (tmp_path / "runs" / "study.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(line["total"]) for line in table] == [row["total"] for row in rows]
    content = json.loads((tmp_path / "runs" / "study.json").read_text())
    assert (content["rows"], content["evaluated_by"]) == (rows, {"by": 1})
    run = content["runs"]["hardnet,seed=4"]
    assert (run["recipe"]["objective"], run["recipe"]["seed"], run["data"]) == ("hardnet", 4, ["noise"])


def test_an_interrupted_study_continues_and_evaluates_nothing_twice(
    study: Study, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_study(study, Series(patches, tmp_path / "whole"), preferring("lr=2.0"), {"by": 1})
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)

    def stop(run: str, status: Status) -> None:
        if run == "hardnet,seed=3" and not status.preparation and status.done > 0.5:
            raise KeyboardInterrupt

    folder = tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        run_study(study, Series(patches, folder, progress=stop), preferring("lr=2.0"), {"by": 1})
    evaluated: list[str] = []
    assert run_study(study, Series(patches, folder), preferring("lr=2.0", evaluated), {"by": 1}) == whole
    assert evaluated == ["hardnet,seed=3", "ap,lr=2.0,seed=4", "hardnet,seed=4"]
    assert (folder / "study.csv").read_text() == (tmp_path / "whole" / "study.csv").read_text()

    monkeypatch.setattr(series_module, "train", None)
    evaluated.clear()
    assert run_study(study, Series(patches, folder), preferring("lr=2.0", evaluated), {"by": 1}) == whole
    assert evaluated == []
    run_study(study, Series(patches, folder), preferring("lr=2.0", evaluated), {"by": 2})
    assert len(evaluated) == 5
    (folder / "study.json").write_text("half of")
    assert run_study(study, Series(patches, folder), preferring("lr=2.0", evaluated), {"by": 2}) == whole
    assert len(evaluated) == 10


def test_runs_are_evaluated_again_if_the_data_has_changed(study: Study, patches: PatchSet, tmp_path: Path) -> None:
    evaluated: list[str] = []

    def count_evaluations(lists: dict[str, str]) -> int:
        evaluated.clear()
        run_study(study, Series(patches, tmp_path / "runs"), preferring("lr=2.0", evaluated), {"lists": lists})
        return len(evaluated)

    assert count_evaluations({"data": "val"}) == 5
    assert count_evaluations({"data": "val", "fingerprint": "1"}) == 0  # the first is of an earlier version
    assert count_evaluations({"data": "val", "fingerprint": "1"}) == 0
    assert count_evaluations({"data": "val", "fingerprint": "2"}) == 5
    assert count_evaluations({"data": "other", "fingerprint": "2"}) == 5


def write_as_version_0_1(folder: Path) -> None:
    """Rewrite study.json with the keys of version 0.1."""
    old_names = {new: old for old, new in RENAMED_KEYS.items()}

    def old_recipe(recipe: dict[str, Any]) -> dict[str, Any]:
        return {old_names.get(key, key): value for key, value in recipe.items()}

    content = json.loads((folder / "study.json").read_text())
    by = content.pop("evaluated_by")
    by["lists"]["recipe"] = old_recipe(by["lists"]["recipe"])
    rows = [{{"setting": "tried"}.get(key, key): value for key, value in row.items()} for row in content["rows"]]
    runs = {name: {**run, "recipe": old_recipe(run["recipe"])} for name, run in content["runs"].items()}
    (folder / "study.json").write_text(json.dumps({"judged_by": by, "rows": rows, "runs": runs}))


def test_a_study_of_version_0_1_continues(
    recipe: Path, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recipe.parent)
    Path("study.yaml").write_text("recipe: small.yaml\nseeds: [0]\nruns: {ap: {tune: {batch_size: [32, 64]}}}\n")
    study, folder = read_study("study.yaml"), tmp_path / "runs"
    by = {"lists": {"recipe": study.base.model_dump()}}
    rows = run_study(study, Series(patches, folder), preferring("batch_size=32"), by)
    write_as_version_0_1(folder)
    for size in (32, 64):
        (folder / f"ap,batch_size={size},seed=0").rename(folder / f"ap,list_size={size},seed=0")
    monkeypatch.setattr(series_module, "train", None)
    evaluated: list[str] = []
    again = run_study(study, Series(patches, folder), preferring("batch_size=32", evaluated), by)
    assert (again, evaluated) == (rows, [])


def test_a_failed_training_is_never_selected(
    study: Study, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(recipe: Recipe, ranks: int) -> Callable[..., torch.Tensor]:
        loss = make_objective(recipe, ranks)
        factor = float("nan") if recipe.objective == "hardnet" or recipe.lr == 2.0 else 1.0
        return lambda *arguments: loss(*arguments) * factor

    monkeypatch.setattr(trainer, "make_objective", failing)
    rows = run_study(study, Series(patches, tmp_path / "runs"), preferring("lr=2.0"), {})
    assert [(row["run"], row["setting"], row["seed"], "score" in row) for row in rows] == [
        ("ap", "lr=0.5", 3, True),
        ("ap", "lr=2.0", 3, False),
        ("hardnet", "", 3, False),
        ("ap", "lr=0.5", 4, True),
    ]
    assert best_settings(rows) == {"ap": "lr=0.5"}
    monkeypatch.setattr(series_module, "train", None)  # what failed is not tried again
    assert run_study(study, Series(patches, tmp_path / "runs"), preferring("lr=2.0"), {}) == rows


def test_one_process_at_a_time(study: Study, patches: PatchSet, tmp_path: Path) -> None:
    series = Series(patches, tmp_path / "study")
    with (
        only_writer(series.folder, inside=True),
        pytest.raises(DoapError, match="study: another process is writing it"),
    ):
        run_study(study, series, preferring(""), {})
    assert not list(series.folder.iterdir())


def test_other_errors_end_a_study(study: Study, patches: PatchSet, tmp_path: Path) -> None:
    few = PatchSet([patches.take(range(30))], np.arange(30) // 3)
    with pytest.raises(DoapError, match="30 patches"):
        run_study(study, Series(few, tmp_path / "runs"), preferring("x"), {})
    assert not list(tmp_path.glob("runs/*/run.json"))  # refused before there is a run folder
    other = PatchSet([patches.take(range(150))], np.arange(150) // 3)
    with pytest.raises(DoapError, match="cannot be evaluated"):
        run_study(study, Series(other, tmp_path / "runs"), refuse, {})
    with pytest.raises(DoapError, match="holds a run on another set"):
        run_study(study, Series(patches, tmp_path / "runs"), preferring("x"), {})


def refuse(_run: Path, _model: Descriptor) -> dict[str, float]:
    raise DoapError("cannot be evaluated")


def test_common_validation_has_the_same_batches_for_all_sampled_once(
    study: Study, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = Series(patches, tmp_path / "runs", validation=patches)
    model = series.train("one", study.recipe("ap", "lr=0.5", 3))
    common = CommonValidation(patches, study.base, "cpu", series.cache)
    expected = Validation(patches, study.base, torch.device("cpu"), 32).average_precision(model.network)
    assert common.average_precision(model) == expected
    monkeypatch.setattr(validation, "BatchLoader", None)
    assert common.average_precision(load(tmp_path / "runs" / "one" / "weights.safetensors", fast=False)) == expected
