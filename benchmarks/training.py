"""Speed of training, as a ratio to a named baseline in the same run.

    python benchmarks/training.py                  # on a CPU: patches per second, against a plain PyTorch loop
    python benchmarks/training.py --device cuda    # a set of Liberty's size, the parts of a step, large batches

Writes benchmarks/results/training-<device>.json.

- CPU: `doap train` with batches of 1,024, and a plain PyTorch loop with kornia's HardNet module, the same batches,
  objective and optimiser
- GPU: epochs of 450,092 patches of 32x32 in batches of 4,096, everything included (sampling, augmentation, network,
  objective, optimiser, log, checkpoints); the paper states under 240 s on a Titan X
"""

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from doap import PatchSet
from doap.datasets.batches.sampling import GroupSampler
from doap.networks.descriptor import resize_patches
from doap.objectives import AveragePrecisionLoss
from doap.training.distributed import make_fabric, make_reproducible
from doap.training.log import Status
from doap.training.recipes.recipe import Recipe
from doap.training.trainer import Trainer, train
from machine import write_result

LIBERTY = 450_092
PAPER_SECONDS = 240.0
Measured = dict[str, object]


def random_set(patches: int) -> PatchSet:
    """Return patches of noise in groups of two to four, as in Phototour."""
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(patches // 2), random.integers(2, 5, patches // 2))[:patches]
    groups[-1] = groups[-2]
    return PatchSet([random.integers(0, 256, (patches, 32, 32), dtype=np.uint8)], groups)


def epochs(data: PatchSet, device: str, count: int) -> Measured:
    """Measure the wall time of each epoch except the first, which also warms up."""
    ends: list[float] = []

    def record(status: Status) -> None:
        if not status.preparation and status.done * count >= len(ends) + 1 - 1e-9:
            ends.append(time.perf_counter())

    recipe = Recipe(batch_size=4096, augment=True, epochs=count)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        train(recipe, data, Path(folder) / "run", device=device, progress=record)
        whole = time.perf_counter() - start
    seconds = np.diff(ends)
    print(f"epochs of {len(data):,} patches: {seconds.mean():.2f} s (first {ends[0] - start:.2f} s, all {whole:.1f} s)")
    return {
        "patches": len(data),
        "batch size": 4096,
        "epochs": count,
        "seconds per epoch": float(seconds.mean()),
        "slowest epoch": float(seconds.max()),
        "first epoch, with set-up": ends[0] - start,
        "whole run": whole,
        "the paper's, Titan X": PAPER_SECONDS,
        "ratio": PAPER_SECONDS / float(seconds.mean()),
    }


def step_parts(data: PatchSet) -> Measured:
    """Measure a step on a GPU: each part alone, the whole step, and the utilisation of the GPU."""
    recipe = Recipe(batch_size=4096, augment=True)
    with tempfile.TemporaryDirectory() as folder:
        fabric = make_fabric(recipe, "cuda", 1)
        make_reproducible(fabric.device)
        trainer = Trainer(recipe, data, Path(folder), fabric)
        trainer.network.train()
        batches = trainer.loader.batches(0)
        batch = next(batches)
        inputs = resize_patches(batch.pixels, 32)
        outputs = trainer.forward(inputs).float().detach().requires_grad_()
        parts = {
            "sampling": milliseconds(lambda: next(batches)),
            "network, forward and backward": milliseconds(lambda: trainer.forward(inputs).float().sum().backward()),
            "objective, forward and backward": milliseconds(
                lambda: trainer.objective(outputs, batch.groups, batch.ignore).backward()
            ),
            "optimiser": milliseconds(trainer.optimiser.step),
        }
        batches = trainer.loader.batches(1)
        parts["whole step"] = milliseconds(lambda: trainer.step(next(batches), 0.1))
        busy = utilisation(lambda: trainer.step(next(batches), 0.1), 20)
    print(", ".join(f"{name} {value:.2f} ms" for name, value in parts.items()), f"; GPU busy {100 * busy:.0f} %")
    return {"milliseconds": parts, "fraction of the time that the GPU computes": busy}


def milliseconds(work: Callable[[], object], times: int = 20) -> float:
    """Return the mean wall time of calls queued one after the other."""
    for _ in range(5):
        work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start) / times


