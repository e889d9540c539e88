import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from doap import Descriptor, DoapError, PatchSet, describe_patches, load
from doap.evaluation.metrics.average_precision import average_precision
from doap.experiments import series as module
from doap.experiments.series import Series
from doap.experiments.sweep import check_same_scenes, evaluate_on_val, plan_sweep, run_sweep
from doap.training import trainer
from doap.training.data_cache import split_val
from doap.training.log import Status, read_validation
from doap.training.recipes.reading import read_recipe
from doap.training.run_folder import DataSpec
from doap.training.trainer import train
from support.trainings import SMALL


def closeness(_run: Path, model: Descriptor) -> dict[str, float]:
    """Measure something that depends on every weight."""
    values = describe_patches(np.random.default_rng(9).integers(0, 256, (2, 32, 32), dtype=np.uint8), model)
    return {"closeness": float(values[0] @ values[1]), "twice": float(2 * values[0] @ values[1])}


def test_a_plan_is_the_recipe_with_each_value(recipe: Path) -> None:
    planned = plan_sweep(recipe, "batch_size = 32, 64,128", ["epochs=7"])
    assert planned.key == "batch_size"
    assert list(planned.recipes) == ["batch_size=32", "batch_size=64", "batch_size=128"]
    assert [planned.value(name) for name in planned.recipes] == [32, 64, 128]
    expected = [SMALL.model_copy(update={"batch_size": size, "epochs": 7}) for size in (32, 64, 128)]
    assert list(planned.recipes.values()) == expected


@pytest.mark.parametrize(
    ("over", "names"),
    [
        ("schedule=linear,steps", ["schedule=linear", "schedule=steps"]),
        ("lr=0.10,1e-1,1", None),
        ("lr=0.10,1e-4", ["lr=0.1", "lr=0.0001"]),
        ("augment=yes,no", ["augment=true", "augment=false"]),
        ("views_per_group=null,2", ["views_per_group=null", "views_per_group=2"]),
        ("prefixes=[8,16],null, [32]", ["prefixes=[8, 16]", "prefixes=null", "prefixes=[32]"]),
        ("teacher='a,[b]',c d", ["teacher=a,[b]", "teacher=c d"]),
    ],
)
def test_values_of_any_type(over: str, names: list[str] | None) -> None:
    if names is None:
        with pytest.raises(DoapError, match=r"lr=0\.1 is repeated"):
            plan_sweep("phototour-real", over)
    else:
        assert list(plan_sweep("phototour-real", over).recipes) == names


def test_mappings_are_values() -> None:
    planned = plan_sweep("frames-real", "source_weights={static: 1.0, tracks: 2},null")
    assert list(planned.recipes) == ['source_weights={"static": 1.0, "tracks": 2.0}', "source_weights=null"]
    assert list(map(planned.value, planned.recipes)) == [{"static": 1, "tracks": 2}, None]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ("batch_size", "write it as key=value,value"),
        ("batch_size=", "write it as key=value,value"),
        ("=1,2", "write it as key=value,value"),
        ("batch_size=1024,,2048", "write it as key=value,value"),
        ("batch_size=1024,", "write it as key=value,value"),
        ("batch_size=64,64", "batch_size=64 is repeated"),
        ("batch_size=64,many", "batch_size: Input should be a valid integer"),
        ("batch_size=64,1", "batch_size: Input should be greater than or equal to 2"),
        ("list_size=64", "^--over list_size=64: list_size was renamed; use batch_size$"),
        ("size=64", "size: Extra inputs are not permitted; keys are network"),
        ("schedule=linear,[", r"^--over schedule=linear,\[: .*not valid YAML"),
        ("batch_size=64] #", "not valid YAML"),
        ("objective=ap,triplets", "objective: Input should be 'ap'"),
    ],
)
def test_bad_values_are_one_line(over: str, message: str) -> None:
    with pytest.raises(DoapError, match=message) as caught:
        plan_sweep("phototour-real", over)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("over", ["seed=1,2", "val_fraction=0.1,0.2"])
def test_runs_with_other_validation_scenes_are_not_compared(over: str) -> None:
    with pytest.raises(DoapError, match=r"^--over \w+: the validation scenes of the runs differ.*; give --test"):
        check_same_scenes(plan_sweep("phototour-real", over))
    check_same_scenes(plan_sweep("phototour-real", "lr=0.1,0.2", ["val_fraction=0.1"]))


