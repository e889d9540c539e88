"""What the verbs share: consoles, progress bars, choosing a device."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from doap.errors import DoapError
from doap.images.jitter import LEVELS, measured_overlap
from doap.training.log import Status

console = Console()
errors = Console(stderr=True)
tables = Console(width=max(160, console.width))  # a narrow terminal breaks lines, but no name or number is folded
_bars = errors if errors.is_terminal else Console(quiet=True)  # a log has no use for a bar


def say(line: str, style: str = "") -> None:
    """Print a line as it is: no markup, and never broken, so that paths and numbers can be searched for."""
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def say_overlaps() -> None:
    """Say how much the jittered views of each level keep of a frame."""
    for level in LEVELS:
        say(f"{level} views overlap the plain frame by {measured_overlap(level):.2f} on average")


def complain(line: str) -> None:
    """Print a error as one line on standard error."""
    errors.print(f"doap: {line}", style="red", markup=False, highlight=False, soft_wrap=True)


def counting_bar() -> Progress:
    """A bar for work that comes in pieces; on standard error, gone when done, and not in logs."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=_bars,
        transient=True,
    )


def training_bar() -> Progress:
    """A bar for a training: its news, time spent and time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[news]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=_bars,
        transient=True,
    )


@contextmanager
def series_bar() -> Iterator[tuple[Progress, Callable[[str, Status], None]]]:
    """A bar for trainings one after another, and what to tell it: the name of a run, and how far it is."""
    with training_bar() as bar:
        task = bar.add_task("", total=1.0, news="")
        yield (
            bar,
            lambda name, status: bar.update(task, description=name, completed=status.done, news=news(status)),
        )


def news(status: Status) -> str:
    """What a training bar shows: loss, held-out AP and speed, or what is done before the training begins."""
    if status.doing:
        return status.doing
    ap = "" if status.ap is None else f"  AP {100 * status.ap:.1f} %"
    return f"loss {status.loss:.3f}{ap}  {status.speed:,.0f} patches/s"


def score_table(rows: Sequence[Mapping[str, float | str | int]]) -> Table:
    """The rows of `warped.summarise` as a table for the terminal."""
    table = Table(header_style="bold")
    table.add_column("descriptor")
    for column in ("mAP %", "right neighbours %", "bytes"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(str(row["descriptor"]), f"{row['mAP']:.1f}", f"{row['right neighbours']:.1f}", str(row["bytes"]))
    return table


def choose_device(wanted: str | None) -> str:
    """The device asked for, or the GPU if there is one."""
    if wanted is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=wanted)
    except (RuntimeError, AssertionError) as error:
        raise DoapError(f"device {wanted}: not available here ({str(error).splitlines()[0]})") from error
    return wanted