def utilisation(work: Callable[[], object], times: int) -> float:
    """Return the time that kernels run divided by the wall time."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        start = time.perf_counter()
        for _ in range(times):
            work()
        torch.cuda.synchronize()
        wall = time.perf_counter() - start
    return sum(event.self_device_time_total for event in profile.key_averages()) / 1e6 / wall


def large_batches(data: PatchSet) -> Measured:
    """Measure steps on batches of 65,536, 8,192 patches per forward pass."""
    recipe = Recipe(batch_size=65536, chunk=8192, augment=True)
    with tempfile.TemporaryDirectory() as folder:
        fabric = make_fabric(recipe, "cuda", 1)
        trainer = Trainer(recipe, data, Path(folder), fabric)
        trainer.network.train()
        batches = trainer.loader.batches(0)
        losses = [trainer.step(next(batches), 0.1)]
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        losses += [trainer.step(next(batches), 0.1) for _ in range(3)]
        values = torch.stack(losses).tolist()
        took = (time.perf_counter() - start) / 3
    memory = torch.cuda.max_memory_allocated() / 2**30
    print(f"batches of 65,536: {took:.2f} s per step, {65536 / took:,.0f} patches/s, {memory:.1f} GiB, losses {values}")
    return {"batch size": 65536, "chunk": 8192, "seconds per step": took, "GiB": memory, "losses": values}


def compare_with_plain_loop(data: PatchSet, steps: int) -> Measured:
    """Measure patches per second of `train` and of a plain loop with kornia's HardNet, on the same batches of 1,024."""
    plain = plain_loop(data, steps)
    ours = speed(Recipe(epochs=1), data, steps)
    compiled = speed(Recipe(epochs=1, compile=True), data, steps)
    print(f"plain loop with kornia's HardNet {plain:,.0f} patches/s")
    print(f"doap {ours:,.0f}: {ours / plain:.2f}x; compiled {compiled:,.0f}: {compiled / plain:.2f}x")
    return {
        "baseline": "plain PyTorch loop, kornia HardNet, same batches and objective",
        "batch size": 1024,
        "baseline, patches per second": plain,
        "doap": ours,
        "ratio": ours / plain,
        "doap, compiled": compiled,
        "ratio, compiled": compiled / plain,
    }


def plain_loop(data: PatchSet, steps: int) -> float:
    """Return the patches per second of a straightforward loop."""
    from kornia.feature import HardNet

    network = HardNet(pretrained=False).train()
    optimiser = torch.optim.SGD(network.parameters(), 0.1, 0.9, weight_decay=1e-4)
    objective = AveragePrecisionLoss("real")
    times = []
    for _, indices in zip(range(steps + 1), GroupSampler(data, 1024, 0).batches(0), strict=False):
        start = time.perf_counter()
        patches = torch.from_numpy(data.take(indices))[:, None].float() / 255
        loss = objective(network(patches), torch.from_numpy(data.groups[indices]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        times.append(time.perf_counter() - start)
    return 1024 / float(np.median(times[1:]))


def speed(recipe: Recipe, data: PatchSet, steps: int) -> float:
    """Return the patches per second of `train`, without the first steps."""
    speeds: list[float] = []

    def record(status: Status) -> None:
        if not status.preparation:
            speeds.append(status.speed)
        if len(speeds) > steps:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        train(recipe, data, Path(folder) / "run", progress=record)
    return float(np.median(speeds[2:]))


def main() -> None:
    """Run the benchmark, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--epochs", type=int, default=100, help="epochs on the set of Liberty's size, on a GPU")
    options = parser.parse_args()
    result: Measured = {}
    if options.device == "cpu":
        result["against a plain loop"] = compare_with_plain_loop(random_set(20_000), 10)
    else:
        data = random_set(LIBERTY)
        result["a step"] = step_parts(data)
        result["large batches"] = large_batches(data)
        result["Liberty's size"] = epochs(data, "cuda", options.epochs)
    write_result("training", options.device, result)


if __name__ == "__main__":
    main()
