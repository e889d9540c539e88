"""Speed of the steps of the pipeline, each as a ratio to a named baseline in the same run.

    python benchmarks/pipeline.py        # writes benchmarks/results/pipeline-<machine>.json

- extracting patches: kornia's extract_patches_from_pyramid, at the same frames
- opening a million patches: reading them with numpy

Matching has a benchmark of its own, `matching.py`.
"""

import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import kornia
import numpy as np
import skimage
import torch

from doap import PatchSet
from doap.datasets.sets.writer import write_patch_set
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog

RESULTS = Path(__file__).parent / "results"


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """Return the median wall time after one run to warm up."""
    work()
    times_spent = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        times_spent.append(time.perf_counter() - start)
    return statistics.median(times_spent)


def extraction() -> dict[str, float]:
    """Extract 200 patches of 32x32 pixels from a 1411x1411 image."""
    image = cv2.cvtColor(skimage.data.retina(), cv2.COLOR_RGB2GRAY)
    frames = detect_dog(image, 2000)
    lafs = torch.from_numpy(frames * np.float32([12, 12, 1]))[None]
    tensor = torch.from_numpy(image)[None, None].float()
    return {
        "patches": len(frames),
        "doap": seconds(lambda: extract_patches(image, frames, 32, 12)),
        "kornia": seconds(lambda: kornia.feature.extract_patches_from_pyramid(tensor, lafs, 32)),
    }


def opening() -> dict[str, float]:
    """Open a set of a million patches of 32x32 pixels."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set"
        with write_patch_set(path, 32) as out:
            for start in range(0, 1_000_000, 100_000):
                ids = np.arange(start, start + 100_000) // 4
                out.append(np.zeros((100_000, 32, 32), np.uint8), ids, ids * 0)
        return {
            "patches": 1_000_000,
            "doap": seconds(lambda: PatchSet.open(path), 3),
            "numpy.load": seconds(lambda: [np.load(shard) for shard in sorted(path.glob("patches-*.npy"))], 3),
        }


def main() -> None:
    """Measure all steps, print and write the result."""
    steps = {
        "extracting patches": extraction,
        "opening a million patches": opening,
    }
    result: dict[str, object] = {"threads": torch.get_num_threads(), "machine": platform.processor() or "unknown"}
    for name, step in steps.items():
        print(f"{name} …", flush=True)
        measured = step()
        _, ours, baseline = measured
        ratio = measured[baseline] / measured[ours]
        result[name] = {**measured, "ratio": ratio}
        print(f"  doap {measured[ours]:.3f} s, {baseline} {measured[baseline]:.3f} s: {ratio:.1f}x")
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"pipeline-{platform.machine()}-{torch.get_num_threads()}-threads.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {file}")


if __name__ == "__main__":
    main()
