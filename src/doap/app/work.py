"""Long work of the page: in a thread, one at a time, with progress, and cancelled when nobody waits for it."""

import threading
from collections.abc import Callable, Generator
from typing import Generic, NamedTuple, TypeVar

from doap.types import StepProgress

Result = TypeVar("Result")

POLL_SECONDS = 0.2
_turn = threading.Lock()  # held by the thread that works: a cancelled one ends before the next begins


class Step(NamedTuple):
    """Progress of some work: what is done now, and how much of it; `total` is None if it is not known."""

    name: str
    done: int
    total: int | None


class CancelledError(Exception):
    """Raised in the thread of work that nobody waits for any more."""


def run_in_steps(function: Callable[[StepProgress], Result]) -> Generator[Step, None, Result]:
    """Run a function in a thread, yield its progress several times per second, and return its result.

    When the generator is closed, as Gradio does when an event is cancelled or its visitor has left, the next call of
    `progress` in the function raises `CancelledError`.

    Args:
        function: Called with `progress(step, done, total)`, which it must call often.
    """
    job = _Job(function)
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            yield job.step
    finally:
        job.cancelled.set()
    if job.error is not None:
        raise job.error
    return job.results[0]


class _Job(Generic[Result]):
    """A function in a thread."""

    def __init__(self, function: Callable[[StepProgress], Result]) -> None:
        self.step = Step("waiting", 0, None)
        self.cancelled = threading.Event()
        self.error: Exception | None = None
        self.results: list[Result] = []
        self._function = function

    def run(self) -> None:
        """Run the function when it is its turn."""
        with _turn:
            try:
                self._check()
                self.results.append(self._function(self.report))
            except Exception as error:
                self.error = error

    def report(self, step: str, done: int, total: int | None) -> None:
        """Take note of progress."""
        self._check()
        self.step = Step(step, done, total)

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise CancelledError
