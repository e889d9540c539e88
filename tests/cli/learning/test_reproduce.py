import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from doap.cli.learning.reproduce import _setup_lines
from doap.evaluation.harness.result import read_result
from doap.experiments.reproduce.data import DataFolder
from doap.experiments.reproduce.run import Outcome, Request
from support.command_line import Doap
from support.sets.small_data_folder import make_data_folder

TARGETS = ("figure-patches", "table-1", "figure-batch-size", "figure-hpatches", "table-2", "figure-oxford",
           "figure-alignment", "figure-mining")  # fmt: skip
PICTURES = ("patches.png", "alignment.png", "label-mining.png", "batch-size-phototour.png", "batch-size-hpatches.png",
            "batch-size-romepatches.png")  # fmt: skip


def finished_runs(folder: Path) -> dict[Path, int]:
    """Return the time of modification of all finished weights."""
    cards = folder.glob("quick/runs/**/weights.json")
    return {card.with_suffix(".safetensors"): card.with_suffix(".safetensors").stat().st_mtime_ns for card in cards}


def start_and_kill(arguments: list[str], is_time: Callable[[], bool]) -> None:
    """Start the command and kill it, with all its processes, as soon as `is_time` says so."""
    process = subprocess.Popen([sys.executable, "-m", "doap", *arguments], start_new_session=True)
    try:
        deadline = time.monotonic() + 240
        while not is_time():
            assert process.poll() is None, "ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_everything_is_reproduced_quickly_killed_twice_and_continued(
    doap: Doap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    make_data_folder(tmp_path / "data", points=25, patches=8)
    out = tmp_path / "out"
    words = ["reproduce", "all", "--data", "data", "-o", "out", "--quick", "--set", "width=2", "--device", "cpu"]
    start_and_kill([*words, "--jobs", "2"], lambda: len(finished_runs(out)) > 3)
    before = finished_runs(out)
    start_and_kill(words, lambda: (out / "quick" / "results" / "phototour.json").exists())
    assert before.items() <= finished_runs(out).items()  # nothing is trained twice
    before = finished_runs(out)
    code, printed, error = doap(*words)
    assert (code, error) == (0, "")
    assert finished_runs(out) == before
    assert [f"evaluating {name}" in printed for name in TARGETS] == [True] * len(TARGETS)
    results = out / "quick" / "results"
    assert all((results / name).stat().st_size > 1000 for name in PICTURES)
    table = read_result(results / "phototour.json")
    learned = [method for method in table.methods if method["trained on"]]
    assert len(learned) == 3 * (10 + 2)  # ten recipes, two binarised
    assert len(table.scores) == 2 * len(learned) + 3 * (len(table.methods) - len(learned))
    page = (out / "quick" / "page" / "index.html").read_text()
    assert "no result was given" not in page.partition("Own image pairs")[0]
    assert "These figures mean nothing" in page
    assert page.count("What differs from the paper") >= 5


