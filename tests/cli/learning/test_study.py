import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from doap import load
from doap.cli.learning.study import STUDIES
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.sets.frame_set import FrameSet
from doap.evaluation.image_pairs.evaluator import PairsEvaluator
from doap.experiments.study_plan import list_studies, read_study
from doap.images.frames import detect_dog
from doap.training.validation import Validation
from doap.types import Grey
from support.command_line import Doap
from support.figures import record_figures
from support.sets.small_pairs import write_pair, write_sequence

FILE = """
recipe: small.yaml
seeds: [0, 1]
tune: {lr: [0.3, 1.0]}
runs:
  plain:
  zoom: {settings: {zoom: 1.0, ema_decay: 0.5}, tune: {}}
  binary: {settings: {kind: binary, dimensions: 32}, tune: {}}
"""


@pytest.fixture
def sets(tmp_path: Path, photo: Grey) -> Path:
    (tmp_path / "small.yaml").write_text(
        "network: tiny\nwidth: 8\ndimensions: 16\nbatch_size: 96\nviews_per_group: 4\nepochs: 1\n"
        "precision: fp32\nval_fraction: 0.5\n"
    )
    (tmp_path / "study.yaml").write_text(FILE)
    for name, half in {"train": photo[:, :256], "val": photo[:, 256:]}.items():
        halves = [(f"{name}{number}", part) for number, part in enumerate((half[:256], half[256:]))]
        frame_set_from_photos(halves, lambda image: detect_dog(image, 30)).save(tmp_path / name)
    write_sequence(tmp_path / "pairs" / "a", 0)
    return tmp_path


WORDS = ("study", "study.yaml", "--data", "train", "--val", "val", "-o", "runs", "--device", "cpu")
PAIRS = ("--pairs", "pairs", "--keypoints", 80, "--extent", "own", "--extent", "6")


