"""What all engines have in common.

    with open_engine("local", workers=4) as engine:
        for result in engine.map(function, tasks):
            ...

Results come in the order of the tasks, whichever worker computed them, so that what is made from them does not depend
on the engine or the number of workers. A worker that is killed is replaced and its task runs again.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, Protocol, TypeVar, cast, get_args

from doap.errors import DoapError

EngineName = Literal["local", "ray"]
"""Processes of this machine, or of a Ray cluster."""

ENGINES: tuple[EngineName, ...] = get_args(EngineName)

LOOK_AHEAD = 2  # tasks per worker

Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerDiedError(DoapError):
    """A task ended its worker again and again, such as by a crash of a library or for lack of memory."""


class Engine(Protocol):
    """Workers that run tasks; made by `doap.parallel.open_engine`.

    Attributes:
        workers: Number of processes.
    """

    workers: int

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        look_ahead: int | None = None,
        died: Callable[[Task], Result] | None = None,
    ) -> Iterator[Result]:
        """Yield function(task) for every task, in order.

        An exception of a task is raised where its result would be yielded. Tasks that follow may have run by then.

        Args:
            function: Function of an importable module. It runs in the workers, each with one thread of torch, OpenMP
                and OpenCV. What is expensive to make, such as a loaded model, it caches itself (`functools.cache`).
            tasks: Arguments; read as they are needed.
            look_ahead: Maximum number of tasks that are read before the next result is taken; by default two per
                worker. It bounds the memory of tasks and results. Tasks of very different length need a larger one,
                since all workers wait when the first of these tasks is the last to end.
            died: Function of this process that gives the result of a task that ends its worker three times. Without it
                such a task is an error, and the tasks that follow are not run.

        Raises:
            WorkerDiedError: If a task ends its worker three times, unless `died` is given.
        """
        ...

    def start(self, function: Callable[[Task], object], tasks: Iterable[Task]) -> None:
        """Start tasks whose results nobody needs, such as loading a model, and return at once.

        Those that have not ended when the engine is closed are lost.

        Args:
            function: Function of an importable module, which handles its own errors; others are not told.
            tasks: Arguments, all read before this returns.
        """
        ...


def result_or_died(wait: Callable[[], object], task: Task, died: Callable[[Task], Result] | None) -> Result:
    """Return the result that `wait` waits for, or what `died`, if given, answers for a task that ends its workers."""
    try:
        return cast(Result, wait())
    except WorkerDiedError:
        if died is None:
            raise
        return died(task)


def available_cores() -> int:
    """Return the number of cores this process may use, by its affinity and the limit of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no Linux, no control group, or no limit ("max")
        return cores
