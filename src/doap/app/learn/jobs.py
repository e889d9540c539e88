"""Trainings as the page sees them: a folder, a process, its events, and the end of all three."""

import json
import logging
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
from pydantic import BaseModel, ConfigDict

from doap.app.learn.events import AnyEvent, Failure, decode_event
from doap.errors import DoapError
from doap.files import write_text
from doap.types import Grey, Kind

JOB, ERRORS, RESULT = "job.json", "errors.txt", "result"
STARTUP_SECONDS = 120.0  # on top of the limit: libraries are loaded, patches cut and described by the baseline
CUT_AFTER = 2  # times the planned time of a training
THREADS = 2
UNEXPECTED = "the training stopped unexpectedly; the terminal of doap app shows its details"

log = logging.getLogger(__name__)


class JobPhoto(BaseModel):
    """Name of a photo, and its file in the folder of the job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    file: str


class Job(BaseModel):
    """What a training process is told.

    Attributes:
        kind: Kind of the descriptor.
        seconds: Planned time of the training.
        limit: Time from the first step after which it is cut.
        threads: Threads of the training.
        photos: The photos.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    seconds: float
    limit: float
    threads: int
    photos: list[JobPhoto]


class Training:
    """A training in a process and a temporary folder of its own.

    Args:
        photos: Name and image of each photo.
        kind: Kind of the descriptor.
        seconds: Planned time; after `CUT_AFTER` times as long it is cut.
    """

    def __init__(self, photos: Sequence[tuple[str, Grey]], kind: Kind, seconds: float) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="doap-learn-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._limit = CUT_AFTER * seconds
        self._is_stopped = False
        names = []
        for number, (name, image) in enumerate(photos):
            file = f"{number:03}.png"
            cv2.imwrite(str(self.folder / file), image)
            names.append(JobPhoto(name=name, file=file))
        job = Job(kind=kind, seconds=seconds, limit=self._limit, threads=THREADS, photos=names)
        write_text(self.folder / JOB, json.dumps(job.model_dump()))
        with (self.folder / ERRORS).open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "doap.app.learn.worker", str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        threading.Thread(target=self._read_lines, daemon=True).start()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._is_stopped

    @property
    def result(self) -> list[Path]:
        """The weights and their card; empty before the training is done."""
        return sorted((self.folder / RESULT).glob("*"), reverse=True)

    def events(self, seconds: float) -> Iterator[list[AnyEvent]]:
        """Yield the events of every so many seconds, until the process ends or is stopped.

        Raises:
            DoapError: If the training fails or takes too long.
        """
        end = time.monotonic() + self._limit + STARTUP_SECONDS
        is_open = True
        while is_open and not self._is_stopped:
            if time.monotonic() > end:
                self.stop()
                raise DoapError(
                    f"the training took longer than {self._limit + STARTUP_SECONDS:g} seconds and was ended"
                )
            lines = self._next_lines(seconds)
            is_open = None not in lines
            events = [decode_event(line) for line in lines if line is not None]
            for event in events:
                if isinstance(event, Failure):
                    raise DoapError(event.line)
            yield events
        if not self._is_stopped and self.process.wait(10):
            log.error("a training failed:\n%s", (self.folder / ERRORS).read_text(errors="replace")[-4000:])
            raise DoapError(UNEXPECTED)

    def stop(self) -> None:
        """End the process, if it runs, and remove the folder."""
        self._is_stopped = True
        self.process.kill()
        self.process.wait()
        self._lines.put(None)
        self._temporary.cleanup()

    def _next_lines(self, seconds: float) -> list[str | None]:
        """Wait so many seconds, or until the process ends, and return the lines so far; None marks the end."""
        lines: list[str | None] = []
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and None not in lines:
            try:
                lines.append(self._lines.get(timeout=left))
            except queue.Empty:
                break
        return lines

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)
