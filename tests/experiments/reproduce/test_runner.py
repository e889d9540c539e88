"""Trainings in processes: one that cannot run, and one whose process is killed."""

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from doap.errors import DoapError
from doap.experiments.reproduce import runner
from doap.experiments.reproduce.runner import Job, run_trainings
from doap.experiments.reproduce.targets import Training
from doap.training.recipes.reading import read_recipe
from support.sets.official_formats import write_half
from support.trainings import same_weights

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


def test_one_training_has_as_many_threads_as_each_of_several(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    monkeypatch.setattr(runner, "train", lambda *_args, **_named: used.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(6)
    try:
        run_trainings(jobs[:1], 2, lambda *_: None)
        run_trainings(jobs[:1], 1, lambda *_: None)
        assert torch.get_num_threads() == 6
    finally:
        torch.set_num_threads(before)
    assert used == [3, 6]


@pytest.mark.slow
def test_the_weights_do_not_depend_on_how_many_trainings_wait(jobs: list[Job]) -> None:
    short = [replace(job, recipe=job.recipe.model_copy(update={"epochs": 1})) for job in jobs]
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        run_trainings(short, 2, lambda *_: None)
        again = short[1].run.rename(short[1].run.with_name("before"))
        run_trainings(short, 2, lambda *_: None)
    finally:
        torch.set_num_threads(before)
    assert same_weights(short[1].run, again)
    records = [json.loads((run / "run.json").read_text()) for run in (short[1].run, again)]
    assert [record["threads"] for record in records] == [2, 2]


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
