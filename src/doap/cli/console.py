"""Consoles, progress bars and the choice of a device, shared by all commands."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from doap.errors import DoapError
from doap.types import StepProgress

if TYPE_CHECKING:
    from doap.training.log import Status

console = Console()
errors = Console(stderr=True)
tables = Console(width=max(160, console.width))  # wide enough that no name or number is folded
_bars = errors if errors.is_terminal else Console(quiet=True)  # no bars in log files


def say(line: str, style: str = "") -> None:
    """Print a line without markup or line breaks, so that paths and numbers can be searched for."""
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def say_error(line: str) -> None:
    """Print an error as one line on standard error."""
    errors.print(f"doap: {line}", style="red", markup=False, highlight=False, soft_wrap=True)


def say_overlaps() -> None:
    """Print the mean overlap of a frame with its jittered views, per level of jitter."""
    from doap.images.jitter import LEVELS, measure_overlap

    for level in LEVELS:
        say(f"{level} views overlap the plain frame by {measure_overlap(level):.2f} on average")


def counting_bar() -> ProgressBar:
    """Return a progress bar for countable work, on standard error; it disappears when done."""
    return ProgressBar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=_bars,
        transient=True,
    )


@contextmanager
def step_bar() -> Iterator[StepProgress]:
    """Show one progress bar for work in several steps; yield the callback `progress(step, done, total)`."""
    with counting_bar() as bar:
        task = bar.add_task("", total=None)

        def progress(step: str, done: int, total: int | None) -> None:
            bar.update(task, description=step, completed=done, total=total)

        yield progress


def training_bar() -> ProgressBar:
    """Return a progress bar for a training: its status, the time spent and the time left."""
    return ProgressBar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=_bars,
        transient=True,
    )


@contextmanager
def series_bar() -> Iterator[tuple[ProgressBar, Callable[[str, "Status"], None]]]:
    """Show a progress bar for several trainings; yield it with the callback `progress(run_name, status)`."""
    with training_bar() as bar:
        task = bar.add_task("", total=1.0, status="")
        yield (
            bar,
            lambda name, status: bar.update(task, description=name, completed=status.done, status=status_text(status)),
        )


def status_text(status: "Status") -> str:
    """Format the status of a training: loss, validation AP and speed, or the preparation under way."""
    if status.preparation:
        return status.preparation
    ap = "" if status.ap is None else f"  AP {100 * status.ap:.1f} %"
    return f"loss {status.loss:.3f}{ap}  {status.speed:,.0f} patches/s"


def choose_device(name: str | None) -> str:
    """Return the requested device, or by default the GPU if there is one.

    Raises:
        DoapError: If the requested device is not available.
    """
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise DoapError(f"device {name}: not available here ({str(error).splitlines()[0]})") from error
    return name