def test_each_run_is_the_training_of_its_recipe(recipe: Path, patches: PatchSet, tmp_path: Path) -> None:
    reports: list[tuple[str, float]] = []
    counts: list[int] = []
    rows = run_sweep(
        plan_sweep(recipe, "batch_size=32,64"),
        Series(
            patches,
            tmp_path / "sweep",
            DataSpec(["noise"]),
            progress=lambda run, status: None if status.preparation else reports.append((run, status.done)),
        ),
        closeness,
        record={"tests": ["a"]},
        on_row=lambda rows: counts.append(len(rows)),
    )
    for row in rows:
        alone = tmp_path / f"alone-{row['batch_size']}"
        train(read_recipe(recipe, [f"batch_size={row['batch_size']}"]), patches, alone)
        assert row["closeness"] == closeness(alone, load(alone / "weights.safetensors", fast=False))["closeness"]
    assert rows[0]["closeness"] != rows[1]["closeness"]
    assert counts == [1, 2]
    assert [run for run, done in reports if done == 1] == ["batch_size=32", "batch_size=64"]
    header, *lines = (tmp_path / "sweep" / "sweep.csv").read_text().splitlines()
    assert header == "batch_size,closeness,twice"
    assert [[float(cell) for cell in line.split(",")] for line in lines] == [list(row.values()) for row in rows]
    content = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert (content["over"], content["tests"], content["rows"]) == ("batch_size", ["a"], rows)
    run = content["runs"]["batch_size=64"]
    assert (run["recipe"]["batch_size"], run["data"], run["device"]) == (64, ["noise"], "cpu")
    assert set(run["versions"]) == {"doap", "torch", "numpy", "python"}


def test_the_table_has_values_as_a_recipe_has_them(recipe: Path, patches: PatchSet, tmp_path: Path) -> None:
    for over, values in (("augment=true,false", ["true", "false"]), ("bins=null,10", ["null", "10"])):
        folder = tmp_path / over.partition("=")[0]
        run_sweep(plan_sweep(recipe, over), Series(patches, folder), closeness)
        lines = (folder / "sweep.csv").read_text().splitlines()[1:]
        assert [line.partition(",")[0] for line in lines] == values


def test_complete_runs_are_only_evaluated_and_others_resumed(
    recipe: Path, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, folder = plan_sweep(recipe, "seed=1,2,3", ["epochs=2"]), tmp_path / "sweep"
    whole = run_sweep(planned, Series(patches, tmp_path / "whole"), closeness)

    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)

    def stop(run: str, status: Status) -> None:
        if run == "seed=2" and not status.preparation and status.done > 0.7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(planned, Series(patches, folder, progress=stop), closeness)
    assert (folder / "sweep.csv").read_text().count("\n") == 2
    (folder / "seed=1" / "weights.json").unlink()  # as if killed between the weights and their card
    steps: list[str] = []
    series = Series(patches, folder, progress=lambda run, status: None if status.preparation else steps.append(run))
    assert run_sweep(planned, series, closeness) == whole
    assert 0 < steps.count("seed=2") < steps.count("seed=3")
    assert "seed=1" not in steps
    for name in ("sweep.csv", "sweep.json"):
        assert (folder / name).read_text() == (tmp_path / "whole" / name).read_text()
    monkeypatch.setattr(module, "train", None)
    assert run_sweep(planned, Series(patches, folder), closeness) == whole


def test_measures_on_the_same_tests_are_kept(recipe: Path, patches: PatchSet, tmp_path: Path) -> None:
    planned, folder = plan_sweep(recipe, "seed=1,2"), tmp_path / "sweep"
    record = {"tests": ["a"], "metric": {"name": "closeness"}, "split": None}
    evaluated: list[str] = []

    def evaluate(run: Path, model: Descriptor) -> dict[str, float]:
        evaluated.append(run.name)
        return closeness(run, model)

    rows = run_sweep(planned, Series(patches, folder), evaluate, record)
    assert run_sweep(planned, Series(patches, folder), evaluate, record) == rows
    assert evaluated == ["seed=1", "seed=2"]
    more = run_sweep(plan_sweep(recipe, "seed=3,2,1"), Series(patches, folder), evaluate, record)
    assert (more[1:], evaluated[2:]) == (rows[::-1], ["seed=3"])
    for changed in ({"tests": ["b"]}, {"metric": {"name": "other"}}, {"split": "a"}):
        assert run_sweep(planned, Series(patches, folder), evaluate, {**record, **changed}) == rows
    assert evaluated[3:] == ["seed=1", "seed=2"] * 3
    content = json.loads((folder / "sweep.json").read_text())
    content["runs"]["seed=1"]["weights"] = "0" * 64  # trained again since
    (folder / "sweep.json").write_text(json.dumps(content))
    run_sweep(planned, Series(patches, folder), evaluate, {**record, "split": "a"})
    assert evaluated[9:] == ["seed=1"]


