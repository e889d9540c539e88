"""Processes of this machine, each an executor of one process.

A single executor of many processes ends all of them when one is killed, and does not say which task it ran. With one
executor per process, the others go on and the task is known.
"""

import multiprocessing
import os
import pickle
import reprlib
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import spawn
from typing import Any

from doap.errors import DoapError
from doap.parallel.engine import LOOK_AHEAD, Result, Task, WorkerDiedError, result_or_died
from doap.parallel.worker import prepare_worker, run_pickled

MAX_ATTEMPTS = 3  # of a task whose worker dies or cannot be started

PIPES_OF_START = 8  # more than are opened to start a worker

# Never a plain fork: threads of torch and OpenCV that the parent has used do not exist in a forked process, which then
# waits for them for ever. A fork server has used none. It is not available on Windows and not reliable on macOS.
START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"

_start_lock = threading.Lock()


@dataclass(eq=False)
class _Job:
    """A task on its way: how to run it, what it is called in errors, the module of its function, and its result."""

    payload: bytes
    name: str
    module: str
    result: "Future[Any]" = field(default_factory=Future)
    attempts: int = 0


@contextmanager
def open_local(workers: int) -> Iterator["LocalEngine"]:
    """Open an engine of processes; they are killed when the block ends."""
    engine = LocalEngine(workers)
    try:
        yield engine
    finally:
        engine.close()


class LocalEngine:
    """Workers on this machine; see `doap.parallel.engine.Engine`."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._lock = threading.RLock()  # callbacks run in threads of the executors
        self._waiting: deque[_Job] = deque()
        self._idle = workers  # workers without a task, started or not
        self._started: list[ProcessPoolExecutor] = []  # of the idle workers, those that run
        self._busy: dict[_Job, ProcessPoolExecutor] = {}
        self._dead: list[ProcessPoolExecutor] = []
        self._is_closed = False

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        look_ahead: int | None = None,
        died: Callable[[Task], Result] | None = None,
    ) -> Iterator[Result]:
        """Yield function(task) for every task, in order; see `doap.parallel.engine.Engine`."""
        _check_function(function)
        limit = look_ahead or LOOK_AHEAD * self.workers
        pending: deque[tuple[_Job, Task]] = deque()
        source = enumerate(tasks)
        try:
            while True:
                while len(pending) < limit and (item := next(source, None)) is not None:
                    pending.append((self._submit(function, *item), item[1]))
                if not pending:
                    return
                job, task = pending.popleft()
                yield result_or_died(job.result.result, task, died)
        finally:
            left = {job for job, _ in pending}
            with self._lock:
                self._waiting = deque(job for job in self._waiting if job not in left)

    def start(self, function: Callable[[Task], object], tasks: Iterable[Task]) -> None:
        """Start tasks whose results nobody needs; see `doap.parallel.engine.Engine`."""
        _check_function(function)
        items = list(enumerate(tasks))

        def submit() -> None:  # in a thread: the fork server first imports the module of the function
            with suppress(Exception):  # of pickling; nobody waits for the result
                for item in items:
                    result = self._submit(function, *item).result
                    if result.done() and result.exception() is not None:  # the others would fail as well
                        return

        threading.Thread(target=submit, daemon=True).start()

    def close(self) -> None:
        """Kill all workers."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
            executors = [*self._started, *self._busy.values(), *self._dead]
        for executor in executors:
            _kill(executor)
            executor.shutdown(cancel_futures=True)

    def _submit(self, function: Callable[[Task], Result], number: int, task: Task) -> _Job:
        payload = pickle.dumps((function, task), pickle.HIGHEST_PROTOCOL)
        job = _Job(payload, f"task {number} of {function.__qualname__} ({reprlib.repr(task)})", function.__module__)
        with self._lock:
            self._waiting.append(job)
        self._start_next()
        return job

    def _start_next(self) -> None:
        """Hand the next waiting task to an idle worker, if there are both."""
        while True:
            with self._lock:
                if not self._waiting or not self._idle or self._is_closed:
                    return
                job = self._waiting.popleft()
                try:
                    executor, future = self._submit_to_running(job) or _start_executor(job.payload, job.module)
                except Exception as error:
                    if self._wait_for_others(job, error):
                        return
                    continue
                self._idle -= 1
                self._busy[job] = executor
            future.add_done_callback(partial(self._finish, job))
            return

    def _wait_for_others(self, job: _Job, error: Exception) -> bool:
        """Queue a job again whose worker could not be started; return whether another worker will take it.

        Without another worker nothing would start it later: the caller tries again, a limited number of times.
        """
        if self._busy:  # with few file descriptors or little memory, fewer workers do all tasks
            self._waiting.appendleft(job)
            return True
        job.attempts += 1
        if job.attempts < MAX_ATTEMPTS:
            self._waiting.appendleft(job)
        else:
            job.result.set_exception(_cannot_start(job, error))
        return False

    def _submit_to_running(self, job: _Job) -> tuple[ProcessPoolExecutor, "Future[object]"] | None:
        """Submit a job to an idle worker that runs; return None if there is none."""
        while self._started:
            executor = self._started.pop()
            try:
                return executor, executor.submit(run_pickled, job.payload)
            except BrokenProcessPool:  # it was killed while it was idle
                self._dead.append(executor)
        return None

    def _finish(self, job: _Job, done: "Future[object]") -> None:
        """Take the result of a job, or queue it again if its worker died; then start the next one."""
        error = None if done.cancelled() else done.exception()
        with self._lock:
            executor = self._busy.pop(job)
            self._idle += 1
            if self._is_closed:
                return
            if isinstance(error, BrokenProcessPool):
                self._dead.append(executor)
                job.attempts += 1
                if job.attempts < MAX_ATTEMPTS:
                    self._waiting.appendleft(job)
            else:
                self._started.append(executor)
        if not isinstance(error, BrokenProcessPool):
            job.result.set_exception(error) if error is not None else job.result.set_result(done.result())
        elif job.attempts == MAX_ATTEMPTS:
            job.result.set_exception(_worker_died(job))
        self._start_next()


