"""Processes that read damaged files, with limits of time and memory."""

import hashlib
import multiprocessing
import os
import resource
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, Self

from campaign.fuzz.mutations import Mutation, apply_mutations, choose_mutations

SECONDS = 20.0  # per case; the slowest good file takes a tenth of a second
MEMORY_BYTES = 1 << 30  # on top of the libraries
MAX_LINE = 2000  # characters of an error
READY_SECONDS = 120.0

Kind = Literal["result", "error", "traceback", "lines", "other result", "time", "memory", "signal"]
GOOD: tuple[Kind, ...] = ("result", "error")


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        kind: "result" and "error", one line, are allowed; all others are findings.
        detail: The line of the error, or the exception and where it was raised.
        key: What equal findings have in common.
    """

    kind: Kind
    detail: str
    key: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether this must not happen."""
        return self.kind not in GOOD


class Worker:
    """A process that runs cases; it is started again after a case that ended it.

    Args:
        formats: Formats whose good files are made before the memory is limited.
        seconds: Limit of time per case.
        memory_bytes: Limit of memory on top of that of the libraries and good files.
    """

    def __init__(self, formats: Sequence[str] = (), seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES) -> None:
        self._formats, self._seconds, self._memory_bytes = tuple(formats), seconds, memory_bytes
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, format_name: str, mutations: Sequence[Mutation] | str) -> Outcome:
        """Read a damaged file.

        Args:
            format_name: Its format.
            mutations: The damage, or the seed that it is chosen by.
        """
        connection = self._connection or self._start()
        try:
            connection.send((run_case, format_name, mutations))
            if not connection.poll(self._seconds):
                self.stop()
                return Outcome("time", f"more than {self._seconds:g} seconds", "time")
            outcome: Outcome = connection.recv()
        except (EOFError, ConnectionError):
            code = self.stop()
            return Outcome("signal", f"the process ended with {code}", f"signal {code}")
        return outcome

    def mutations(self, format_name: str, seed: str) -> list[Mutation]:
        """Return the damage that a seed chooses."""
        connection = self._connection or self._start()
        connection.send((mutations_of, format_name, seed))
        chosen: list[Mutation] = connection.recv()
        return chosen

    def stop(self) -> int | None:
        """End the process and return its exit code."""
        process, self._process, self._connection = self._process, None, None
        if process is None:
            return None
        process.join(0.5)
        code = process.exitcode
        process.kill()
        process.join()
        self._folder.cleanup()
        return code

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._folder = tempfile.TemporaryDirectory(prefix="doap-fuzz-")
        arguments = (theirs, Path(self._folder.name), self._formats, self._memory_bytes)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        if not self._connection.poll(READY_SECONDS):
            raise RuntimeError("a worker did not start")
        self._connection.recv()
        return self._connection


def _serve(connection: Connection, root: Path, formats: Sequence[str], memory_bytes: int) -> None:
    """Run cases until the other side is closed."""
    warnings.simplefilter("ignore")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # decoders write about damaged files
    os.environ["DOAP_CACHE"] = str(root / "cache")
    import torch

    torch.set_num_threads(1)
    for name in formats:  # with all imports
        _seed(name, root)
    _limit_memory(memory_bytes)
    connection.send("ready")
    while True:
        try:
            function, format_name, argument = connection.recv()
        except EOFError:
            return
        connection.send(function(format_name, argument, root))


def _limit_memory(extra: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + extra, used + extra))


@dataclass(frozen=True)
class _Seed:
    """A good file: its folder, its name in it, its content, and a hash of what is read."""

    folder: Path
    name: str
    content: bytes
    digest: str


@lru_cache(None)
def _seed(format_name: str, root: Path) -> _Seed:
    from campaign.fuzz.registry import FORMATS

    folder = root / format_name
    folder.mkdir()
    file = FORMATS[format_name].make(folder)
    content = file.read_bytes()
    with tempfile.TemporaryDirectory(dir=root) as copy:
        shutil.copytree(folder, Path(copy) / "good")
        digest = _digest(FORMATS[format_name].read(Path(copy) / "good" / file.relative_to(folder)))
    return _Seed(folder, str(file.relative_to(folder)), content, digest)


def mutations_of(format_name: str, seed: str, root: Path) -> list[Mutation]:
    """Return the mutations of a case."""
    from campaign.fuzz.registry import FORMATS

    return choose_mutations(seed, _seed(format_name, root).content, FORMATS[format_name].is_text)


def run_case(format_name: str, mutations: Sequence[Mutation] | str, root: Path) -> Outcome:
    """Read a damaged file in this process, in a fresh copy of its folder."""
    from campaign.fuzz.registry import FORMATS
    from doap.errors import DoapError

    seed, format_ = _seed(format_name, root), FORMATS[format_name]
    if isinstance(mutations, str):
        mutations = mutations_of(format_name, mutations, root)
    damaged = apply_mutations(seed.content, mutations)
    case = Path(tempfile.mkdtemp(dir=root))
    try:
        folder = shutil.copytree(seed.folder, case / "case")
        (folder / seed.name).unlink()
        (folder / seed.name).write_bytes(damaged)
        value = format_.read(folder / seed.name)
        if format_.is_checked and value is not None and _digest(value) != seed.digest:
            return Outcome("other result", "what was read differs from the good file", "other result")
        return Outcome("result", "")
    except DoapError as error:
        line = str(error)
        if "\n" in line or len(line) > MAX_LINE:
            return Outcome("lines", f"{len(line)} characters: {line[:300]!r}", f"lines {_location(error)}")
        return Outcome("error", line)
    except MemoryError as error:
        return Outcome("memory", f"MemoryError at {_location(error)}", f"memory {_location(error)}")
    except Exception as error:
        location = f"{type(error).__name__} at {_location(error)}"
        return Outcome("traceback", f"{location}: {str(error)[:300]}", location)
    finally:
        shutil.rmtree(case, ignore_errors=True)


def _location(error: BaseException) -> str:
    """Return the innermost line of doap that an exception passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}doap{os.sep}" in frame.filename]
    if not frames:
        return "?"
    last = frames[-1]
    return f"{last.filename.rpartition('/src/')[2]}:{last.lineno}"


def _digest(value: Any) -> str:
    return hashlib.sha256(b"".join(_bytes(value))).hexdigest()


def _bytes(value: Any) -> list[bytes]:
    """Return the content of arrays, tensors, and lists of them."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        return [f"{value.dtype} {value.shape}".encode(), np.ascontiguousarray(value).tobytes()]
    if isinstance(value, list | tuple):
        return [part for item in value for part in _bytes(item)]
    return [repr(value).encode()]
