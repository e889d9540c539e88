"""The engine of Ray, with real processes of Ray."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from doap import DoapError
from doap.parallel import Engine, open_engine
from doap.parallel.ray_engine import RayEngine, _check_address, open_ray
from support import engine_tasks
from support.engine_tasks import Chore

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with open_engine("ray", 2) as engine:
        yield engine


def test_ray_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(DoapError, match=r"^ray is not installed; run: pip install 'doap\[scale\]'$"),
        open_engine("ray"),
    ):
        pass


class FakeRay:
    """A Ray that runs nothing, and notes what it is told.

    Args:
        error: Raised by `get`.
    """

    exceptions = ray.exceptions

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[str] = []
        self.is_running = False

    def is_initialized(self) -> bool:
        return self.is_running

    def init(self, *_: object, **__: object) -> None:
        self.is_running = True

    def shutdown(self) -> None:
        self.is_running = False
        self.calls.append("shutdown")

    def remote(self, *_: object) -> "FakeRay":
        return self

    def options(self, **_: object) -> "FakeRay":
        return self

    def get(self, _: object) -> int:
        if self.error is not None:
            raise self.error
        return 7

    def cancel(self, _: object, force: bool) -> None:
        assert force
        self.calls.append("cancel")


def test_a_generator_that_outlives_its_engine_does_not_call_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with open_ray(1) as engine:
        early, late = (engine.map(engine_tasks.square, range(9)) for _ in range(2))
        assert next(early) == next(late) == 7
        early.close()  # type: ignore[attr-defined]  # a generator
        cancelled = fake.calls.copy()
        assert cancelled == ["cancel"]
    fake.init()  # by somebody else
    late.close()  # type: ignore[attr-defined]
    assert fake.calls == [*cancelled, "shutdown"]


def test_a_ray_that_ends_is_one_line() -> None:
    fake = FakeRay(ray.exceptions.LocalRayletDiedError())
    with pytest.raises(DoapError, match=r"^Ray ended \(.*\); run the command again$") as caught:
        list(RayEngine(fake, 1).map(engine_tasks.square, [1]))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_results_are_those_of_local_workers(engine: Engine) -> None:
    on_ray = [matrix.tobytes() for matrix in engine.map(engine_tasks.random_matrix, range(9))]
    for workers in (1, 2, 4):
        with open_engine("local", workers) as local:
            assert [matrix.tobytes() for matrix in local.map(engine_tasks.random_matrix, range(9))] == on_ray
    assert list(engine.map(engine_tasks.square_slowly, range(7))) == [n * n for n in range(7)]


@pytest.mark.slow
def test_workers_use_one_thread(engine: Engine) -> None:
    assert engine.workers == 2
    assert set(engine.map(engine_tasks.thread_counts, range(4))) == {(1, 1)}


@pytest.mark.slow
def test_tasks_are_read_as_they_are_needed(engine: Engine) -> None:
    taken: list[int] = []
    results = engine.map(engine_tasks.square, (taken.append(number) or number for number in range(100)))  # type: ignore[func-returns-value]
    assert [next(results), next(results)] == [0, 1]
    assert len(taken) == 5


@pytest.mark.slow
def test_exceptions_come_back_as_themselves(engine: Engine) -> None:
    results = engine.map(engine_tasks.refuse_odd, range(4))
    assert next(results) == 0
    with pytest.raises(DoapError, match=r"^1\.jpg: odd; use an even one$") as caught:
        next(results)
    assert type(caught.value) is DoapError


@pytest.mark.slow
def test_a_worker_killed_from_outside_loses_nothing(engine: Engine, tmp_path: Path) -> None:
    results = engine.map(engine_tasks.run_chore, [Chore(n, tmp_path, seconds=0.4) for n in range(6)])
    assert next(results) == 0
    marks = tmp_path / "attempts-2"
    deadline = time.monotonic() + 60
    while not marks.exists() or not marks.read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(int(marks.read_text().split()[0]), signal.SIGKILL)
    assert list(results) == [1, 2, 3, 4, 5]
    assert len(marks.read_text().split()) == 2


@pytest.mark.slow
def test_a_task_that_always_kills_its_worker_is_named(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"task 0 of run_chore .*died 3 times"):
        list(engine.map(engine_tasks.run_chore, [Chore(7, tmp_path, kills=9)]))


START = """
import time
from doap.parallel import open_engine
from support.engine_tasks import Chore, refuse_odd, run_chore, square
with open_engine("ray", 2) as engine:
    engine.start(refuse_odd, [2])
    engine.start(run_chore, [Chore(n, {folder!r}, seconds=300) for n in range(2)])
    print(sum(engine.map(square, [])), flush=True)
time.sleep(3)
import ray
print(ray.is_initialized())
"""


@pytest.mark.slow
def test_started_tasks_end_with_the_engine_and_do_not_start_it_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from pathlib import *" + START.format(folder=tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "0\nFalse\n", "")


@pytest.mark.slow
def test_started_tasks_run_beside_others(engine: Engine, tmp_path: Path) -> None:
    engine.start(engine_tasks.run_chore, [Chore(n, tmp_path) for n in range(3)])
    assert list(engine.map(engine_tasks.square, range(3))) == [0, 1, 4]
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cluster_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(DoapError, match=f"RAY_ADDRESS {address}: no Ray cluster answers"):
        _check_address(address)


JOIN = """
from doap.parallel import open_engine
from support.engine_tasks import square
with open_engine("ray") as engine:
    print(engine.workers, sum(engine.map(square, range(5))))
"""


@pytest.fixture
def cluster() -> Iterator[dict[str, str]]:
    """Start a Ray cluster of three cores; return the environment of processes that join it."""
    tests, host = str(Path(__file__).parents[1]), ray.util.get_node_ip_address()
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}  # nobody else may join
    environment = {**os.environ, **token, "PYTHONPATH": tests, "RAY_ADDRESS": f"{host}:26379"}
    head = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
    head += ["--port", "26379", "--num-cpus", "3", "--include-dashboard", "false"]
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:  # names of sockets are short
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([*head, "--temp-dir", folder], env=environment, stdout=quiet, stderr=quiet)
        try:
            _wait_for_port(host, 26379)
            yield environment
        finally:
            process.terminate()
            process.wait(timeout=90)


def _wait_for_port(host: str, port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection((host, port), 1).close()
            time.sleep(5)  # the workers' part starts after the head
            return
        time.sleep(0.2)


@pytest.mark.slow
def test_a_running_cluster_is_joined_and_left_running(cluster: dict[str, str]) -> None:
    for _ in range(2):
        command = [sys.executable, "-c", JOIN]
        joined = subprocess.run(command, env=cluster, capture_output=True, text=True, timeout=120, check=False)
        assert (joined.stdout, joined.stderr) == ("3 30\n", "")
