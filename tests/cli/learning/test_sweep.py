import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.progress import Progress as ProgressBar

from doap import PatchSet, load
from doap.evaluation.phototour.pair_test import fpr95
from doap.experiments.sweep_metrics import make_evaluator
from doap.training import trainer
from doap.training.log import Status
from support.command_line import Doap
from support.figures import record_figures
from support.sets.small_official_sets import make_hpatches, make_rome
from support.sets.small_phototour import PAIRS, learnable_phototour

SMALL = "network: tiny\nwidth: 8\ndimensions: 16\nbatch_size: 32\nepochs: 3\nlr: 1.0\nprecision: 'fp32'\n"
# Ends the process in the middle of the second run, as a power cut would.
KILLED = """
import os, signal, sys
from doap.training import trainer
from doap.experiments import series
trainer.CHECKPOINT_SECONDS = 0
whole = series.train

def train(**arguments):
    def step(status):
        if arguments["name"] == "batch_size=96" and not status.preparation and status.done > 0.6:
            os.kill(os.getpid(), signal.SIGKILL)
    return whole(**{**arguments, "progress": step})

series.train = train
from doap.cli.main import main
main()
"""


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """liberty, notredame and yosemite, small; not to be written to."""
    folder = tmp_path_factory.mktemp("scenes")
    for seed, name in enumerate(("liberty", "notredame", "yosemite")):
        learnable_phototour(folder / name, seed=seed)
    return folder


