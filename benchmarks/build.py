"""Speed of `doap data build` on all cores, as a ratio to one worker in the same run, and the use of the cores.

    python benchmarks/build.py photos/ [--workers 16]      # writes benchmarks/results/build-<machine>.json

The limit of the hardware is the number of workers times the speed of one. The use of the cores is that of the whole
machine (/proc/stat): nothing else may run.
"""

import argparse
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from doap.datasets.build.building import build
from doap.datasets.build.settings import BuildSettings
from doap.images.reading import find_photos
from doap.parallel.engine import available_cores
from machine import write_result


def busy_seconds() -> float:
    """Return the time that the cores of this machine have been busy since it started, in core seconds."""
    ticks = [int(value) for value in Path("/proc/stat").read_text().split()[1:9]]
    idle, waiting = ticks[3:5]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def measure(photos: list[Path], workers: int, pixels: bool) -> dict[str, object]:
    """Build a set; return its speed, the use of the cores and the time of each step."""
    steps: dict[str, float] = defaultdict(float)
    current, since = "starting", time.perf_counter()

    def progress(step: str, done: int, total: int | None) -> None:  # noqa: ARG001  # a callback
        nonlocal current, since
        now = time.perf_counter()
        steps[current] += now - since
        current, since = step, now

    with tempfile.TemporaryDirectory() as folder:
        start, busy = time.perf_counter(), busy_seconds()
        build(photos, Path(folder) / "set", BuildSettings(), pixels, progress, workers=workers)
        seconds, busy = time.perf_counter() - start, busy_seconds() - busy
        progress("end", 0, None)
    count = len(find_photos(photos))
    return {
        "workers": workers,
        "seconds": round(seconds, 1),
        "photos per second": round(count / seconds, 2),
        "core seconds": round(busy, 1),
        "use of the cores": round(busy / seconds / workers, 3),
        "seconds per step": {step: round(spent, 1) for step, spent in steps.items()},
    }


def main() -> None:
    """Measure a build by one worker and by all, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="+", help="photos, or folders of them")
    parser.add_argument("--workers", type=int, default=available_cores(), help="number of processes")
    parser.add_argument("--frames", action="store_true", help="build a frame set")
    options = parser.parse_args()
    runs = {}
    for name, workers in (("one worker", 1), ("all workers", options.workers)):
        runs[name] = measure(options.photos, workers, not options.frames)
        print(f"{name}: {runs[name]}", flush=True)
    one, all_ = (float(str(runs[name]["photos per second"])) for name in ("one worker", "all workers"))
    print(f"{all_ / one:.2f}x one worker; the limit is {options.workers}")
    write_result("build", "cpu", {"photos": len(find_photos(options.photos)), **runs, "ratio": round(all_ / one, 2)})


if __name__ == "__main__":
    main()
