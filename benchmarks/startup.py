"""Start-up time: `import doap` and the help of commands, beside the libraries that others import at once.

    python benchmarks/startup.py [--repeats 10]

Every command runs in a new process, in turn with the others, so that all see the same load; the shortest time counts.
The limit of anything in Python is an empty program; that of work with a model is the import of torch and OpenCV.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from machine import write_result

LIMIT, LIBRARIES, PEER = "python -c pass", "import torch, cv2", "import kornia"
DOAP = str(Path(sys.executable).with_name("doap"))
WORK = "import doap; doap.load, doap.detect_and_describe, doap.match"
COMMANDS = {
    LIMIT: [sys.executable, "-c", "pass"],
    "import doap": [sys.executable, "-c", "import doap"],
    "doap --help": [DOAP, "--help"],
    "doap match --help": [DOAP, "match", "--help"],
    "doap data build --help": [DOAP, "data", "build", "--help"],
    "what doap match imports": [sys.executable, "-c", WORK],
    "import cv2": [sys.executable, "-c", "import cv2"],
    "import torch": [sys.executable, "-c", "import torch"],
    LIBRARIES: [sys.executable, "-c", LIBRARIES],
    PEER: [sys.executable, "-c", PEER],
}


def measure(command: Sequence[str]) -> float:
    """Return the seconds of a process from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Measure all commands, print them and write them to benchmarks/results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    rounds = [{name: measure(command) for name, command in COMMANDS.items()} for _ in range(repeats + 1)]
    seconds = {name: min(times[name] for times in rounds[1:]) for name in COMMANDS}  # the first fills the file cache
    references = (LIMIT, "import torch", LIBRARIES, PEER)
    print(f"{'':<26}{'ms':>7}" + "".join(f"{f'x {name}':>22}" for name in references))
    for name, value in seconds.items():
        ratios = "".join(f"{value / seconds[reference]:22.2f}" for reference in references)
        print(f"{name:<26}{1000 * value:7.0f}{ratios}")
    write_result("startup", "cpu", {"repeats": repeats, "seconds": seconds})


if __name__ == "__main__":
    main()
