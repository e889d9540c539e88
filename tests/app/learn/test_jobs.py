"""Trainings in a process and a folder of their own."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from doap import describe_patches, load
from doap.app.learn import jobs
from doap.app.learn import sessions as sessions_module
from doap.app.learn.events import AnyEvent, Data, Done, Loss, Ranks, Validation
from doap.app.learn.jobs import JOB, Training
from doap.app.learn.sessions import Sessions
from doap.app.learn.view import LearnView
from doap.demo import photos
from doap.errors import DoapError
from doap.types import Grey

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shortest_trainings")]


@pytest.fixture(scope="module")
def images() -> list[tuple[str, Grey]]:
    """Four small photos."""
    return [(name, np.ascontiguousarray(image[::2, ::2])) for name, image in photos.read_photos(photos.TEST)]


@pytest.fixture
def training(images: list[tuple[str, Grey]]) -> Iterator[Training]:
    """A training of the shortest time, stopped at the end."""
    made = Training(images, "real", 1)
    yield made
    made.stop()


def ended(training: Training, seconds: float = 60) -> bool:
    """Return whether the process ends in time."""
    end = time.monotonic() + seconds
    while training.process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    return training.process.poll() is not None


def test_a_training_sends_all_events_and_leaves_loadable_weights(
    images: list[tuple[str, Grey]], tmp_path: Path
) -> None:
    training = Training(images, "real", 1)
    events: list[AnyEvent] = [event for batch in training.events(0.5) for event in batch]
    data = next(event for event in events if isinstance(event, Data))
    assert (data.train, data.val) == (3, 1)
    aps = [event.ap for event in events if isinstance(event, Validation) and event.name != "RootSIFT"]
    assert max(aps) > aps[0] + 0.05
    done = events[-1]
    assert isinstance(done, Done)
    assert done.ap == max(aps[1:])
    assert len(aps) == data.epochs + 1 or done.is_cut  # the machine may be busy
    lists = [event for event in events if isinstance(event, Ranks)]
    assert len(lists) == len({event.query for event in lists}) * (len(aps) + 1)
    assert any(isinstance(event, Loss) for event in events)
    weights, card = (tmp_path / path.name for path in training.result)
    for source, target in zip(training.result, (weights, card), strict=True):
        target.write_bytes(source.read_bytes())
    training.stop()
    assert not training.folder.exists()
    model = load(weights)
    assert (model.name, model.kind, card.name) == ("own-128", "real", "own-128.json")
    assert describe_patches(np.zeros((2, 32, 32), np.uint8), model).shape == (2, 128)


def test_a_stopped_training_ends_its_process_and_its_events_and_removes_its_folder(training: Training) -> None:
    events = training.events(0.2)
    next(events)
    assert training.folder.exists()
    training.stop()
    assert training.process.poll() is not None
    assert not training.folder.exists()
    assert [event for batch in events for event in batch] == []


def test_the_process_does_not_outlive_the_page(training: Training) -> None:
    assert training.process.stdin is not None
    next(batch for batch in training.events(0.2) if batch)
    training.process.stdin.close()
    assert ended(training)
    assert not training.folder.exists()


def test_unusable_photos_are_one_line() -> None:
    flat: Grey = np.zeros((100, 100), np.uint8)
    training = Training([(f"flat {number}", flat) for number in range(4)], "real", 1)
    with pytest.raises(DoapError, match="0 usable photos"):
        list(training.events(0.5))
    training.stop()


def test_a_process_that_fails_is_one_line(training: Training) -> None:
    (training.folder / JOB).write_text("damaged")
    with pytest.raises(DoapError, match="stopped unexpectedly"):
        list(training.events(0.5))


def test_a_training_that_hangs_is_ended(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "STARTUP_SECONDS", -jobs.CUT_AFTER - 1.0)
    with pytest.raises(DoapError, match="took longer"):
        list(training.events(0.2))
    assert not training.folder.exists()


def test_the_sessions_forget_a_visitor_who_leaves(images: list[tuple[str, Grey]]) -> None:
    sessions = Sessions(2, 1)
    views = sessions.run("visitor", images, "real")
    view = next(views)
    assert sessions.view("visitor") is view
    sessions.forget("visitor")
    assert [shown.is_stopped for shown in views] == [True]
    assert sessions.view("visitor") == LearnView()


def test_a_training_that_is_stopped_before_it_begins_does_not_begin(images: list[tuple[str, Grey]]) -> None:
    sessions = Sessions(2, 1)
    sessions.expect("visitor")
    sessions.stop("visitor")
    assert [view.is_stopped for view in sessions.run("visitor", images, "real")] == [True]
    assert not sessions.is_busy
    sessions.expect("visitor")  # asks again
    views = sessions.run("visitor", images, "real")
    assert not next(views).is_stopped
    sessions.forget("visitor")
    assert [view.is_stopped for view in views] == [True]


@pytest.mark.parametrize("is_leaving", [False, True], ids=["stops", "leaves"])
def test_a_training_that_is_stopped_while_its_process_starts_ends(
    images: list[tuple[str, Grey]], monkeypatch: pytest.MonkeyPatch, is_leaving: bool
) -> None:
    sessions = Sessions(2, 1)
    started: list[Training] = []

    def start(*arguments: Any) -> Training:
        started.append(Training(*arguments))
        sessions.forget("visitor") if is_leaving else sessions.stop("visitor")
        return started[0]

    monkeypatch.setattr(sessions_module, "Training", start)
    sessions.expect("visitor")
    assert [view.is_stopped for view in sessions.run("visitor", images, "real")] == [True]
    assert not sessions.is_busy
    assert started[0].process.poll() is not None
    assert not started[0].folder.exists()
