"""The `colmap` program: commands of versions 3.8 to 4.2, ended with the process that started them."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from doap.errors import DoapError

LAST_LINES = 200  # of the output, in which the reason of a failure is searched
HELP_TIMEOUT = 60.0  # seconds
PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal that a process gets when its parent ends

Options = Mapping[str, str | int | float | os.PathLike[str]]


def has_program() -> bool:
    """Return whether the `colmap` program is on the PATH."""
    return shutil.which("colmap") is not None


@cache
def program_version() -> str:
    """Return the version of the `colmap` program, such as "3.8".

    Raises:
        DoapError: If there is no such program, or it does not say its version.
    """
    text = _help("help")
    match = re.search(r"COLMAP (\d+(?:\.\d+)+)", text)
    if match is None:
        raise DoapError(f"colmap: says no version ({_reason(text.splitlines())}); install COLMAP 3.8 or later")
    return match[1]


def run_program(
    command: str,
    options: Options,
    preferences: Options | None = None,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Run a command of the `colmap` program, without a display and on the CPU.

    The program is killed when this call ends by an exception; on Linux also when this process is killed.

    Args:
        command: Such as "mapper".
        options: Options without their dashes, which every version has, and their values.
        preferences: Options that are passed only to versions that have them: names differ between versions.
        on_line: Called with each line of output.

    Raises:
        DoapError: If the program is missing or fails; the line has the program's reason.
    """
    known = known_options(command)
    selected = {**options, **{name: value for name, value in (preferences or {}).items() if name in known}}
    arguments = [part for name, value in selected.items() for part in (f"--{name}", str(value))]
    last: deque[str] = deque(maxlen=LAST_LINES)
    with _running(["colmap", command, *arguments]) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line.rstrip())
            if on_line is not None:
                on_line(line)
        status = process.wait()
    if status == -signal.SIGKILL:
        raise DoapError(f"colmap {command}: was killed; is there enough memory?")
    if status:
        raise DoapError(f"colmap {command}: failed: {_reason(last)}")


@cache
def known_options(command: str) -> frozenset[str]:
    """Return the options of a command, without their dashes.

    Raises:
        DoapError: If there is no `colmap` program.
    """
    return frozenset(re.findall(r"^\s*--([\w.]+)", _help(command, "-h"), re.MULTILINE))


def _help(*arguments: str) -> str:
    """Return what the program prints; boost's help goes to stdout, errors to either stream."""
    with _running(["colmap", *arguments]) as process:
        try:
            return process.communicate(timeout=HELP_TIMEOUT)[0]
        except subprocess.TimeoutExpired as error:
            raise DoapError(f"colmap {' '.join(arguments)}: no answer within {HELP_TIMEOUT:.0f} seconds") from error


@contextmanager
def _running(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Start a program and kill it if the block ends before it does."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},  # the graphical interface is linked into the program
            preexec_fn=_end_with_parent if _LIBC else None,
        )
    except OSError as error:
        raise DoapError(f"colmap: cannot be started ({error.strerror}); install it: apt install colmap") from error
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _end_with_parent() -> None:
    """Let the kernel kill the new process when its parent ends, however that ends."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# Loaded before the fork: nothing may be imported or allocated much between fork and exec.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _reason(lines: "deque[str] | list[str]") -> str:
    """Return the line that tells why the program failed: the last one that reports an error, or the last one."""
    texts = [line.strip() for line in lines if line.strip()]
    # "ERROR: …" of the commands, "E20261116 … file.cc:12] …" of glog, and what C++ prints of an exception.
    errors = [text for text in texts if re.search(r"error|failed|what\(\)|^[EF]\d{4}", text, re.IGNORECASE)]
    chosen = (errors or texts or ["no output"])[-1]
    return re.sub(r"^[EFWI]\d{4,8} [\d:.]+\s+\d+ [\w.]+:\d+\] ", "", chosen)
