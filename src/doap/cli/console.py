"""Consoles, progress bars and the choice of a device, shared by all commands."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from doap.files import printable

if TYPE_CHECKING:
    from doap.cli.progress import CountingBar, TrainingBar
    from doap.training.log import Status

console = Console()
errors = Console(stderr=True)
GPU_FILES = ("nvidia*", "nvhost*", "dxg", "kfd")  # in /dev: NVIDIA, its boards, Windows' Linux, AMD


def say(line: str, style: str = "") -> None:
    """Print a line without markup or line breaks, so that paths and numbers can be searched for.

    Control characters, which names of files may have, are escaped.
    """
    console.print(printable(line), style=style, markup=False, highlight=False, soft_wrap=True)


def say_error(line: str) -> None:
    """Print an error as one line on standard error."""
    errors.print(f"doap: {printable(line)}", style="red", markup=False, highlight=False, soft_wrap=True)


def say_overlaps() -> None:
    """Print the mean overlap of a frame with its jittered views, per level of jitter."""
    from doap.images.jitter.views import LEVELS, measure_overlap

    for level in LEVELS:
        say(f"{level} views overlap the plain frame by {measure_overlap(level):.2f} on average")


def counting_bar() -> "CountingBar":
    """Return a progress bar for countable work, on standard error; it disappears when done. Lines in a log."""
    from doap.cli.progress import CountingBar

    return CountingBar(errors)


@contextmanager
def step_bar() -> Iterator[Callable[[str, float, int | None], None]]:
    """Show one progress bar for work in several steps; yield the callback `progress(step, done, total)`."""
    with counting_bar() as bar:
        task = bar.add_task("", total=None)

        def progress(step: str, done: float, total: int | None) -> None:
            nonlocal task
            if step != bar.tasks[0].description:  # each step has its own time left
                bar.remove_task(task)
                task = bar.add_task(step, total=total)
            bar.update(task, completed=done, total=total)

        yield progress


def training_bar() -> "TrainingBar":
    """Return a progress bar for a training, on standard error; it disappears when done. Lines in a log."""
    from doap.cli.progress import TrainingBar

    return TrainingBar(errors)


@contextmanager
def series_bar() -> Iterator[tuple["TrainingBar", Callable[[str, "Status"], None]]]:
    """Show a progress bar for one or more trainings; yield it with the callback `progress(run_name, status)`."""
    with training_bar() as bar:
        task = bar.add_task("", total=1.0, status="")
        phase = ("", "")

        def progress(name: str, status: "Status") -> None:
            nonlocal phase
            if phase != (name, status.preparation):  # a preparation has its own time left, and so has each run
                phase = name, status.preparation
                bar.reset(task, description=printable(name), status="")
            bar.update(task, completed=status.done, status=status_text(status))

        yield bar, progress


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
    if name == "cpu" or (name is None and not _may_have_gpu()):
        return "cpu"
    import torch

    from doap.networks.descriptor import check_device

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    check_device(name)
    return name


def _may_have_gpu() -> bool:
    """Return whether there can be a GPU, without importing torch for the answer."""
    if sys.platform != "linux":
        return True
    return any(next(Path("/dev").glob(pattern), None) for pattern in GPU_FILES)
