"""Long work: progress, errors, one at a time, and an end when nobody waits."""

import threading
import time

import pytest

from doap.app.work import CancelledError, Step, run_in_steps
from doap.errors import DoapError
from doap.types import StepProgress


def test_progress_is_yielded_and_the_result_returned() -> None:
    go = threading.Event()

    def work(progress: StepProgress) -> int:
        progress("half", 1, 2)
        go.wait(10)
        return 7

    steps = run_in_steps(work)
    while next(steps) != Step("half", 1, 2):
        pass
    go.set()
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
    assert end.value.value == 7


def test_an_error_is_raised_where_the_result_is_awaited() -> None:
    def work(progress: StepProgress) -> None:
        progress("reading", 0, None)
        raise DoapError("a.png: damaged")

    with pytest.raises(DoapError, match=r"^a\.png: damaged$"):
        list(run_in_steps(work))


def test_closing_the_generator_ends_the_work_and_frees_the_turn() -> None:
    ended: list[type[BaseException]] = []
    running: list[int] = []

    def endless(progress: StepProgress) -> None:
        running.append(1)
        try:
            while True:
                progress("still", 0, None)
                time.sleep(0.01)
        except CancelledError:
            ended.append(CancelledError)
            raise
        finally:
            running.pop()

    first = run_in_steps(endless)
    while not running:
        next(first)
    second = run_in_steps(lambda _: len(running))  # waits for the first
    assert next(second) == Step("waiting", 0, None)
    first.close()
    with pytest.raises(StopIteration) as end:
        while True:
            next(second)
    assert end.value.value == 0
    assert ended == [CancelledError]
