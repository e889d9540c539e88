"""Tasks of engines, in a module that workers can import."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap import DoapError


@dataclass(frozen=True)
class Chore:
    """A task that may end its worker."""

    number: int
    folder: Path
    kills: int = 0
    seconds: float = 0.0


def square(number: int) -> int:
    return number * number


def square_slowly(number: int) -> int:
    """Let earlier tasks end later."""
    time.sleep(0.3 / (1 + number))
    return number * number


def random_matrix(seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(50, 50))


def run_chore(chore: Chore) -> int:
    """Count the attempts in a file, and kill the own process in the first of them."""
    marks = chore.folder / f"attempts-{chore.number}"
    with marks.open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(chore.seconds)
    if len(marks.read_text().split()) <= chore.kills:
        os.kill(os.getpid(), signal.SIGKILL)
    return chore.number


def bytes_of(count: int) -> bytes:
    return bytes(count)


def die_while_sending(number: int) -> bytes:
    """End the own process when half of the result is sent."""

    def send(connection: Connection, content: bytes | memoryview) -> None:
        os.write(connection.fileno(), bytes(content[: len(content) // 2]))
        os._exit(9)

    Connection._send = send  # type: ignore[attr-defined]
    return bytes(number)


def refuse_odd(number: int) -> int:
    if number % 2:
        raise DoapError(f"{number}.jpg: odd; use an even one")
    return number


class UnpicklableError(Exception):
    """An exception that cannot be sent to another process."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def fail_unpicklably(number: int) -> int:
    raise UnpicklableError("cannot", str(number))


def thread_counts(_: int) -> tuple[int, int]:
    import cv2
    import torch

    return torch.get_num_threads(), cv2.getNumThreads()


def blocked_signals(_: int) -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def loaded_modules(_: int) -> set[str]:
    return set(sys.modules)


@cache
def _calls(name: str) -> list[str]:
    return [name]


def count_calls(name: str) -> int:
    """Return how often this worker was called: state that the function caches itself."""
    calls = _calls(name)
    calls.append(name)
    return len(calls) - 1