@pytest.fixture
def folders(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the scenes, and a small recipe."""
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    shutil.copytree(scenes, tmp_path, dirs_exist_ok=True)
    (tmp_path / "small.yaml").write_text(SMALL)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the killed process has, so that sums round alike
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_the_papers_figure_killed_and_continued(doap: Doap, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = record_figures(monkeypatch)
    words = ("sweep", "small.yaml", "--data", "liberty", "--over", "batch_size=64,96",
             "--test", "notredame", "--test", "yosemite", "--set", "epochs=2", "--device", "cpu")  # fmt: skip
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *words, "-o", "killed"],
        cwd=folders,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL
    assert (folders / "killed" / "batch_size=64" / "weights.json").exists()
    assert not (folders / "killed" / "batch_size=96" / "weights.json").exists()
    before = (folders / "killed" / "batch_size=64" / "weights.safetensors").stat().st_mtime_ns
    for folder in ("killed", "whole"):
        status, shown, errors = doap(*words, "-o", folder)
        assert (status, errors) == (0, "")
        assert f"2 runs in {folder}: sweep.csv, sweep.json, sweep.png" in shown
        assert all((folders / folder / f"batch_size={size}" / "training.png").exists() for size in (64, 96))
    assert (folders / "killed" / "batch_size=64" / "weights.safetensors").stat().st_mtime_ns == before
    assert (folders / "killed" / "sweep.csv").read_text() == (folders / "whole" / "sweep.csv").read_text()
    with (folders / "whole" / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["batch_size", "fpr95", "fpr95 notredame", "fpr95 yosemite"]
    assert [row["batch_size"] for row in rows] == ["64", "96"]
    for row in rows:
        model = load(folders / "whole" / f"batch_size={row['batch_size']}" / "weights.safetensors", fast=False)
        rates = [100 * fpr95(model, folders / name) for name in ("notredame", "yosemite")]
        assert [float(row["fpr95 notredame"]), float(row["fpr95 yosemite"])] == pytest.approx(rates, abs=1e-6)
        assert float(row["fpr95"]) == pytest.approx(sum(rates) / 2, abs=1e-6)
        assert f"batch_size={row['batch_size']}: FPR95 {sum(rates) / 2:.2f} %" in shown
    content = json.loads((folders / "whole" / "sweep.json").read_text())
    assert (content["recipe"], content["settings"]) == ("small.yaml", ["epochs=2"])
    assert content["tests"] == ["notredame", "yosemite"]
    assert content["runs"]["batch_size=96"]["recipe"]["epochs"] == 2
    (axes,) = figures[-1].axes
    assert axes.get_xlabel().startswith("batch_size (M, patches per batch")
    labels = [str(line.get_label()) for line in axes.lines]
    assert labels == ["mean", "notredame", "yosemite"]
    assert (folders / "whole" / "sweep.png").exists()


def test_validation_scenes_are_used_where_no_test_is_given(doap: Doap, folders: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (240, 32, 32), dtype=np.uint8)
    PatchSet([pixels], np.arange(240) // 3, np.arange(240) // 60).save(folders / "four")
    status, shown, _ = doap(
        "sweep", "small.yaml", "--data", "four", "--over", "schedule=linear,steps", "-o", "runs",
        "--set", "epochs=1", "--set", "val_fraction=0.5", "--device", "cpu",
    )  # fmt: skip
    assert status == 0
    with (folders / "runs" / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["schedule"], row["epoch"]) for row in rows] == [("linear", "0"), ("steps", "0")]
    for row in rows:
        validated = (folders / "runs" / f"schedule={row['schedule']}" / "validation.csv").read_text().split()[1]
        ap = float(row["ap"])
        assert ap == pytest.approx(100 * float(validated.split(",")[1]), abs=0.1)
        assert f"schedule={row['schedule']}: AP on validation scenes {ap:.2f} %, after epoch 0" in shown
    recorded = json.loads((folders / "runs" / "sweep.json").read_text())["rows"]
    assert [float(row["ap"]) for row in rows] == [round(100 * row["ap"], 6) for row in recorded]


def test_null_is_shown_as_in_the_name_of_the_folder(doap: Doap, folders: Path) -> None:
    status, shown, _ = doap(
        "sweep", "small.yaml", "--data", "liberty", "--over", "views_per_group=null", "-o", "runs",
        "--test", "yosemite", "--set", "epochs=1", "--device", "cpu",
    )  # fmt: skip
    assert (status, "views_per_group=null: FPR95" in shown) == (0, True)
    assert (folders / "runs" / "views_per_group=null" / "weights.json").exists()


@pytest.mark.parametrize(
    ("data", "metric", "split", "shown_as"),
    [
        ("hpatches", "retrieval", "a", "HPatches retrieval mAP"),
        ("rome", None, "train", "RomePatches mAP"),
    ],
)
def test_other_benchmarks_interrupted_and_continued(
    doap: Doap,
    folders: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: str,
    metric: str | None,
    split: str,
    shown_as: str,
) -> None:
    figures = record_figures(monkeypatch)
    make_rome(folders / "rome", patches=60)
    make_hpatches(folders / "hpatches", patches=5)
    splits = {"a": {"name": "a", "train": ["v_two"], "test": ["i_one", "v_three"]}}
    (folders / "hpatches" / "splits.json").write_text(json.dumps(splits))
    words = ("sweep", "small.yaml", "--data", data, "--over", "seed=1,2", "--test", data, "--split", split,
             *(("--metric", metric) if metric else ()), "--set", "epochs=2", "--device", "cpu")  # fmt: skip

    def stop(run: str, status: Status) -> None:
        if run == "seed=2" and not status.preparation and status.done >= 0.5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(trainer, "CHECKPOINT_SECONDS", 0)
        patched.setattr("doap.cli.learning.sweep.series_bar", lambda: nullcontext((ProgressBar(disable=True), stop)))
        doap(*words, "-o", "stopped")
    assert (folders / "stopped" / "seed=1" / "weights.json").exists()
    assert not (folders / "stopped" / "seed=2" / "weights.json").exists()
    status, shown, errors = doap(*words, "-o", "stopped")
    assert (status, errors) == (0, "")
    content = json.loads((folders / "stopped" / "sweep.json").read_text())
    column = metric or "map"
    assert (content["metric"]["name"], content["metric"]["better"], content["split"]) == (column, "more", split)
    assert [list(row) for row in content["rows"]] == [["seed", column, f"{column} {data}"]] * 2
    for row in content["rows"]:
        run = folders / "stopped" / f"seed={row['seed']}"
        evaluate, _ = make_evaluator([folders / data], metric, split)
        assert row[column] == evaluate(run, load(run / "weights.safetensors", fast=False))[column]
        assert f"seed={row['seed']}: {shown_as} {row[column]:.2f} %" in shown
    assert figures[-1].axes[0].get_ylabel() == f"{shown_as} % on {data} (more is better)"


def test_tests_are_measured_again_once_their_pairs_have_changed(doap: Doap, folders: Path) -> None:
    words = ("sweep", "small.yaml", "--data", "liberty", "--over", "seed=1", "--test", "yosemite", "-o", "runs",
             "--set", "epochs=1", "--device", "cpu")  # fmt: skip

    def measure() -> float:
        status, _, errors = doap(*words)
        assert (status, errors) == (0, "")
        return float(json.loads((folders / "runs" / "sweep.json").read_text())["rows"][0]["fpr95"])

    pairs = folders / "yosemite" / PAIRS
    assert measure() < 100
    rows = [line.split() for line in pairs.read_text().splitlines()]
    # Non-matching pairs become pairs of a patch with itself: all are at or below the threshold.
    same = [" ".join([*row[:3], row[0], "1", *row[5:]]) if row[1] != row[4] else " ".join(row) for row in rows]
    pairs.write_text("\n".join(same) + "\n")
    assert measure() == 100


ERRORS = {
    "no evaluation": (("--over", "batch_size=32,64"), "no data for the evaluation"),
    "other validation scenes": (
        ("--over", "val_fraction=0.3,0.5"),
        "--over val_fraction: the validation scenes of the",
    ),
    "other seeds": (("--over", "seed=1,2", "--set", "val_fraction=0.5"), "--over seed: the validation scenes of the"),
    "no values": (("--over", "batch_size", "--test", "yosemite"), "--over batch_size: write it as"),
    "unknown key": (("--over", "size=3", "--test", "yosemite"), "size: Extra inputs"),
    "no test": (
        ("--over", "batch_size=32", "--test", "nowhere"),
        "nowhere: not an official folder of Phototour, HPatches or",
    ),
    "metric of another benchmark": (
        ("--over", "batch_size=32", "--test", "yosemite", "--metric", "matching"),
        "--metric matching: not of phototour; give --metric fpr95",
    ),
    "metric without a test": (
        ("--over", "batch_size=32", "--set", "val_fraction=0.5", "--metric", "fpr95"),
        "--metric fpr95: needs --test",
    ),
    "trained on": (("--over", "batch_size=32", "--test", "liberty"), "liberty is trained on; give another scene"),
    "no such split": (("--over", "batch_size=32", "--test", "yosemite", "--split", "a"), "split=a needs HPatches"),
    "splits": (("--over", "split=a,b", "--test", "yosemite"), "different values of split"),
    "a test twice": (("--over", "batch_size=32", "--test", "yosemite", "--test", "yosemite"), "two folders are called"),
    "no pairs": (("--over", "batch_size=32", "--test", "notredame"), f"{PAIRS}: cannot be read"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_one_line_before_any_training(doap: Doap, folders: Path, error: str) -> None:
    (folders / "notredame" / PAIRS).unlink()
    words, message = ERRORS[error]
    status, _, errors = doap("sweep", "small.yaml", "--data", "liberty", "-o", "runs", *words)
    assert (status, errors.count("\n")) == (1, 1)
    assert message in errors
    assert not (folders / "runs").exists()


def test_what_is_varied_cannot_be_set(doap: Doap, tmp_path: Path) -> None:
    words = ("sweep", "photos-tiny-real", "--over", "lr=1,2", "--data", "absent", "-o", "sweep", "--set", "lr=3")
    status, _, errors = doap(*words)
    assert (status, errors) == (1, "doap: --set lr: is what --over varies; leave it out\n")
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize("other", [("--over", "split=a,b"), ("--over", "lr=1,2", "--set", "split=b")])
def test_a_split_is_given_once(doap: Doap, tmp_path: Path, other: tuple[str, ...]) -> None:
    words = ("sweep", "hpatches-real", "--data", "absent", "-o", "sweep", "--split", "a", *other)
    status, _, errors = doap(*words)
    assert (status, errors) == (1, "doap: --split: --set or --over sets it, too; give one of them\n")
    assert not (tmp_path / "sweep").exists()


def test_a_key_without_an_effect_on_any_run_is_refused(doap: Doap, folders: Path) -> None:
    status, _, errors = doap(
        "sweep", "small.yaml", "--data", "liberty", "--over", "groups_per_sequence=64,8", "-o", "runs",
        "--test", "notredame", "--device", "cpu",
    )  # fmt: skip
    message = "groups_per_sequence=8 needs sampling=pools; without it, set groups_per_sequence=64"
    assert (status, errors) == (1, f"doap: small.yaml: {message}\n")
    assert not (folders / "runs").exists()