def test_missing_data_is_one_line_with_the_command(doap: Doap, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    code, _, error = doap("reproduce", "table-2", "--data", "data", "-o", "out")
    assert code == 1
    assert error == (
        "doap: table-2: needs romepatches in data, and romepatches is missing; get it with doap data download "
        "romepatches -o data\n"
    )


def test_a_dry_run_lists_data_and_trainings_and_writes_nothing(doap: Doap, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    code, printed, _ = doap("reproduce", "all", "--data", "data", "-o", "out", "--dry-run")
    assert code == 0
    for line in ("table-1: needs phototour-liberty", "30 trainings (0 finished, 0 started)", "doap data download"):
        assert line in printed
    assert not (tmp_path / "out").exists()


def test_a_dry_run_counts_the_trainings_of_a_quick_one(doap: Doap) -> None:
    code, printed, _ = doap("reproduce", "figure-batch-size", "--data", "data", "-o", "out", "--quick", "--dry-run")
    assert code == 0
    assert "6 trainings (0 finished, 0 started)" in printed


def test_look_alike_sets_are_not_made_in_vain(doap: Doap, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    words = ("--data", "look-alike", "--photos", "photos", "-o", "out")
    code, printed, error = doap("reproduce", "table-1", *words, "--dry-run")
    assert (code, error) == (0, "")
    assert "phototour-a, phototour-b, phototour-c are missing" in printed
    code, _, error = doap("reproduce", "figure-oxford", *words)
    assert (code, error.count("\n")) == (1, 1)
    assert "figure-oxford: no such table or figure here" in error
    assert not (tmp_path / "out").exists()


def test_steps_are_for_look_alike_sets(doap: Doap) -> None:
    code, _, error = doap("reproduce", "table-1", "--data", "data", "-o", "out", "--steps", "100")
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith("doap: --steps is for look-alike sets")


def test_steps_are_not_for_quick_trainings(doap: Doap, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    words = ("--data", "look-alike", "--photos", "photos", "-o", "out", "--quick", "--steps", "100")
    code, _, error = doap("reproduce", "table-1", *words, "--dry-run")
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith("doap: --steps has no effect with --quick")
    assert not (tmp_path / "out").exists()


def test_look_alike_sets_need_photos(doap: Doap) -> None:
    code, _, error = doap("reproduce", "table-1", "--data", "look-alike", "-o", "out")
    assert (code, error.count("\n")) == (1, 1)
    assert "give --photos" in error
    code, _, error = doap("reproduce", "table-1", "--data", "data", "--photos", "photos", "-o", "out")
    assert (code, error) == (1, "doap: --photos is for --data look-alike\n")


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        ("figure-batch-size", ("--set", "batch_size=64"), "--set batch_size: is what figure-batch-size varies; "),
        ("all", ("--set", "lr=1", "--set", " batch_size = 64"), "--set batch_size: is what figure-batch-size varies; "),
        ("table-1", ("--set", "epochs=1", "--steps", "100"), "--steps has no effect with --set epochs; "),
    ],
)
def test_settings_without_an_effect_are_refused(
    doap: Doap, tmp_path: Path, target: str, settings: tuple[str, ...], message: str
) -> None:
    (tmp_path / "photos").mkdir()
    words = ("reproduce", target, "--data", "look-alike", "--photos", "photos", "-o", "out")
    code, _, error = doap(*words, *settings)
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith(f"doap: {message}")
    assert not (tmp_path / "out").exists()


def test_the_page_names_no_steps_if_the_epochs_were_set(tmp_path: Path) -> None:
    data = DataFolder(tmp_path, is_look_alike=True)
    request = Request(["table-2"], {}, data, tmp_path, settings=["width=8"])
    outcome = Outcome(tmp_path, (), ())
    assert any(line.startswith("Trainings take 3,000 steps.") for line in _setup_lines(request, outcome))
    lines = _setup_lines(replace(request, settings=["epochs=2"]), outcome)
    assert not any("Trainings take" in line for line in lines)
    assert "All recipes were changed by epochs=2." in lines


def test_a_batch_size_is_set_where_the_figure_that_varies_it_is_skipped(doap: Doap, tmp_path: Path) -> None:
    make_data_folder(tmp_path / "data", points=8, patches=4)
    words = ("--data", "data", "-o", "out", "--set", "batch_size=64", "--dry-run")
    error = "doap: --set batch_size: is what figure-batch-size varies; leave it out, or name the other targets\n"
    assert doap("reproduce", "all", *words)[::2] == (1, error)
    shutil.rmtree(tmp_path / "data" / "hpatches")
    code, printed, errors = doap("reproduce", "all", *words)
    assert (code, errors) == (0, "")
    assert "figure-batch-size: needs " in printed
    assert doap("reproduce", "figure-batch-size", *words)[::2] == (1, error)
