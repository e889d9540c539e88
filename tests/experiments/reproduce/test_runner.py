"""Trainings in processes: one that cannot run, and one whose process is killed."""

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from doap.errors import DoapError
from doap.experiments.reproduce.runner import Job, run_trainings
from doap.experiments.reproduce.targets import Training
from doap.training.recipe import read_recipe
from support.sets.official_formats import write_half

ENDLESS = ("epochs=100000", "batch_size=20", "width=8")


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    """Two trainings that take hours."""
    data = tmp_path / "romepatches"
    for number, half in enumerate(("train", "test")):
        write_half(data, half, seed=number)
    recipe = read_recipe("romepatches-real", list(ENDLESS))
    training = Training("first", "romepatches-real", ("romepatches",))
    first = Job(training, recipe, (data,), tmp_path / "runs" / "first", "cpu")
    return [first, replace(first, training=replace(training, name="second"), run=tmp_path / "runs" / "second")]


@pytest.mark.slow
def test_a_training_that_cannot_run_stops_the_others_at_once(jobs: list[Job]) -> None:
    jobs[1].run.mkdir(parents=True)
    (jobs[1].run / "photo.jpg").touch()  # not a run folder
    with pytest.raises(DoapError, match="second: exists and is not a run folder"):
        run_trainings(jobs, 2, lambda *_: None)
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_killed_process_is_reported_in_one_line(jobs: list[Job]) -> None:
    def kill_one(_name: str, fraction: float, _done: int, _total: int) -> None:
        if fraction > 0:
            pid = multiprocessing.active_children()[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(DoapError, match="was killed, perhaps for lack of memory; try again with fewer --jobs"):
        run_trainings(jobs, 2, kill_one)
    assert not multiprocessing.active_children()