@pytest.mark.slow
def test_a_study_is_trained_evaluated_printed_and_drawn(
    doap: Doap, sets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = record_figures(monkeypatch)
    status, shown, errors = doap(*WORDS, *PAIRS)
    assert (status, errors) == (0, "")
    with (sets / "runs" / "study.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["run", "setting", "seed", "pairs", "pairs at own", "pairs at 6.0", "lists"]
    best = max(rows[:2], key=lambda row: float(row["pairs"]))["setting"]
    assert [(row["run"], row["setting"], row["seed"]) for row in rows[2:]] == [
        ("zoom", "", "0"), ("binary", "", "0"), ("plain", best, "1"), ("zoom", "", "1"), ("binary", "", "1"),
    ]  # fmt: skip
    evaluator = PairsEvaluator(sets / "pairs", "dog", 80, [None, 6.0])
    val, base = FrameSet.open(sets / "val"), read_study(sets / "study.yaml").base
    for row in rows[2:4]:
        model = load(sets / "runs" / f"{row['run']},seed=0" / "weights.safetensors", fast=False)
        assert float(row["pairs"]) == pytest.approx(evaluator.measure(model)["pairs"], abs=1e-6)
        validation = Validation(val, base.model_copy(update={"kind": model.kind}), torch.device("cpu"), 32)
        assert float(row["lists"]) == pytest.approx(100 * validation.average_precision(model.network), abs=1e-6)
    content = json.loads((sets / "runs" / "study.json").read_text())
    assert content["evaluated_by"]["pairs"]["extents"] == [None, 6.0]
    run = content["runs"]["zoom,seed=1"]
    assert (run["recipe"]["zoom"], run["recipe"]["seed"]) == (1.0, 1)
    assert "2 sequences" in run["patches"]  # all of it is trained on: --val validates
    for name in ("plain", "zoom", "binary"):
        mean = np.mean([float(row["pairs"]) for row in rows if row["run"] == name and row["setting"] in ("", best)])
        assert f"{mean:.2f} ±" in shown
    labels = ["AP %, pairs", "AP %, pairs at own", "AP %, pairs at 6.0", "AP %, lists"]
    assert [axes.get_xlabel() for axes in figures[-1].axes] == labels
    assert (sets / "runs" / "study.png").exists()
    status, again, errors = doap(*WORDS, *PAIRS)
    assert (status, errors) == (0, "")
    assert again == shown


def test_without_pairs_the_lists_decide_and_settings_override_all_runs(doap: Doap, sets: Path) -> None:
    (sets / "study.yaml").write_text("recipe: small.yaml\nseeds: [5]\nruns: {a: {settings: {epochs: 9}}}\n")
    status, shown, _ = doap(*WORDS, "--set", "epochs=1")
    assert status == 0
    assert "a,seed=5: lists" in shown
    assert json.loads((sets / "runs" / "study.json").read_text())["runs"]["a,seed=5"]["recipe"]["epochs"] == 1


def test_runs_are_evaluated_again_on_a_set_that_was_built_again(doap: Doap, sets: Path) -> None:
    (sets / "study.yaml").write_text("recipe: small.yaml\nseeds: [5]\nruns: {a: {}}\n")

    def measure() -> float:
        status, _, errors = doap(*WORDS)
        assert (status, errors) == (0, "")
        return float(json.loads((sets / "runs" / "study.json").read_text())["rows"][0]["lists"])

    first = measure()
    val = FrameSet.open(sets / "val")
    val.frames = val.frames * np.array([1.5, 1.5, 1], np.float32)  # larger
    val.save(sets / "again")
    shutil.rmtree(sets / "val")
    (sets / "again").rename(sets / "val")
    assert measure() != first


ERRORS = {
    "no file": (("study", "nowhere.yaml", *WORDS[2:]), "nowhere.yaml: cannot be read"),
    "no pairs": ((*WORDS, "--pairs", "small.yaml"), "small.yaml: no such folder"),
    "no homography": ((*WORDS, "--pairs", "labelled"), "have labelled points only"),
    "detector": ((*WORDS, "--pairs", "pairs", "--detector", "eyes"), "--detector eyes: unknown; choose one of"),
    "extent": (
        (*WORDS, "--pairs", "pairs", "--extent", "-1"),
        "--extent: must be a number greater than 0, or own; not -1",
    ),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_one_line_before_any_training(doap: Doap, sets: Path, error: str) -> None:
    write_pair(sets / "labelled", 1, "points.csv")
    words, message = ERRORS[error]
    status, _, errors = doap(*words)
    assert (status, errors.count("\n")) == (1, 1)
    assert message in errors
    assert not (sets / "runs").exists()


@pytest.mark.slow
def test_studies_need_no_other_extras() -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(['kornia', 'faiss', 'pycolmap']));"
    code = f"{blocked} from doap.cli.main import main; sys.argv = ['doap', 'study', '--help']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "objectives" in done.stdout


def test_the_help_names_the_studies_that_ship() -> None:
    assert list(STUDIES) == list_studies()


@pytest.mark.parametrize("option", ["detector", "extent", "keypoints"])
def test_options_of_pairs_need_pairs(doap: Doap, sets: Path, option: str) -> None:
    value = {"detector": "harris", "extent": "6", "keypoints": "80"}[option]
    status, _, errors = doap(*WORDS, f"--{option}", value)
    assert (status, errors) == (1, f"doap: --{option}: has no effect on a study without --pairs; leave it out\n")
    assert not (sets / "runs").exists()


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ("val_fraction=0.25", "--set val_fraction=0.25: has no effect beside --val; leave it out"),
        ("groups_per_sequence=8", "study.yaml: groups_per_sequence=8 needs sampling=pools; without it, set "),
    ],
)
def test_settings_without_an_effect_on_any_run_are_refused(doap: Doap, sets: Path, setting: str, error: str) -> None:
    status, _, errors = doap(*WORDS, "--set", setting)
    assert (status, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"doap: {error}")
    assert not (sets / "runs").exists()
