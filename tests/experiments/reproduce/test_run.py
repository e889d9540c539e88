"""Reproduction of tables and figures on small sets in the official formats."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from doap.datasets.official.training_set import open_training_set
from doap.errors import DoapError
from doap.evaluation.harness.result import read_result
from doap.experiments.reproduce import results
from doap.experiments.reproduce.data import DataFolder
from doap.experiments.reproduce.plan import make_plan
from doap.experiments.reproduce.results import ResultWriter
from doap.experiments.reproduce.run import Outcome, Request, prepare, reproduce
from doap.experiments.reproduce.runner import check_runs
from doap.experiments.reproduce.targets import paper_targets
from doap.files import atomic_file
from doap.networks.card import read_card
from doap.training.log import read_losses
from doap.training.recipes.reading import read_recipe
from doap.training.run_folder import FAILURE, DataSpec, describe_run, start_run
from support.sets.official_formats import write_half
from support.sets.small_data_folder import make_data_folder
from support.sets.small_pairs import write_sequence


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return DataFolder(make_data_folder(tmp_path_factory.mktemp("data")))


def request(data: DataFolder, output: Path, *names: str, settings: tuple[str, ...] = ("width=2",)) -> Request:
    return Request(names, paper_targets(), data, output, settings=settings, is_quick=True)


def run(request: Request) -> tuple[Outcome, list[str]]:
    """Reproduce, and return the outcome and the names of the trainings that were run."""
    trained: list[str] = []
    outcome = reproduce(request, lambda name, _fraction, _done, _total: trained.append(name))
    return outcome, list(dict.fromkeys(trained))


def test_a_table_is_trained_once_and_evaluated(data: DataFolder, tmp_path: Path) -> None:
    outcome, trained = run(request(data, tmp_path, "table-2"))
    assert sorted(trained) == ["DOAP-romepatches", "binary-DOAP-romepatches"]
    result = read_result(outcome.results / "romepatches.json")
    names = [method["name"] for method in result.methods]
    assert names == ["sift", "DOAP-romepatches", "binary-DOAP-romepatches"]
    assert {(score["descriptor"], score["half"]) for score in result.scores} == {
        (name, half) for name in names for half in ("train", "test")
    }
    steps = len(read_losses(tmp_path / "quick" / "runs" / "DOAP-romepatches"))
    assert steps == 6  # one batch per group of the training half, not of both
    again, trained = run(request(data, tmp_path, "table-2"))
    assert not trained
    assert read_result(again.results / "romepatches.json") == result


def test_missing_data_is_named_with_the_command_that_gets_it(data: DataFolder, tmp_path: Path) -> None:
    partial = DataFolder(tmp_path / "data")
    shutil.copytree(data.path("romepatches"), partial.path("romepatches"))
    with pytest.raises(DoapError, match=r"table-1: needs .* are missing; get them with doap data download phototour-l"):
        prepare(request(partial, tmp_path / "out", "table-1"))
    plan = prepare(request(partial, tmp_path / "out", "all"))
    assert [target.name for target in plan.targets] == ["table-2"]
    assert len(plan.skipped) == 7
    with pytest.raises(DoapError, match="figure-patches: needs"):
        prepare(request(DataFolder(tmp_path / "none"), tmp_path / "out", "all"))


def test_half_downloaded_data_is_refused_before_training(data: DataFolder, tmp_path: Path) -> None:
    partial = DataFolder(tmp_path / "data")
    for scene in ("liberty", "notredame", "yosemite"):
        shutil.copytree(data.path(f"phototour-{scene}"), partial.path(f"phototour-{scene}"))
    (partial.path("phototour-yosemite") / "m50_100000_100000_0.txt").unlink()
    targets = paper_targets()
    full = Request(("table-1",), targets, partial, tmp_path / "out")
    with pytest.raises(DoapError, match=r"m50_100000_100000_0.txt: .*; check or complete it with doap data download"):
        prepare(full)
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(
    ("target", "missing", "message"),
    [
        (
            "table-2",
            "romepatches/patch_retrieval_Rome_test*",
            "romepatches: 1 of 2 sequences .* not in the set: test; check",
        ),
        ("figure-alignment", "hpatches/v_four", "hpatches: 1 of 5 sequences .* not in the set: v_four; check"),
        ("figure-alignment", "hpatches-tasks", "hpatches: no splits.json"),
        ("figure-oxford", "oxford/graf/img3.png", "img3.png: cannot be decoded .*; check or complete it with"),
    ],
)
@pytest.mark.parametrize("is_quick", [False, True])
def test_data_that_only_the_evaluation_reads_is_checked_before_training(
    data: DataFolder, tmp_path: Path, target: str, missing: str, message: str, is_quick: bool
) -> None:
    partial = DataFolder(shutil.copytree(data.folder, tmp_path / "data"))
    for path in partial.folder.glob(missing):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix == ".png":
            path.write_bytes(path.read_bytes()[:300])
        else:
            path.unlink()
    with pytest.raises(DoapError, match=message):
        prepare(Request((target,), paper_targets(), partial, tmp_path / "out", is_quick=is_quick))


def test_a_damaged_reduced_set_is_to_be_removed(data: DataFolder, tmp_path: Path) -> None:
    copies = tmp_path / "quick" / "data" / "romepatches"
    prepare(request(data, tmp_path, "table-2"))
    next(copies.glob("*_train.mat")).write_bytes(b"damaged")
    with pytest.raises(DoapError, match=f"damaged .*; remove {copies}, which is made again"):
        prepare(request(data, tmp_path, "table-2"))
    shutil.rmtree(copies)
    prepare(request(data, tmp_path, "table-2"))


def test_a_run_folder_of_another_recipe_is_refused(data: DataFolder, tmp_path: Path) -> None:
    run(request(data, tmp_path, "table-2"))
    with pytest.raises(DoapError, match="holds a run of another recipe"):
        run(request(data, tmp_path, "table-2", settings=("width=2", "momentum=0.8")))
    assert (tmp_path / "quick" / "runs" / "DOAP-romepatches" / "weights.safetensors").exists()


def test_a_failed_training_leaves_its_row_out(data: DataFolder, tmp_path: Path) -> None:
    first = request(data, tmp_path, "table-2")
    plan = prepare(first)
    job = next(job for job in plan.jobs if job.training.name == "DOAP-romepatches")
    run(first)
    shutil.rmtree(job.run)
    run(first)
    (job.run / "weights.safetensors").unlink()
    (job.run / FAILURE).write_text("{}")
    outcome, trained = run(first)
    assert not trained
    (failure,) = outcome.failures
    assert "DOAP-romepatches: its loss or weights were not finite" in failure
    names = [method["name"] for method in read_result(outcome.results / "romepatches.json").methods]
    assert names == ["sift", "binary-DOAP-romepatches"]


def test_a_target_without_its_trainings_does_not_stop_the_others(data: DataFolder, tmp_path: Path) -> None:
    asked = request(data, tmp_path, "figure-alignment", "figure-batch-size", "table-2")
    for job in prepare(asked).jobs:  # as if training had failed; of the sweeps, one run is left
        if job.training.name != "batch_size=48" and "hpatches" in str(job.run):
            start_run(job.run, job.recipe, describe_run(open_training_set(job.paths, "a"), DataSpec(), "cpu", 1, "32"))
            (job.run / FAILURE).write_text("{}")
    outcome, _ = run(asked)
    assert len(outcome.failures) == 4
    assert outcome.failures[-1] == "figure-alignment: needs two trainings, of which one or both have failed"
    assert read_result(outcome.results / "romepatches.json").scores
    sweep = json.loads((outcome.results / "batch-size-hpatches.json").read_text())
    assert [row["batch_size"] for row in sweep["rows"]] == [48]


@pytest.mark.parametrize("damage", ["truncated", "other benchmark"])
def test_a_damaged_result_is_measured_again(data: DataFolder, tmp_path: Path, damage: str) -> None:
    outcome, _ = run(request(data, tmp_path, "table-2"))
    file = outcome.results / "romepatches.json"
    good = file.read_text()
    other = good.replace('"benchmark": "romepatches"', '"benchmark": "phototour"')
    file.write_text(good[:100] if damage == "truncated" else other)
    with atomic_file(tmp_path / "weights.json") as temporary:
        leftover = tmp_path / "quick" / "runs" / "DOAP-romepatches" / temporary.name
    leftover.touch()  # of a killed reproduction
    _, trained = run(request(data, tmp_path, "table-2"))
    assert not trained
    assert file.read_text() == good
    assert not leftover.exists()


SMALL = ("epochs=1", "batch_size=32", "width=2")


def small_request(data: DataFolder, output: Path, *names: str) -> Request:
    """Return a request on the whole sets."""
    return Request(names, paper_targets(), data, output, settings=SMALL)


def test_a_result_is_measured_again_once_its_data_has_changed(data: DataFolder, tmp_path: Path) -> None:
    own = DataFolder(shutil.copytree(data.folder, tmp_path / "data"))
    asked = small_request(own, tmp_path / "out", "table-2")
    file = run(asked)[0].results / "romepatches.json"
    first = read_result(file)
    write_half(own.path("romepatches"), "test", seed=5)
    _, trained = run(asked)
    assert not trained  # the half that is trained on is the same
    second = read_result(file)
    is_equal = {
        half: [a == b for a, b in zip(first.scores, second.scores, strict=True) if a["half"] == half]
        for half in ("train", "test")
    }
    assert all(is_equal["train"])
    assert not any(is_equal["test"])
    moved = DataFolder(own.folder.rename(tmp_path / "moved"))
    time = file.stat().st_mtime_ns
    run(small_request(moved, tmp_path / "out", "table-2"))
    assert file.stat().st_mtime_ns == time


def test_a_result_of_an_earlier_version_is_kept(data: DataFolder, tmp_path: Path) -> None:
    outcome, _ = run(request(data, tmp_path, "table-2"))
    file = outcome.results / "romepatches.json"
    content = json.loads(file.read_text())
    assert set(content["settings"].pop("fingerprint")) == {"romepatches", "options"}
    file.write_text(json.dumps(content))
    run(request(data, tmp_path, "table-2"))
    assert json.loads(file.read_text()) == content


def test_a_result_is_of_all_sequences_and_options(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = DataFolder(shutil.copytree(data.folder, tmp_path / "data"))
    target = replace(paper_targets()["figure-oxford"], trainings=(), baselines=("sift",))
    plan = make_plan([target], own, tmp_path / "runs", is_quick=True)
    writer = ResultWriter(plan, tmp_path, tmp_path / "binarised")
    monkeypatch.setattr(results, "QUICK_KEYPOINTS", 60)
    writer.write(target)
    write_sequence(own.path("oxford") / "bark", seed=3)
    writer.write(target)
    names = {score["sequence"] for score in read_result(tmp_path / "oxford.json").scores}
    assert names == {"bark", "boat", "graf", "wall"}
    time = (tmp_path / "oxford.json").stat().st_mtime_ns
    writer.write(target)
    assert (tmp_path / "oxford.json").stat().st_mtime_ns == time
    monkeypatch.setattr(results, "QUICK_KEYPOINTS", 50)
    writer.write(target)
    assert read_result(tmp_path / "oxford.json").settings["keypoints"] == 50


def test_a_run_on_data_that_has_changed_is_refused(data: DataFolder, tmp_path: Path) -> None:
    own = DataFolder(shutil.copytree(data.folder, tmp_path / "data"))
    asked = small_request(own, tmp_path / "out", "table-2")
    run(asked)
    write_half(own.path("romepatches"), "train", seed=5)
    with pytest.raises(DoapError, match="DOAP-romepatches: its training set has changed since"):
        prepare(asked)


def test_a_batch_that_is_too_large_is_refused_before_any_training(data: DataFolder, tmp_path: Path) -> None:
    asked = small_request(data, tmp_path, "table-2", "figure-batch-size")
    with pytest.raises(DoapError, match=r"batch-size-phototour/batch_size=256: .*lower batch_size"):
        run(asked)
    assert not (tmp_path / "runs").exists()


def test_complete_and_failed_trainings_are_not_checked_again(data: DataFolder, tmp_path: Path) -> None:
    plan = make_plan([paper_targets()["table-2"]], data, tmp_path / "runs")
    recipe = read_recipe("romepatches-real", ["batch_size=100000"])
    job = replace(plan.jobs[0], recipe=recipe)
    with pytest.raises(DoapError, match="lower batch_size"):
        check_runs([job])
    start_run(job.run, recipe, describe_run(open_training_set(job.paths, "train"), job.source, "cpu", 1, "32"))
    (job.run / FAILURE).write_text("{}")
    check_runs([job])


def test_a_binarised_model_without_its_card_is_made_again(data: DataFolder, tmp_path: Path) -> None:
    plan = prepare(request(data, tmp_path, "table-2"))
    (target,), (job, _) = plan.targets, plan.jobs
    run(request(data, tmp_path, "table-2"))
    writer = ResultWriter(plan, tmp_path / "results", tmp_path / "binarised")
    binarised = replace(target, binarised=(job.training.name,))
    writer.write(binarised)
    model = tmp_path / "binarised" / f"binary-{job.training.name}.safetensors"
    model.with_suffix(".json").unlink()  # as if it was killed between both files
    writer.write(binarised)
    assert read_card(model).kind == "binary"


def test_unknown_targets_and_overrides_are_refused(data: DataFolder, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="table-9: no such table or figure here; choose from figure-patches"):
        prepare(request(data, tmp_path, "table-9"))
    with pytest.raises(DoapError, match="nonsense"):
        prepare(request(data, tmp_path, "table-2", settings=("nonsense=1",)))


def test_every_target_shares_its_trainings_with_the_others(data: DataFolder, tmp_path: Path) -> None:
    plan = make_plan(list(paper_targets().values()), data, tmp_path)
    names = [job.run for job in plan.jobs]
    assert len(set(names)) == len(names)
    assert len(names) == 30 + 5 + 2 + 1 + 15  # table 1, HPatches, table 2, zero padding, batch sizes
    assert "0 finished" in plan.summary()


def test_the_record_says_what_was_done(data: DataFolder, tmp_path: Path) -> None:
    run(request(data, tmp_path, "figure-patches"))
    record = json.loads((tmp_path / "quick" / "reproduction.json").read_text())
    assert record["targets"] == ["figure-patches"]
    assert record["quick"]
    assert not record["look-alike"]
    assert (tmp_path / "quick" / "results" / "patches.png").stat().st_size > 1000