def test_tests_that_have_changed_are_measured_again(recipe: Path, patches: PatchSet, tmp_path: Path) -> None:
    planned, series = plan_sweep(recipe, "seed=1"), Series(patches, tmp_path / "sweep")
    record: dict[str, Any] = {"tests": ["a"], "metric": {}, "split": None}
    evaluated: list[str] = []

    def evaluate(_run: Path, _model: Descriptor) -> dict[str, float]:
        evaluated.append("")
        return {"score": len(evaluated)}

    run_sweep(planned, series, evaluate, record)
    first = {**record, "fingerprints": ["1"]}
    assert run_sweep(planned, series, evaluate, first)[0]["score"] == 1  # of an earlier version
    assert run_sweep(planned, series, evaluate, first)[0]["score"] == 1
    assert run_sweep(planned, series, evaluate, {**record, "fingerprints": ["2"]})[0]["score"] == 2


def test_a_set_that_was_built_again_is_refused(recipe: Path, patches: PatchSet, tmp_path: Path) -> None:
    planned, folder = plan_sweep(recipe, "seed=1,2"), tmp_path / "sweep"
    patches.save(tmp_path / "set")
    source = DataSpec([str(tmp_path / "set")])
    run_sweep(planned, Series(PatchSet.open(tmp_path / "set"), folder, source), closeness)
    shutil.rmtree(tmp_path / "set")
    PatchSet(patches.shards, patches.groups, patches.sequences, extent=2 * patches.extent).save(tmp_path / "set")
    with pytest.raises(DoapError, match="seed=1: its training set has changed since"):
        run_sweep(planned, Series(PatchSet.open(tmp_path / "set"), folder, source), closeness)


def test_an_unfinished_run_with_another_validation_set_is_refused(
    recipe: Path, patches: PatchSet, tmp_path: Path
) -> None:
    planned, folder, val = plan_sweep(recipe, "seed=1"), tmp_path / "sweep", tmp_path / "val"
    patches.save(val)
    source = DataSpec(validation=str(val))
    run_sweep(planned, Series(patches, folder, source, validation=PatchSet.open(val)), closeness)
    shutil.rmtree(val)
    PatchSet(patches.shards, patches.groups, patches.sequences, extent=2 * patches.extent).save(val)
    changed = Series(patches, folder, source, validation=PatchSet.open(val))
    changed.check(planned.recipes)
    (folder / "seed=1" / "weights.json").unlink()
    with pytest.raises(DoapError, match="seed=1: its validation set has changed since"):
        changed.check(planned.recipes)


