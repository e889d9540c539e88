"""Trainings of a reproduction: one after the other, or several at the same time in processes of their own."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray
from pathlib import Path

import torch

from doap.datasets.official.training_set import open_training_set
from doap.errors import DoapError
from doap.experiments.reproduce.targets import Training
from doap.parallel.worker import end_with_parent
from doap.training.data_cache import Data, DataCache
from doap.training.log import Status
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import FAILURE, WEIGHTS, DataSpec, check_run, is_complete, is_unstarted
from doap.training.trainer import check_training, train

Report = Callable[[str, float, int, int], None]
"""Callback: `report(name, fraction, done, total)`: a training, its finished part, and the counts of trainings."""

POLL_SECONDS = 0.5
WAITING = -1.0  # finished part of a training that no worker has started


@dataclass(frozen=True)
class Job:
    """One training with everything that a process needs to run it.

    Attributes:
        training: The training.
        recipe: Its recipe, with all overrides.
        paths: Folders of its training sets.
        run: Its run folder.
        device: "cpu" or "cuda".
    """

    training: Training
    recipe: Recipe
    paths: tuple[Path, ...]
    run: Path
    device: str

    @property
    def source(self) -> DataSpec:
        """Origin of the data."""
        return DataSpec([str(path.absolute()) for path in self.paths])

    @property
    def weights(self) -> Path:
        """Weights of the finished training."""
        return self.run / WEIGHTS


@dataclass
class _Loader:
    """The training set of the last job, which the next one often shares, its fingerprint, and its copy on a device."""

    key: tuple[tuple[Path, ...], str | None] | None = None
    data: Data | None = None
    fingerprint: str | None = None
    cache: DataCache = field(default_factory=DataCache)

    def open(self, job: Job) -> Data:
        key = (job.paths, job.recipe.split)
        if self.data is None or key != self.key:
            self.data, self.cache = None, DataCache()
            self.key, self.data = key, open_training_set(job.paths, job.recipe.split)
            self.fingerprint = job.source.fingerprint(self.data)
        return self.data


# Of a worker process; unused in the main one.
_worker = _Loader()
_fractions: "SynchronizedArray[float]"  # finished part of each training, read by the main process


def check_runs(jobs: Sequence[Job]) -> None:
    """Check that all trainings can run and that existing run folders hold them, before any is started.

    Raises:
        DoapError: If a folder holds another training or something else, or a recipe does not fit its set.
    """
    loader = _Loader()
    for job in jobs:
        data = loader.open(job)
        if not is_unstarted(job.run):
            check_run(job.run, job.recipe, repr(data), loader.fingerprint)
        if not is_complete(job.run) and not (job.run / FAILURE).exists():
            with naming(job.run):
                check_training(job.recipe, data, None, loader.cache)


@contextmanager
def naming(run: Path) -> Iterator[None]:
    """Add to an error in the block which training it is of."""
    try:
        yield
    except DoapError as error:
        raise DoapError(f"{run}: {error}") from error


def run_trainings(jobs: Sequence[Job], workers: int, report: Report) -> list[str]:
    """Run the trainings that are not finished; resume interrupted ones.

    A training whose loss is not finite has failed, now and every other time; the others go on without it.

    Args:
        jobs: Trainings.
        workers: Number of trainings at the same time. With several GPUs, each worker uses the next one in turn.
        report: Callback of the progress.

    Returns:
        Message of each failed training.

    Raises:
        DoapError: If a training cannot run, for example for lack of data. The others are stopped, and resumed when
            they are run again.
    """
    unfinished = [job for job in jobs if not is_complete(job.run)]
    waiting = [job for job in unfinished if not (job.run / FAILURE).exists()]
    failures = [_failure(job) for job in unfinished if job not in waiting]
    finished = len(jobs) - len(waiting)
    threads = max(1, torch.get_num_threads() // workers)
    if workers == 1 or len(waiting) < 2:
        messages = _run_here(waiting, threads, finished, len(jobs), report)
    else:
        messages = _run_in_processes(waiting, workers, threads, finished, len(jobs), report)
    return [*failures, *filter(None, messages)]


def _run_here(jobs: Sequence[Job], threads: int, finished: int, total: int, report: Report) -> list[str]:
    """Run trainings in this process; return the message of each, empty if it has succeeded."""
    loader, threads_before = _Loader(), torch.get_num_threads()
    torch.set_num_threads(threads)  # as in a process of its own: weights depend on it by rounding
    try:
        return [_train(job, loader, _counted(report, job, number, total)) for number, job in enumerate(jobs, finished)]
    finally:
        torch.set_num_threads(threads_before)


def _counted(report: Report, job: Job, done: int, total: int) -> Callable[[Status], None]:
    return lambda status: report(job.training.name, 0.0 if status.preparation else status.done, done, total)


def _run_in_processes(
    jobs: Sequence[Job], workers: int, threads: int, finished: int, total: int, report: Report
) -> list[str]:
    """Run trainings in processes; return the message of each, empty if it has succeeded."""
    context = multiprocessing.get_context("spawn")
    started = context.Value("i", 0)
    fractions = context.Array("d", [WAITING] * len(jobs))
    others = multiprocessing.active_children()
    initargs = (started, fractions, threads)
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=initargs) as pool:
        futures = [pool.submit(_train_in_worker, job, number) for number, job in enumerate(jobs)]
        try:
            while (state := wait(futures, timeout=POLL_SECONDS, return_when=FIRST_EXCEPTION)).not_done:
                for future in state.done:
                    future.result()
                numbers = [
                    n for n, future in enumerate(futures) if future not in state.done and fractions[n] != WAITING
                ]
                name = ", ".join(jobs[number].training.name for number in numbers) or "starting"
                report(name, sum(fractions[number] for number in numbers), finished + len(state.done), total)
            return [future.result() for future in futures]
        except BaseException as error:
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise DoapError(
                    "a process that trains was killed, perhaps for lack of memory; try again with fewer --jobs"
                ) from error
            raise


def _start_worker(started: "Synchronized[int]", fractions: "SynchronizedArray[float]", threads: int) -> None:
    """Give a new worker its number of CPU threads and the next GPU in turn, and let it end with the main process."""
    global _fractions
    _fractions = fractions
    end_with_parent()  # a training resumes from its last checkpoint
    torch.set_num_threads(threads)
    with started.get_lock():
        number = started.value
        started.value += 1
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    devices = visible if visible != [""] else [str(index) for index in range(torch.cuda.device_count())]
    if devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]


def _train_in_worker(job: Job, number: int) -> str:
    def on_status(status: Status) -> None:
        _fractions[number] = 0.0 if status.preparation else status.done

    _fractions[number] = 0.0
    return _train(job, _worker, on_status)


def _train(job: Job, loader: _Loader, on_status: Callable[[Status], None]) -> str:
    """Run one training; return the message of its failure, or an empty text."""
    data = loader.open(job)
    try:
        train(
            job.recipe,
            data,
            job.run,
            name=job.training.name,
            source=job.source,
            device=job.device,
            progress=on_status,
            cache=loader.cache,
        )
    except DoapError:
        if (job.run / FAILURE).exists():
            return _failure(job)
        raise
    return ""


def _failure(job: Job) -> str:
    return f"{job.training.name}: its loss or weights were not finite (see {job.run / FAILURE})"
