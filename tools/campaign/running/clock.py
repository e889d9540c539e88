"""A clock that jumps, and files of any time."""

import os
import random
import time
from pathlib import Path

MAX_JUMP = 25 * 365 * 86_400.0  # seconds
TIMES = (0, 1, 86_400 * 365 * 10 + 1, 1_600_000_000, 2**31 + 5, 4_000_000_000)  # 1970 to 2096


def make_clock_jump(seed: str) -> None:
    """Let the clock of this process jump by up to 25 years, back or forward, whenever it is read.

    The clock that only measures durations stays as it is, as it does when a system's clock is set.
    """
    generator, real = random.Random(seed), time.time

    def jumping() -> float:
        return real() + generator.uniform(-MAX_JUMP, MAX_JUMP)

    time.time = jumping
    time.time_ns = lambda: int(1e9 * jumping())


def set_times(folder: Path, generator: random.Random) -> None:
    """Give every file in a folder a time between 1970 and 2096."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            moment = generator.choice(TIMES)
            os.utime(path, (moment, moment))
