import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from doap import DoapError
from doap.parallel import local_engine, open_engine
from doap.parallel.engine import available_cores
from support import engine_tasks
from support.engine_tasks import Chore

TESTS = Path(__file__).parents[1]


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def wait_until_dead(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not any(map(is_alive, pids)):
            return True
        time.sleep(0.05)
    return False


def started_chores(folder: Path, count: int) -> list[int]:
    """Wait until so many chores have started, and return the processes that run them."""
    deadline = time.monotonic() + 60
    while len(marks := list(folder.glob("attempts-*"))) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    return [int(line) for mark in marks for line in mark.read_text().split()]


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_the_order_of_the_tasks(workers: int) -> None:
    with open_engine("local", workers) as engine:
        assert list(engine.map(engine_tasks.square_slowly, range(7))) == [n * n for n in range(7)]
        for seed, matrix in enumerate(engine.map(engine_tasks.random_matrix, range(3))):
            np.testing.assert_array_equal(matrix, engine_tasks.random_matrix(seed))
        assert list(engine.map(engine_tasks.square, [])) == []


@pytest.mark.skipif(sys.platform != "linux", reason="there is a fork server on Linux only")
def test_the_fork_server_leaves_interrupts_to_its_parent() -> None:
    with open_engine("local", 1) as engine:  # workers inherit the mask of the server
        assert signal.SIGINT in next(engine.map(engine_tasks.blocked_signals, [0]))
    assert signal.SIGINT not in engine_tasks.blocked_signals(0)


def test_tasks_are_read_as_they_are_needed() -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    with open_engine("local", 2) as engine:
        results = engine.map(engine_tasks.square, tasks())
        assert next(results) == 0
        assert len(taken) == 4
        assert next(results) == 1
        assert len(taken) == 5
        results.close()  # type: ignore[attr-defined]  # a generator
        assert list(engine.map(engine_tasks.square, range(20))) == [n * n for n in range(20)]


def test_workers_use_one_thread_after_torch_was_used_here() -> None:
    torch.set_num_threads(2)
    torch.ones(500, 500) @ torch.ones(500, 500)
    with open_engine("local", 2) as engine:
        assert set(engine.map(engine_tasks.thread_counts, range(4))) == {(1, 1)}
    torch.set_num_threads(1)


def test_functions_cache_their_state_in_the_worker() -> None:
    with open_engine("local", 1) as engine:
        assert list(engine.map(engine_tasks.count_calls, ["model"] * 3)) == [1, 2, 3]


def test_started_tasks_run_beside_others_and_end_with_the_engine(tmp_path: Path) -> None:
    with open_engine("local", 2) as engine:
        engine.start(engine_tasks.run_chore, [Chore(0, tmp_path, seconds=300)])
        assert list(engine.map(engine_tasks.square, range(3))) == [0, 1, 4]
        [pid] = started_chores(tmp_path, 1)
        assert is_alive(pid)
    assert wait_until_dead([pid])


def test_an_error_of_a_started_task_is_not_told(capfd: pytest.CaptureFixture[str]) -> None:
    with open_engine("local", 1) as engine:
        engine.start(engine_tasks.refuse_odd, [1])
        assert list(engine.map(engine_tasks.count_calls, ["a", "b"])) == [1, 1]
    assert capfd.readouterr().err == ""


def test_exceptions_come_back_as_themselves() -> None:
    with open_engine("local", 2) as engine:
        results = engine.map(engine_tasks.refuse_odd, range(4))
        assert next(results) == 0
        with pytest.raises(DoapError, match=r"^1\.jpg: odd; use an even one$"):
            next(results)
        with pytest.raises(RuntimeError, match="UnpicklableError: cannot 0"):
            list(engine.map(engine_tasks.fail_unpicklably, [0]))
        assert list(engine.map(engine_tasks.square, [5])) == [25]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(DoapError, match="engine threads: unknown; choose one of local, ray"), open_engine("threads"):  # type: ignore[arg-type]
        pass
    with pytest.raises(DoapError, match="0 workers"), open_engine("local", 0):
        pass
    with open_engine("local", 1) as engine, pytest.raises((AttributeError, TypeError), match="local"):
        list(engine.map(lambda number: number, [1]))


def test_available_cores_respect_the_affinity() -> None:
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    chores = [Chore(n, tmp_path, kills=2 if n in (0, 4) else 0) for n in range(8)]
    with open_engine("local", 2) as engine:
        assert list(engine.map(engine_tasks.run_chore, chores)) == list(range(8))
    attempts = [len((tmp_path / f"attempts-{n}").read_text().split()) for n in range(8)]
    assert attempts == [3, 1, 1, 1, 3, 1, 1, 1]  # the tasks of the other worker ran once


@pytest.mark.slow
def test_a_worker_killed_while_idle_is_replaced(tmp_path: Path) -> None:
    with open_engine("local", 1) as engine:
        assert list(engine.map(engine_tasks.run_chore, [Chore(0, tmp_path)])) == [0]
        os.kill(int((tmp_path / "attempts-0").read_text()), signal.SIGKILL)
        time.sleep(0.5)  # until the death is noticed
        assert list(engine.map(engine_tasks.square, range(3))) == [0, 1, 4]


@pytest.mark.slow
def test_a_task_that_always_kills_its_worker_is_named(tmp_path: Path) -> None:
    with open_engine("local", 2) as engine:
        results = engine.map(engine_tasks.run_chore, [Chore(0, tmp_path), Chore(1, tmp_path, kills=9)])
        assert next(results) == 0
        with pytest.raises(DoapError, match=r"task 1 of run_chore .*died 3 times"):
            next(results)
        assert list(engine.map(engine_tasks.square, range(4))) == [0, 1, 4, 9]
        chores = [Chore(n, tmp_path, kills=9 if n == 3 else 0) for n in range(2, 6)]
        assert list(engine.map(engine_tasks.run_chore, chores, died=lambda chore: -chore.number)) == [2, -3, 4, 5]


@pytest.mark.parametrize("size", [100, 100_000], ids=["small", "larger than a pipe"])
def test_a_worker_that_dies_while_it_sends_its_result_is_named(size: int) -> None:
    with open_engine("local", 2) as engine, pytest.raises(DoapError, match="its worker died 3 times"):
        list(engine.map(engine_tasks.die_while_sending, [size]))


def test_an_engine_is_closed_while_results_are_sent() -> None:
    for _ in range(3):
        with open_engine("local", 2) as engine:
            assert next(iter(engine.map(engine_tasks.bytes_of, [20_000_000] * 6))) == bytes(20_000_000)


@pytest.fixture
def break_starts(monkeypatch: pytest.MonkeyPatch) -> Callable[[set[int]], list[int]]:
    """Return a function that lets these starts of workers, numbered from 0, fail, and returns their growing list."""
    starts: list[int] = []
    start = local_engine._start_executor

    def install(failing: set[int]) -> list[int]:
        def start_or_fail(payload: bytes, module: str) -> "tuple[ProcessPoolExecutor, Future[object]]":
            starts.append(len(starts))
            if starts[-1] in failing:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return start(payload, module)

        monkeypatch.setattr(local_engine, "_start_executor", start_or_fail)
        return starts

    return install


@pytest.mark.parametrize("failing", [0, 1], ids=["first worker", "worker after one that died"])
def test_a_start_that_fails_is_tried_again(
    break_starts: Callable[[set[int]], list[int]], tmp_path: Path, failing: int
) -> None:
    break_starts({failing})
    with open_engine("local", 1) as engine:
        assert list(_with_deadline(engine.map(engine_tasks.run_chore, [Chore(0, tmp_path, kills=1)]))) == [0]


def test_a_failed_start_of_an_unneeded_task_does_not_block_others(
    break_starts: Callable[[set[int]], list[int]],
) -> None:
    starts = break_starts({0, 1, 2})
    with open_engine("local", 1) as engine:
        engine.start(engine_tasks.square, range(5))
        deadline = time.monotonic() + 20
        while len(starts) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        assert len(starts) == 3  # the other tasks were dropped
        assert list(_with_deadline(engine.map(engine_tasks.square, range(3)))) == [0, 1, 4]


def test_fewer_workers_do_all_tasks_if_no_more_can_be_started(
    break_starts: Callable[[set[int]], list[int]],
) -> None:
    break_starts(set(range(1, 1000)))
    with open_engine("local", 3) as engine:
        assert list(_with_deadline(engine.map(engine_tasks.square_slowly, range(9)))) == [n * n for n in range(9)]


def test_an_engine_that_can_start_no_worker_is_one_line(break_starts: Callable[[set[int]], list[int]]) -> None:
    break_starts(set(range(1000)))
    with (
        open_engine("local", 2) as engine,
        pytest.raises(DoapError, match=r"^task 0 of square .*: no worker can be started \(.*Too many open files\); "),
    ):
        list(_with_deadline(engine.map(engine_tasks.square, range(3))))


def test_a_lack_of_descriptors_ends_no_worker(capfd: pytest.CaptureFixture[str]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open_engine("local", 3) as engine:
        assert list(engine.map(engine_tasks.square, [1])) == [1]  # one worker runs
        used = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
        free = [number for number in range(max(used) + 10) if number not in used]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (free[8], limits[1]))
            results = list(_with_deadline(engine.map(engine_tasks.square_slowly, range(6))))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert results == [n * n for n in range(6)]
    assert capfd.readouterr().err == ""


def _with_deadline(results: Iterator[Any]) -> Iterator[Any]:
    """Yield results; raise if they do not come within a minute."""

    def stop(*_: object) -> None:
        raise AssertionError("no result came")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    try:
        yield from results
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


SLOW_MODULE = """
import time
time.sleep(2)
import torch
def threads(_):
    import cv2, os
    return torch.get_num_threads(), cv2.getNumThreads(), os.environ["OMP_NUM_THREADS"]
"""

STARTING_SCRIPT = """
import os, pickle, sys, time
print("run", flush=True)
class State:
    pass
sys.modules["slow"] = type(sys)("slow")  # only the fork server imports it
exec("def threads(_): pass", sys.modules["slow"].__dict__)
import slow
from doap.parallel import open_engine
environment = dict(os.environ)
with open_engine("local", 1) as engine:
    engine.start(slow.threads, [0])
    end = time.monotonic() + 2
    while time.monotonic() < end:
        pickle.dumps(State())
        assert os.environ == environment
        time.sleep(0.01)
    print(*next(engine.map(slow.threads, [0])))
"""


def run_with_all_threads(folder: Path, script: str) -> tuple[str, str]:
    """Run a script that may import modules of a folder, without limits on threads; return what it printed."""
    (folder / "script.py").write_text(script)
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment["PYTHONPATH"] = str(folder)
    command = [sys.executable, str(folder / "script.py")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return run.stdout, run.stderr


@pytest.mark.slow
def test_this_process_does_not_change_while_workers_start(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_MODULE)
    assert run_with_all_threads(tmp_path, STARTING_SCRIPT) == ("run\n1 1 1\n", "")


@pytest.mark.slow
def test_spawned_workers_use_one_thread_and_do_not_run_the_script(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(SLOW_MODULE)
    script = """
from doap.parallel import local_engine, open_engine
import tasks
print("run", flush=True)
local_engine.START_METHOD = "spawn"
with open_engine("local", 1) as engine:
    print(*next(engine.map(tasks.threads, [0])))
"""
    assert run_with_all_threads(tmp_path, script) == ("run\n1 1 1\n", "")


SCRIPT = """
import sys
from pathlib import Path
from doap.parallel import open_engine
from support.engine_tasks import Chore, loaded_modules, run_chore
folder = Path(sys.argv[1])
with open_engine("local", 2) as engine:
    modules = next(engine.map(loaded_modules, [0]))
    print(sorted(modules & {"torch", "typer", "doap.cli.main"}), flush=True)
    print(sum(engine.map(run_chore, [Chore(n, folder, seconds=float(sys.argv[2])) for n in range(4)])), flush=True)
"""


def start_script(tmp_path: Path, seconds: float) -> subprocess.Popen[str]:
    """Start a script that has no `if __name__ == "__main__"`."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    pipe = subprocess.PIPE
    # A shell starts commands in the background with SIGINT ignored, which its descendants inherit.
    return subprocess.Popen(
        command, env=environment, text=True, stdout=pipe, stderr=pipe, preexec_fn=lambda: _restore(signal.SIGINT)
    )


def _restore(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)


@pytest.mark.slow
def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    out, err = start_script(tmp_path, 0).communicate(timeout=120)
    assert (out, err) == ("[]\n6\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path: Path, number: int) -> None:
    script = start_script(tmp_path, 300)
    pids = started_chores(tmp_path, 2)
    assert len(pids) == 2
    script.send_signal(number)
    script.wait(timeout=20)
    assert wait_until_dead(pids)
