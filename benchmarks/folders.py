"""Speed of `doap describe` over a folder, as a ratio to describing one image after another in one process.

    python benchmarks/folders.py [--images 100] [--model doap-128]

All times include the start of the command. The limit is the number of cores: two cores that are always busy halve the
time of one. Writes benchmarks/results/folders-<machine>.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import skimage
from PIL import Image

from doap.parallel.engine import available_cores
from machine import write_result

LOOP = """
import sys, torch
from pathlib import Path
from doap import detect_and_describe, load
torch.set_num_threads(int(sys.argv[4]))
model = load(sys.argv[1])
for path in sorted(Path(sys.argv[2]).glob("*.jpg")):
    detect_and_describe(path, model).save(Path(sys.argv[3]) / f"{path.name}.npz")
"""
TICK = 0.5  # seconds between two readings of the times of all processes; reading takes time of the cores, too


def write_photos(folder: Path, count: int) -> None:
    """Write crops of 640x480 pixels of photos."""
    random = np.random.default_rng(0)
    photos = [
        skimage.data.astronaut(),
        skimage.data.coffee(),
        skimage.data.rocket(),
        skimage.data.stereo_motorcycle()[0],
    ]
    large = [Image.fromarray(photo).resize((1280, 960), Image.Resampling.LANCZOS) for photo in photos]
    for number in range(count):
        x, y = random.integers(0, 640), random.integers(0, 480)
        crop = large[number % len(large)].crop((x, y, x + 640, y + 480))
        crop.save(folder / f"{number:04}.jpg", quality=90)


def process_times() -> dict[int, tuple[int, float]]:
    """Return the parent and the seconds of CPU time of every process, from /proc."""
    times = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        times[int(path.parent.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return times


def idle_time() -> float:
    """Return the seconds that all cores have been idle since the start of the machine."""
    fields = Path("/proc/stat").read_text().split("\n")[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def run(arguments: list[str]) -> tuple[float, float, float]:
    """Run a command and measure it.

    Returns:
        Wall time, CPU time of the command and all processes below it, and idle time of all cores, in seconds.
    """
    start, idle = time.perf_counter(), idle_time()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    spent: dict[int, float] = {}
    tree = {process.pid}
    while process.poll() is None:
        times = process_times()
        tree |= {pid for pid, (parent, _) in times.items() if parent in tree}
        spent |= {pid: seconds for pid, (_, seconds) in times.items() if pid in tree}
        time.sleep(TICK)
    wall, idle = time.perf_counter() - start, idle_time() - idle
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed")
    return wall, sum(spent.values()), idle


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--model", default="doap-128")
    arguments = parser.parse_args()
    cores, model = available_cores(), arguments.model
    doap = str(Path(sys.executable).parent / "doap")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "photos").mkdir()
        write_photos(folder / "photos", arguments.images)
        describe = [doap, "describe", str(folder / "photos"), "--model", model, "--device", "cpu", "-o"]
        loop = [sys.executable, "-c", LOOP, model, str(folder / "photos"), str(folder / "loop"), str(cores)]
        wall, spent, idle = run([*describe, str(folder / "features.h5")])
        loop_wall, loop_spent, _ = run(loop)
    busy, loop_busy = spent / (cores * wall), loop_spent / (cores * loop_wall)
    unused = idle / (cores * wall)
    others = max(0.0, 1 - busy - unused)
    print(f"doap describe, {arguments.images} images, {model}: {wall:.1f} s, {cores} cores {100 * busy:.0f} % busy")
    print(f"  {100 * others:.0f} % of the cores taken by other programs, {100 * unused:.0f} % idle")
    print(f"one image after another: {loop_wall:.1f} s, {100 * loop_busy:.0f} % busy; ratio {loop_wall / wall:.2f}")
    described = {"model": model, "images": arguments.images, "cores": cores, "seconds": wall, "busy": busy}
    compared = {"others": others, "loop seconds": loop_wall, "loop busy": loop_busy, "ratio": loop_wall / wall}
    write_result("folders", "cpu", described | compared)


if __name__ == "__main__":
    main()
