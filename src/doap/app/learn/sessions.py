"""Trainings of visitors: what runs, and what of finished ones is still shown."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from doap.app.learn.jobs import Training
from doap.app.learn.view import LearnView
from doap.types import Grey, Kind

UPDATE_SECONDS = 1.0


class Sessions:
    """Views of trainings by visitor, a bounded number, and the trainings that run.

    Args:
        limit: Number of views to keep; the least recently started are dropped.
        seconds: Planned time of a training.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._views: OrderedDict[str, LearnView] = OrderedDict()
        self._running: dict[str, Training] = {}
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a training runs."""
        return bool(self._running)

    def expect(self, visitor: str) -> None:
        """Take note that a visitor asked for a training, which will be run unless it is stopped before."""
        with self._lock:
            self._keep(visitor, LearnView())

    def run(self, visitor: str, photos: Sequence[tuple[str, Grey]], kind: Kind, query: int = 0) -> Iterator[LearnView]:
        """Train, yield the view about once per second, and remove all files at the end.

        The last view has `files` if the training is finished; they exist until the generator goes on. A training that
        was stopped after `expect` does not begin, or ends at once if its process was just being started.

        Raises:
            DoapError: If the training fails.
        """
        expected = self.view(visitor)
        view = LearnView(query=query)
        training = None if expected.is_stopped else Training(photos, kind, self._seconds)
        if training is None or not self._begin(visitor, training, expected, view):
            yield expected
            return
        try:
            for events in training.events(UPDATE_SECONDS):
                for event in events:
                    view.add(event)
                view.files = training.result if view.done else []
                yield view
            view.is_stopped = training.is_stopped
            yield view
        finally:
            view.files = []
            with self._lock:
                self._running.pop(visitor, None)
            training.stop()

    def _begin(self, visitor: str, training: Training, expected: LearnView, view: LearnView) -> bool:
        """Take note of a training that has begun; end it and return False if it was stopped meanwhile."""
        with self._lock:
            if not expected.is_stopped:
                self._keep(visitor, view)
                self._running[visitor] = training
                return True
        training.stop()
        return False

    def _keep(self, visitor: str, view: LearnView) -> None:
        """Keep a view, and drop the least recently started ones."""
        self._views[visitor] = view
        self._views.move_to_end(visitor)
        while len(self._views) > self._limit:
            self._views.popitem(last=False)

    def view(self, visitor: str) -> LearnView:
        """Return the view of a visitor's last training; an empty one if there was none."""
        with self._lock:
            return self._views.get(visitor, LearnView())

    def stop(self, visitor: str) -> LearnView:
        """Stop the training of a visitor, if one runs, remove its files and return its view."""
        with self._lock:  # at once: a training that begins between these lines would go on
            view = self._views.get(visitor, LearnView())
            training = self._running.get(visitor)
            view.is_stopped = view.done is None
        if training is not None:
            training.stop()
        return view

    def forget(self, visitor: str) -> None:
        """Stop the training of a visitor who has left and drop its view."""
        self.stop(visitor)
        with self._lock:
            self._views.pop(visitor, None)
