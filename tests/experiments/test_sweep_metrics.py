"""Evaluators of sweeps, on small sets in the official formats, against the tables and the definitions."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from doap import Descriptor, DoapError, describe_patches, load
from doap.datasets.official.opening import open_dataset
from doap.datasets.sets.patch_set import PatchSet
from doap.evaluation.harness.methods import open_methods, to_inference
from doap.evaluation.hpatches.benchmark import HPatches
from doap.evaluation.metrics.average_precision import average_precision
from doap.experiments.sweep_metrics import METRICS, check_disjoint, choose_metric, make_evaluator
from support.sets.small_official_sets import make_hpatches, make_phototour, make_rome
from support.sets.small_phototour import PAIRS, learnable_phototour
from support.small_models import with_extents


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Path:
    """Run folder with the weights of a demo model."""
    (folder / "batch_size=64").mkdir()
    with_extents(folder / "batch_size=64" / "weights.safetensors")
    return folder / "batch_size=64"


def model_of(run: Path) -> Descriptor:
    return load(run / "weights.safetensors", fast=False)


def describe(patches: PatchSet, run: Path) -> NDArray[np.float64]:
    """Describe all patches by the model of a run, in the dtype in which benchmarks describe them."""
    return describe_patches(patches.take(np.arange(len(patches))), to_inference(model_of(run))).astype(np.float64)


def false_positive_rate(distances: np.ndarray, same: np.ndarray) -> float:
    """Compute FPR95 by its definition, threshold by threshold."""
    for threshold in np.sort(distances):
        if (distances[same] <= threshold).mean() >= 0.95:
            return float((distances[~same] <= threshold).mean())
    raise AssertionError


def test_phototour_is_the_mean_false_positive_rate(folder: Path, run: Path) -> None:
    tests = [learnable_phototour(folder / name, seed=seed) for seed, name in enumerate(("notredame", "yosemite"))]
    evaluate, metric = make_evaluator(tests)
    assert (metric.name, metric.better, metric.label) == ("fpr95", "less", "FPR95 %")
    row = evaluate(run, model_of(run))
    rates = []
    for test in tests:
        patches = open_dataset(test)
        codes = describe(patches, run)
        pairs = np.loadtxt(test / PAIRS, dtype=np.int64)
        distances = np.linalg.norm(codes[pairs[:, 0]] - codes[pairs[:, 3]], axis=1)
        rates.append(100 * false_positive_rate(distances, pairs[:, 1] == pairs[:, 4]))
    assert rates[0] != rates[1]
    assert list(row) == ["fpr95", "fpr95 notredame", "fpr95 yosemite"]
    assert list(row.values()) == pytest.approx([np.mean(rates), *rates], abs=1e-6)


@pytest.mark.parametrize("task", ["verification", "matching", "retrieval"])
def test_hpatches_is_the_tie_aware_mean_of_its_table(folder: Path, run: Path, task: str) -> None:
    data = make_hpatches(folder / "hpatches", ("i_one", "v_two", "v_three"), patches=5)
    splits = {"a": {"name": "a", "train": ["v_two"], "test": ["i_one", "v_three"]}}
    (data / "splits.json").write_text(json.dumps(splits))
    evaluate, metric = make_evaluator([data], task, "a")
    assert (metric.better, metric.label) == ("more", f"HPatches {task} mAP %")
    row = evaluate(run, model_of(run))
    assert list(row) == [task, f"{task} hpatches"]
    result = HPatches(data, "a", [task]).evaluate(open_methods([str(run / "weights.safetensors")]))
    assert result.settings["sequences"] == ["i_one", "v_three"]
    table = HPatches.tables(result)[0]
    (tie_aware,) = [row.cells for row in table.rows if row.cells[1] == "tie-aware"]
    assert f"{row[task]:.2f}" == tie_aware[table.columns.index("mean")]
    without, _ = make_evaluator([data], task)
    assert without(run, model_of(run)) != row  # all three sequences
    rome, _ = make_evaluator([data], task, "train")  # trained on RomePatches
    assert rome(run, model_of(run)) == without(run, model_of(run))


def test_romepatches_is_the_precision_of_the_test_half(folder: Path, run: Path) -> None:
    data = make_rome(folder / "rome")
    evaluate, metric = make_evaluator([data], split="train")
    assert (metric.name, metric.better) == ("map", "more")
    patches = open_dataset(data, sequences=["test"])
    codes = describe(patches, run)
    precisions = []
    for query in range(len(patches)):
        others = np.arange(len(patches)) != query
        distances = np.linalg.norm(codes[others] - codes[query], axis=1)
        precisions.append(average_precision(distances, patches.groups[others] == patches.groups[query]))
    expected = 100 * float(np.mean(precisions))
    assert evaluate(run, model_of(run)) == pytest.approx({"map": expected, "map rome": expected}, abs=1e-4)


def test_the_metric_follows_the_tests(folder: Path) -> None:
    phototour, hpatches, rome = (
        make_phototour(folder / "liberty"),
        make_hpatches(folder / "hp"),
        make_rome(folder / "r"),
    )
    assert choose_metric([]).name == choose_metric([], "validation-ap").name == "validation-ap"
    assert choose_metric([phototour]).name == choose_metric([phototour], "fpr95").name == "fpr95"
    assert choose_metric([rome]).name == choose_metric([rome], "map").name == "map"
    for task in ("verification", "matching", "retrieval"):
        assert choose_metric([hpatches], task) is METRICS[task]


@pytest.mark.parametrize(
    ("tests", "metric", "message"),
    [
        (["hp"], None, "hpatches has several metrics; give --metric verification or matching or retrieval"),
        (["hp"], "fpr95", "--metric fpr95: not of hpatches; give --metric verification or matching or retrieval"),
        (["hp"], "validation-ap", "--metric validation-ap: not of hpatches; give"),
        (["liberty"], "matching", "--metric matching: not of phototour; give --metric fpr95"),
        (["rome"], "retrieval", "--metric retrieval: not of romepatches; give --metric map"),
        ([], "map", "--metric map: needs --test"),
        (["rome"], "mAP", "--metric mAP: unknown; choose one of fpr95, verification, matching, retrieval, map"),
        (["rome", "liberty"], None, "--test: folders of phototour and romepatches have no metric in common"),
        (["liberty", "more/liberty"], None, "--test: two folders are called liberty"),
        (["nowhere"], None, "nowhere: not an official folder of Phototour, HPatches or RomePatches"),
    ],
)
def test_wrong_combinations_are_one_line(folder: Path, tests: list[str], metric: str | None, message: str) -> None:
    make_hpatches(folder / "hp")
    make_rome(folder / "rome")
    for name in ("liberty", "more/liberty"):
        make_phototour(folder / name)
    with pytest.raises(DoapError) as caught:
        choose_metric([folder / name for name in tests], metric)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tests_that_do_not_allow_the_metric_are_one_line(folder: Path) -> None:
    alone = make_hpatches(folder / "alone", ("i_one",), patches=3)
    with pytest.raises(DoapError, match="alone: retrieval: needs distractors of other sequences"):
        make_evaluator([alone], "retrieval")
    with pytest.raises(DoapError, match=r"no splits\.json"):
        make_evaluator([alone], "matching", "a")
    rome = make_rome(folder / "rome")
    for file in rome.glob("*test*"):
        file.unlink()
    with pytest.raises(DoapError, match="rome: has no test half"):
        make_evaluator([rome])
    scene = make_phototour(folder / "notredame")
    (scene / PAIRS).unlink()
    with pytest.raises(DoapError, match=rf"notredame/{PAIRS}: cannot be read"):
        make_evaluator([scene])


@pytest.mark.parametrize(
    ("training", "test", "split", "message"),
    [
        ("data/phototour-liberty", "liberty", None, "liberty is trained on; give another scene"),
        ("hpatches", "./hpatches", None, "all of it is trained on; give --split"),
        ("hpatches", "hpatches", "a", ""),
        ("liberty", "yosemite", None, ""),
    ],
)
def test_what_is_trained_on_is_not_tested_on(training: str, test: str, split: str | None, message: str) -> None:
    if not message:
        check_disjoint(Path(training), [Path(test)], split)
        return
    with pytest.raises(DoapError, match=message):
        check_disjoint(Path(training), [Path(test)], split)
