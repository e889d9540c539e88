"""Progress of long work: a bar on a terminal, lines at a bounded rate in a log."""

from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_SECONDS = 10.0
LINE_FRACTION = 0.01
SPEED_SECONDS = 600.0  # the time left follows from the speed in this period; a step may take many seconds


class ProgressBar(Progress):
    """Progress bar that disappears when the work is done.

    Where standard error is not a terminal there is no bar, but a line without escape codes at most every ten seconds,
    and after a quarter of an hour at most after every hundredth of the time spent.

    Args:
        console: Console of the bar or the lines.
        columns: Columns of the bar.
    """

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        is_bar = console.is_terminal
        super().__init__(
            *columns,
            console=console if is_bar else Console(quiet=True),
            auto_refresh=is_bar,
            transient=True,
            speed_estimate_period=SPEED_SECONDS,
        )
        self._log = None if is_bar else console
        self._started = self._logged = self.get_time()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Change a task, see `rich.progress.Progress.update`."""
        super().update(task_id, **changes)
        self._write_line(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Advance a task, see `rich.progress.Progress.advance`."""
        super().advance(task_id, advance)
        self._write_line(task_id)

    def _write_line(self, task_id: TaskID) -> None:
        """Write a line if there is no bar and the last line is long ago."""
        now = self.get_time()
        due = self._logged + max(LINE_SECONDS, LINE_FRACTION * (now - self._started))
        task = next(task for task in self.tasks if task.id == task_id)
        if self._log and now >= due and not task.finished:  # what follows finished work says that it is
            self._logged = now
            self._log.print(self.line(task), markup=False, highlight=False, soft_wrap=True)

    def line(self, task: Task) -> str:
        """Return the line of a task in a log."""
        total = "" if task.total is None else f" of {task.total:,.0f}"
        return f"{task.description}: {task.completed:,.0f}{total}{_left(task)}"


class CountingBar(ProgressBar):
    """Progress of countable work."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            console,
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )


class TrainingBar(ProgressBar):
    """Progress of a training: its status, the time spent and the time left. Tasks have the field `status`."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            console,
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )

    def line(self, task: Task) -> str:
        """Return the line of a task in a log."""
        status = f", {task.fields['status']}" if task.fields["status"] else ""
        spent = timedelta(seconds=int(task.elapsed or 0))
        return f"{task.description}: {task.percentage:.0f} %{status}, {spent} spent{_left(task)}"


def _left(task: Task) -> str:
    seconds = task.time_remaining
    return "" if seconds is None else f", {timedelta(seconds=int(seconds))} left"
