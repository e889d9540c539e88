"""Commands in processes that are forked from one that has imported everything.

A tiny command spends nearly all of its time in imports, during which nothing is written. Forked commands start at once,
so that kills at random moments hit their work, and thousands of them fit into an hour.

As a program, this file is the server: it reads requests as lines of JSON and answers likewise.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.running.clock import make_clock_jump
from campaign.running.launcher import adapt
from doap.cli.main import main
from doap.parallel import local_engine

SECONDS = 240.0  # for a whole run
MODULES = "campaign-modules.json"  # written by a command that ends: what it had imported


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        status: Exit status.
        errors: What it wrote to standard error.
    """

    status: int
    errors: str

    @property
    def last_line(self) -> str:
        """The last line of the errors."""
        return (self.errors.strip().splitlines() or ["no error"])[-1][:300]


class Preloaded:
    """Runs commands in forked processes; see `preloaded`."""

    def __init__(self, server: "subprocess.Popen[str]") -> None:
        self._server = server

    def start(self, words: Sequence[str], folder: Path, environment: Mapping[str, str], processes: int = 1) -> int:
        """Start a command in a work folder, in a process group of its own, and return the group.

        Args:
            words: Arguments of doap.
            folder: Work folder.
            environment: Further variables.
            processes: Processes that share a training, with the environment that `torchrun` gives them.
        """
        request = {"words": [*words], "folder": str(folder), "environment": {**environment}, "processes": processes}
        return int(self._ask(request))

    def wait(self, group: int, folder: Path, seconds: float = SECONDS) -> Ended | None:
        """Wait for a command; return None if it still runs."""
        status = self._ask({"group": group, "folder": str(folder), "wait": seconds})
        errors = folder / f"stderr-{group}"  # missing if it was killed at once
        text = errors.read_text(errors="replace") if errors.exists() else ""
        return None if status is None else Ended(status, text)

    def kill(self, group: int, folder: Path) -> None:
        """Kill a command with all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        self.wait(group, folder)

    def finish(self, group: int, folder: Path) -> Ended:
        """Wait for a command, and kill it if it takes too long."""
        ended = self.wait(group, folder)
        if ended is None:
            self.kill(group, folder)
        return ended or Ended(-signal.SIGKILL, f"not ended after {SECONDS:g} seconds")

    def run(self, words: Sequence[str], folder: Path, environment: Mapping[str, str], processes: int = 1) -> Ended:
        """Run a command to its end."""
        return self.finish(self.start(words, folder, environment, processes), folder)

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())


@contextmanager
def preloaded() -> Iterator[Preloaded]:
    """Open a server of forked commands for the block."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"}
    words = [sys.executable, "-m", "campaign.running.preloaded"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True) as server:
        try:
            yield Preloaded(server)
        finally:
            server.kill()


def serve() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        answer = _wait(**request) if "wait" in request else _fork(request)
        print(json.dumps(answer), file=answers, flush=True)


def _wait(group: int, folder: str, wait: float) -> int | None:
    end = time.monotonic() + wait
    while True:
        try:
            ended, status = os.waitpid(group, os.WNOHANG)
        except ChildProcessError:  # it was waited for before
            return -signal.SIGKILL
        if ended:
            _import_all(Path(folder) / MODULES)
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.002)


def _import_all(names: Path) -> None:
    """Import what a command imported, so that the next one finds it."""
    try:
        modules = json.loads(names.read_text())
    except (OSError, ValueError):  # it failed, or was killed while it wrote them
        return
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the child may have done it
            os.setpgid(pid, pid)
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        status = _run(request)
    finally:
        os._exit(status)


def _run(request: dict[str, Any]) -> int:
    """Run a command in this process, and return its status."""
    local_engine.START_METHOD = "fork"  # nothing has computed here yet
    os.chdir(request["folder"])
    os.environ.update({"DOAP_CACHE": f"{request['folder']}/cache", **request["environment"]})
    for number, name in enumerate((os.devnull, os.devnull, f"stderr-{os.getpid()}")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666), number)
    adapt()
    if "DOAP_CAMPAIGN_CLOCK" in os.environ:
        make_clock_jump(os.environ["DOAP_CAMPAIGN_CLOCK"])
    sys.argv = ["doap", *request["words"]]
    other = _share_training(request["processes"]) if request["processes"] > 1 else 0
    status = 0
    try:
        main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if other and status:
        os.kill(other, signal.SIGKILL)
    if other:
        os.waitpid(other, 0)
    elif request["processes"] > 1 and status:
        time.sleep(1)  # for the line of the first process
        os.killpg(0, signal.SIGKILL)
    if not status:
        Path(MODULES).write_text(json.dumps(sorted(sys.modules)))
    return status


def _share_training(processes: int) -> int:
    """Fork the second process of a training; return it, and 0 in it.

    As with torchrun, both have its environment, and one that fails ends the other.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    other = os.fork()
    rank = str(int(other == 0))
    names = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": "0", "WORLD_SIZE": f"{processes}"}
    os.environ.update(names, LOCAL_WORLD_SIZE=f"{processes}", MASTER_ADDR="127.0.0.1", MASTER_PORT=f"{port}")
    os.environ["TORCHELASTIC_RUN_ID"] = "campaign"
    return other


if __name__ == "__main__":
    serve()