def _cannot_start(job: _Job, error: Exception) -> DoapError:
    reason = str(error) or type(error).__name__
    failure = DoapError(f"{job.name}: no worker can be started ({reason}); use fewer workers, or raise `ulimit -n`")
    failure.__cause__ = error
    return failure


def _worker_died(job: _Job) -> WorkerDiedError:
    return WorkerDiedError(
        f"{job.name}: its worker died {MAX_ATTEMPTS} times, probably for lack of memory; use fewer workers"
    )


def _check_function(function: Callable[..., object]) -> None:
    """Check that workers can import a function.

    Raises:
        DoapError: If it is defined in the script that is run: workers do not run it, or it would start them again.
    """
    if function.__module__ == "__main__":
        raise DoapError(f"{function.__qualname__}: defined in the script that runs; define it in a module it imports")


def _start_executor(payload: bytes, module: str) -> tuple[ProcessPoolExecutor, "Future[object]"]:
    """Start a worker with its first task."""
    with _start_lock, _without_main():
        if START_METHOD == "forkserver":
            _start_server(module)
            _check_descriptors()
        executor = ProcessPoolExecutor(1, multiprocessing.get_context(START_METHOD), prepare_worker)
        try:
            future = executor.submit(run_pickled, payload)
        except BaseException:  # its pipes would stay open, when there may be too many already
            _kill(executor)
            executor.shutdown(wait=False)
            raise
        # Only the worker writes results. With this end open, the rest of one whose worker died would be waited for.
        executor._result_queue._writer.close()  # type: ignore[attr-defined]  # not in stubs
        return executor, future


def _kill(executor: ProcessPoolExecutor) -> None:
    """Kill the process of a worker."""
    for process in list((executor._processes or {}).values()):  # terminate_workers() exists from Python 3.14
        process.kill()


def _start_server(module: str) -> None:
    """Start the fork server, unless it runs already. It imports the module once for all workers.

    Ctrl-C is left to this process: the server would print a traceback of its imports.
    """
    from multiprocessing import forkserver, resource_tracker  # POSIX only

    # The environment is set in the server: set here, libraries that another thread loads would keep one thread.
    multiprocessing.set_forkserver_preload(["doap.parallel.one_thread", module])
    resource_tracker.ensure_running()  # before: it unblocks the signal when it starts
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited by the server
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _check_descriptors() -> None:
    """Check that a worker can be started: the fork server ends if a request breaks off, and takes all workers along.

    Raises:
        OSError: If too many files are open.
    """
    descriptors: list[int] = []
    try:
        for _ in range(PIPES_OF_START):
            descriptors.extend(os.pipe())
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main script from processes that this thread starts in the block.

    They would import it first: for nothing, and without `if __name__ == "__main__"` in it they would start the whole
    work again. `sys.modules` stays as it is: other threads need the script, such as to pickle objects of its classes.
    """
    prepare, thread = spawn.get_preparation_data, threading.get_ident()

    def prepare_without_main(name: str) -> dict[str, Any]:
        data = prepare(name)
        if threading.get_ident() == thread:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    spawn.get_preparation_data = prepare_without_main
    try:
        yield
    finally:
        spawn.get_preparation_data = prepare