def test_a_sweep_that_did_not_record_its_metric_is_evaluated_again(
    recipe: Path, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, folder = plan_sweep(recipe, "seed=1,2"), tmp_path / "sweep"
    rows = run_sweep(planned, Series(patches, folder), closeness, {"tests": ["a"]})
    content = json.loads((folder / "sweep.json").read_text())
    for run in content["runs"].values():
        del run["weights"]
    (folder / "sweep.json").write_text(json.dumps({**content, "rows": [{"seed": 1, "fpr95": 3.0}]}))
    monkeypatch.setattr(module, "train", None)
    assert run_sweep(planned, Series(patches, folder), closeness, {"tests": ["a"], "metric": {}, "split": None}) == rows


def test_folders_of_other_trainings_are_refused_before_any_begins(
    recipe: Path, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sweep(plan_sweep(recipe, "seed=2"), Series(patches, tmp_path / "sweep"), closeness)
    monkeypatch.setattr(module, "train", None)
    with pytest.raises(DoapError, match=r"seed=2: holds a run of another recipe"):
        run_sweep(plan_sweep(recipe, "seed=1,2", ["epochs=9"]), Series(patches, tmp_path / "sweep"), closeness)
    fewer = PatchSet([patches.take(range(90))], np.arange(90) // 3)
    with pytest.raises(DoapError, match=r"seed=2: holds a run on another set"):
        run_sweep(plan_sweep(recipe, "seed=1,2"), Series(fewer, tmp_path / "sweep"), closeness)
    (tmp_path / "sweep" / "seed=1").mkdir()
    (tmp_path / "sweep" / "seed=1" / "photo.jpg").touch()
    with pytest.raises(DoapError, match=r"seed=1: not a run folder, or its run.json is damaged; choose"):
        run_sweep(plan_sweep(recipe, "seed=1,2"), Series(patches, tmp_path / "sweep"), closeness)


def test_a_value_that_does_not_fit_the_set_is_refused_before_any_begins(
    recipe: Path, patches: PatchSet, tmp_path: Path
) -> None:
    with pytest.raises(DoapError, match="lower batch_size"):
        run_sweep(plan_sweep(recipe, "batch_size=32,5000"), Series(patches, tmp_path / "sweep"), closeness)
    assert not list((tmp_path / "sweep").iterdir())


def test_one_process_at_a_time(recipe: Path, patches: PatchSet, tmp_path: Path) -> None:
    planned, series = plan_sweep(recipe, "seed=1"), Series(patches, tmp_path / "sweep")

    def sweep_again(run: Path, model: Descriptor) -> dict[str, float]:
        with pytest.raises(DoapError, match="sweep: another process is writing it"):
            run_sweep(planned, series, closeness)
        return closeness(run, model)

    assert len(run_sweep(planned, series, sweep_again)) == 1


@pytest.mark.parametrize("length", [1, 60])
def test_paths_are_values(recipe: Path, patches: PatchSet, tmp_path: Path, length: int) -> None:
    folder = tmp_path / (length * "x")
    teachers = [folder / name / "weights.safetensors" for name in ("a", "b")]
    for seed, teacher in enumerate(teachers):
        train(read_recipe(recipe, [f"seed={seed}"]), patches, teacher.parent)
    planned = plan_sweep(recipe, f"teacher={teachers[0]},{teachers[1]},null", ["val_fraction=0.34"])
    first, second, last = planned.recipes
    assert (planned.value(first), planned.value(second), planned.value(last)) == (*map(str, teachers), None)
    assert all(name.startswith("teacher=") and "/" not in name and len(name) < 80 for name in planned.recipes)
    assert "a-weights.safetensors-" in first
    assert "b-weights.safetensors-" in second
    assert list(plan_sweep(recipe, f"teacher={teachers[0]}").recipes) == [first]
    series = Series(patches, tmp_path / "sweep")
    rows = run_sweep(planned, series, evaluate_on_val(planned, series))
    assert [row["teacher"] for row in rows] == [*map(str, teachers), None]
    folders = {path.name for path in series.folder.iterdir() if path.is_dir()}
    assert folders == set(planned.recipes)
    assert (series.folder / first / "weights.safetensors").exists()


def exact_ap(patches: PatchSet, weights: Path) -> float:
    """Compute the mean AP of a list that holds all patches, every patch a query."""
    vectors = describe_patches(patches.take(range(len(patches))), load(weights, fast=False)).astype(np.float64)
    values = []
    for query in range(len(patches)):
        others = np.arange(len(patches)) != query
        distances = np.linalg.norm(vectors[others] - vectors[query], axis=1)
        values.append(average_precision(distances, patches.groups[others] == patches.groups[query]))
    return float(np.mean(values))


def test_all_runs_are_evaluated_on_the_same_validation_batches(recipe: Path, patches: PatchSet, tmp_path: Path) -> None:
    planned = plan_sweep(recipe, "batch_size=32,96", ["val_fraction=0.34", "epochs=3"])
    series = Series(patches, tmp_path / "sweep")
    rows = run_sweep(planned, series, evaluate_on_val(planned, series))
    _, validation = split_val(patches, planned.recipes["batch_size=32"])
    assert isinstance(validation, PatchSet)
    assert len(validation) == 60  # all in one batch
    for row in rows:
        run = tmp_path / "sweep" / f"batch_size={row['batch_size']}"
        assert row["ap"] == pytest.approx(exact_ap(validation, run / "best.safetensors"), abs=1e-4)
        validated = read_validation(run)
        assert (row["epoch"], row["ap"]) == pytest.approx(max(validated, key=lambda line: line[1]), abs=1e-4)


def test_runs_that_were_never_validated_are_one_line(recipe: Path, patches: PatchSet, tmp_path: Path) -> None:
    planned, series = plan_sweep(recipe, "seed=1"), Series(patches, tmp_path / "sweep")
    with pytest.raises(DoapError, match=r"seed=1: has no validation; set val_fraction") as caught:
        run_sweep(planned, series, evaluate_on_val(planned, series))
    assert "\n" not in str(caught.value)


def test_a_sweep_of_version_0_1_continues(
    recipe: Path, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, folder = plan_sweep(recipe, "batch_size=32,64"), tmp_path / "sweep"
    rows = run_sweep(planned, Series(patches, folder), closeness)
    for size in (32, 64):
        (folder / f"batch_size={size}").rename(folder / f"list_size={size}")
    monkeypatch.setattr(module, "train", None)
    assert run_sweep(planned, Series(patches, folder), closeness) == rows
