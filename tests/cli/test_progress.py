"""Progress on a terminal and in a log. The clock is set by the tests."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from doap.cli import console
from doap.cli.data.download import download
from doap.cli.learning.reproduce import reproduce
from doap.cli.progress import LINE_SECONDS, CountingBar, ProgressBar
from doap.errors import DoapError
from doap.training.log import Status
from doap.types import StepProgress


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("rich.console.monotonic", clock)
    return clock


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], io.StringIO]:
    """Replace standard error of the commands: a terminal, or a log."""

    def replace(is_terminal: bool) -> io.StringIO:
        file = io.StringIO()
        errors = Console(file=file, force_terminal=is_terminal, width=150, color_system=None)
        monkeypatch.setattr(console, "errors", errors)
        return file

    return replace


def shown(bar: ProgressBar) -> str:
    """Return the bar as it stands on the terminal."""
    output = io.StringIO()
    Console(file=output, width=150).print(bar.get_renderable())
    return " ".join(output.getvalue().split())


def test_a_training_shows_the_time_spent_and_left(clock: Clock, written: Callable[[bool], io.StringIO]) -> None:
    written(True)
    with console.series_bar() as (bar, progress):
        for done in (0.5, 1.0):
            clock.now += 5
            progress("mine", Status(done, preparation="loading the set"))
        clock.now += 2
        progress("mine", Status(0.0, loss=0.9, speed=100.0))
        for step in range(1, 4):
            clock.now += 60  # slower than the period in which rich estimates the speed by default
            progress("mine", Status(step / 10, loss=0.5, ap=0.75, speed=1234.0))
        assert "loss 0.500 AP 75.0 % 1,234 patches/s 0:03:00 left 0:07:00" in shown(bar)


def test_a_resumed_training_counts_only_its_own_steps(clock: Clock, written: Callable[[bool], io.StringIO]) -> None:
    written(True)
    with console.series_bar() as (bar, progress):
        for done in (0.5, 0.5625, 0.625):
            clock.now += 30
            progress("mine", Status(done, loss=0.5, speed=10.0))
        assert shown(bar).endswith("0:01:00 left 0:03:00")


def test_a_log_has_lines_of_a_training_at_a_bounded_rate(clock: Clock, written: Callable[[bool], io.StringIO]) -> None:
    log = written(False)
    with console.series_bar() as (_, progress):
        progress("mine", Status(0.0, loss=0.9, speed=100.0))
        for step in range(1, 1001):
            clock.now += 1
            progress("mine", Status(step / 1000, loss=0.5, speed=1234.0))
    lines = log.getvalue().splitlines()
    assert len(lines) == 1000 / LINE_SECONDS - 1  # none at the end
    assert lines[0] == "mine: 1 %, loss 0.500  1,234 patches/s, 0:00:10 spent, 0:16:30 left"
    assert "\x1b" not in log.getvalue()
    with console.series_bar() as (_, progress):
        for hour in range(24):
            for minute in range(60):
                clock.now += 60
                progress("mine", Status((hour + minute / 60) / 24, loss=0.5, speed=1.0))
    assert len(log.getvalue().splitlines()) - len(lines) < 500


def test_short_work_writes_nothing_to_a_log(clock: Clock, written: Callable[[bool], io.StringIO]) -> None:
    log = written(False)
    with console.counting_bar() as bar:
        for _ in bar.track(range(9), description="describing"):
            clock.now += 1
    assert log.getvalue() == ""


def test_a_log_has_lines_of_counted_work(clock: Clock, written: Callable[[bool], io.StringIO]) -> None:
    log = written(False)
    with console.counting_bar() as bar:
        for _ in bar.track(range(3000), description="describing [photos]"):
            clock.now += 1 / 64
    assert log.getvalue().splitlines()[0] == "describing [photos]: 640 of 3,000, 0:00:37 left"
    assert len(log.getvalue().splitlines()) == 4
    with console.step_bar() as progress:
        clock.now += 11
        progress("reading", 5, None)
    assert log.getvalue().splitlines()[-1] == "reading: 5"


def test_every_step_has_its_own_time_left(
    clock: Clock, written: Callable[[bool], io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(True)
    bar = CountingBar(console.errors)
    monkeypatch.setattr(console, "counting_bar", lambda: bar)
    with console.step_bar() as progress:
        for step, seconds, total in (("reading", 1, 10), ("matching", 30, 10)):
            for done in range(total + 1 if step == "reading" else 5):
                clock.now += seconds
                progress(step, done, total)
        assert re.fullmatch(r"matching .* 4/10 0:03:00", shown(bar))
        progress("writing", 1, None)
        assert re.fullmatch(r"writing .* 1/\?", shown(bar))


def test_steps_of_a_reproduction_are_written_although_one_before_had_the_same_total(
    clock: Clock, written: Callable[[bool], io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_request: object, report: Callable[..., None], progress: StepProgress, _on_target: object) -> None:
        for number in range(1, 41):
            clock.now += 1
            report("DOAP", number % 20 / 20, number // 20, 40)
        work_in_steps(clock, progress)

    monkeypatch.setattr("doap.experiments.reproduce.run.reproduce", run)
    log = written(False)
    with pytest.raises(DoapError, match="the end"):
        reproduce(["table-2"], "data", Path("out"), device="cpu")
    assert steps_in(log) == ["training DOAP", "describing", "ranking"]


def test_steps_of_a_download_are_written_although_one_before_had_the_same_total(
    clock: Clock, written: Callable[[bool], io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "doap.datasets.download.downloading.download",
        lambda *_, progress: work_in_steps(clock, lambda step, done, _: progress(step, done << 20, 40 << 20)),
    )
    log = written(False)
    with pytest.raises(DoapError, match="the end"):
        download(["oxford"], Path("data"))
    assert steps_in(log) == ["describing, MiB", "ranking, MiB"]


def work_in_steps(clock: Clock, progress: StepProgress) -> None:
    """Do two steps of the same size, and fail."""
    for step in ("describing", "ranking"):
        for done in range(41):
            clock.now += 1
            progress(step, done, 40)
    raise DoapError("the end")


def steps_in(log: io.StringIO) -> list[str]:
    """Return the steps that a log has lines of, in order."""
    return list(dict.fromkeys(line.partition(":")[0] for line in log.getvalue().splitlines()))
