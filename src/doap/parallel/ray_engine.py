"""Workers of a Ray cluster, or of a Ray instance on this machine."""

import logging
import os
import reprlib
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from doap.errors import DoapError
from doap.parallel.engine import LOOK_AHEAD, Result, Task, WorkerDiedError, available_cores, result_or_died
from doap.parallel.worker import ONE_THREAD, run_task

MAX_RETRIES = 2  # of a task whose worker dies
CONNECT_SECONDS = 10


@contextmanager
def open_ray(workers: int | None) -> Iterator["RayEngine"]:
    """Open an engine of Ray workers; a Ray instance that was started here ends with the block.

    Raises:
        DoapError: If Ray is not installed or its cluster cannot be reached.
    """
    ray = _import_ray()
    is_own = not ray.is_initialized()
    if is_own:
        _connect(ray, workers)
    engine: RayEngine | None = None
    try:
        engine = RayEngine(ray, workers or int(ray.cluster_resources().get("CPU", 1)))
        yield engine
    finally:
        if is_own:
            if engine is not None:
                engine.is_closed = True
            ray.shutdown()


class RayEngine:
    """Workers of Ray; see `doap.parallel.engine.Engine`.

    Attributes:
        workers: Number of processes.
        is_closed: Whether Ray is shut down, or about to be; set by `open_ray`.
    """

    def __init__(self, ray: Any, workers: int) -> None:
        self.workers = workers
        self.is_closed = False
        self._ray = ray
        self._run = ray.remote(run_task).options(num_cpus=1, max_retries=MAX_RETRIES)

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        look_ahead: int | None = None,
        died: Callable[[Task], Result] | None = None,
    ) -> Iterator[Result]:
        """Yield function(task) for every task, in order; see `doap.parallel.engine.Engine`."""
        limit = look_ahead or LOOK_AHEAD * self.workers
        pending: deque[tuple[str, Any, Task]] = deque()
        source = enumerate(tasks)
        try:
            while True:
                while len(pending) < limit and (item := next(source, None)) is not None:
                    number, task = item
                    name = f"task {number} of {function.__qualname__} ({reprlib.repr(task)})"
                    pending.append((name, self._run.remote(function, task), task))
                if not pending:
                    return
                name, reference, task = pending.popleft()
                yield result_or_died(partial(self._result, name, reference), task, died)
        finally:
            self._cancel([reference for _, reference, _ in pending])

    def start(self, function: Callable[[Task], object], tasks: Iterable[Task]) -> None:
        """Start tasks whose results nobody needs; see `doap.parallel.engine.Engine`.

        No thread waits for them: one that calls Ray while it is shut down ends this process or starts Ray again.
        """
        for task in tasks:
            self._run.remote(function, task)

    def _cancel(self, references: Iterable[Any]) -> None:
        """Cancel tasks, unless Ray was shut down: a traceback may keep a generator until then, and Ray would start."""
        if self.is_closed or not self._ray.is_initialized():
            return
        with suppress(self._ray.exceptions.RayError):  # of a Ray that ended
            for reference in references:
                self._ray.cancel(reference, force=True)

    def _result(self, name: str, reference: Any) -> object:
        """Wait for a result.

        Raises:
            Exception: The exception of the task.
            WorkerDiedError: If its worker died again and again.
            DoapError: If Ray itself ended.
        """
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from None
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError) as error:
            raise WorkerDiedError(
                f"{name}: its worker died {MAX_RETRIES + 1} times, probably for lack of memory; use fewer workers"
            ) from error
        except errors.RayError as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise DoapError(f"Ray ended ({reason}); run the command again") from error


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise DoapError("ray is not installed; run: pip install 'doap[scale]'") from error
    return ray


def _connect(ray: Any, workers: int | None) -> None:
    """Join the cluster of RAY_ADDRESS; without one, start Ray on this machine with the given number of workers.

    A cluster that merely runs on this machine is not joined: it belongs to somebody else, who may end it.
    """
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address := os.environ.get("RAY_ADDRESS"):
        _check_address(address)
        _join(ray, runtime_env={"env_vars": ONE_THREAD}, **quiet)
        return
    # Local workers find the modules that this process finds; those of a cluster have their own installation.
    paths = os.pathsep.join(path for path in sys.path if path)
    own = {"num_cpus": workers or available_cores(), "include_dashboard": False}
    ray.init("local", **own, runtime_env={"env_vars": {**ONE_THREAD, "PYTHONPATH": paths}}, **quiet)


def _join(ray: Any, **options: object) -> None:
    try:
        ray.init(**options)
    except ConnectionError as error:
        raise DoapError(f"{error}; if it asks for a token, set RAY_AUTH_MODE=token") from error


def _check_address(address: str) -> None:
    """Check that something answers at an address; Ray itself would wait for minutes.

    Raises:
        DoapError: If nothing does.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        message = f"RAY_ADDRESS {address}: no Ray cluster answers ({error}); start it or unset RAY_ADDRESS"
        raise DoapError(message) from error
