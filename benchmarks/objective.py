"""Time and memory of the objective and other implementations, forward and backward, against M and b.

    python benchmarks/objective.py                  on the GPU if there is one, else on the CPU
    python benchmarks/objective.py --device cpu --sizes 1024 4096 --bins 10 25 200

Writes benchmarks/results/objective-<device>.json and docs/images/objective-<device>.png.

CPU cases run in one process each; their memory is the growth of its peak resident size. On a GPU it is the growth of
the peak of allocated memory. Times are medians after a warm-up. On a GPU they are device times, with the work queued
behind a pause, as it is queued behind the network in training. "alone" is the wall time of a step on an idle GPU, which
includes launching each kernel from Python.
"""

import argparse
import json
import multiprocessing
import os
import re
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doap.networks.l2net import L2Net
from doap.objectives import AveragePrecisionLoss, NestedLoss
from doap.objectives.average_precision import dense_histograms, relaxed_average_precision, relaxed_descriptors
from machine import device_name, file_name, write_result

ROOT = Path(__file__).parent.parent
DIMENSIONS = 128
PREFIXES = (32, 64)  # of the nested objective
GROUP_SIZE = 4
STANDARD_BINS = 25
BINS_SWEEP_SIZE = 8192
MAX_STEP_SECONDS = 60  # slower cases, estimated from the last size, are skipped
PAUSE_CYCLES = 20_000_000  # GPU cycles, about 10 ms
Row = dict[str, Any]
Loss = Callable[[Tensor, Tensor], Tensor]


def naive(bins: int) -> Loss:
    """Return the formula as an M x M x (b + 1) tensor, one kernel value per pair and bin, as in FastAP's code."""

    def loss(outputs: Tensor, groups: Tensor) -> Tensor:
        unit = relaxed_descriptors(outputs, "real")
        distances = (2 - 2 * unit @ unit.T).clamp(1e-6, 4).sqrt()
        centres = torch.linspace(0, 2, bins + 1, device=outputs.device)
        kernel = (1 - (distances[..., None] - centres).abs() * bins / 2).relu()
        others = ~torch.eye(len(groups), dtype=torch.bool, device=groups.device)
        matches = (groups[:, None] == groups[None]) & others
        match_histograms, histograms = ((kernel * mask[..., None]).sum(1) for mask in (matches, others))
        return 1 - relaxed_average_precision(match_histograms, histograms).mean()

    return loss


def scatter(bins: int) -> Loss:
    """Return the formula with two scatter-adds per distance in plain PyTorch, over M x M tensors."""

    def loss(outputs: Tensor, groups: Tensor) -> Tensor:
        matches, ranked = dense_histograms(relaxed_descriptors(outputs, "real"), groups, "real", bins)
        return 1 - relaxed_average_precision(matches, ranked).mean()

    return loss


def metric_learning(bins: int) -> Loss:
    """Return FastAPLoss of pytorch-metric-learning with the same number of bins."""
    from pytorch_metric_learning.losses import FastAPLoss

    loss: Loss = FastAPLoss(num_bins=bins)
    return loss


OBJECTIVES: dict[str, Callable[[int], Loss]] = {
    "fused": lambda bins: AveragePrecisionLoss("real", bins),
    "nested": lambda bins: NestedLoss(dict.fromkeys((*PREFIXES, DIMENSIONS), AveragePrecisionLoss("real", bins))),
    "scatter": scatter,
    "naive": naive,
    "pytorch-metric-learning": metric_learning,
}


def bytes_needed(name: str, size: int, bins: int) -> float:
    """Return the approximate memory of a case, to skip those that do not fit."""
    bins_tensors = {"naive": 4 * (bins + 1), "pytorch-metric-learning": 6 * (bins + 1)}
    tensors = {"fused": 0, "nested": 0, "scatter": 12, **bins_tensors}
    return 4.0 * tensors[name] * size * size


def seconds(step: Callable[[], None], device: str) -> float:
    """Return the median time of a warmed-up step, of at least three and up to fifty within two seconds."""
    times: list[float] = []
    first_start = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - first_start < 2 and len(times) < 50):
        if device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(PAUSE_CYCLES)
            start.record()
            step()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1000)
        else:
            start_time = time.perf_counter()
            step()
            times.append(time.perf_counter() - start_time)
    return statistics.median(times)


def seconds_alone(step: Callable[[], None]) -> float:
    """Return the median wall time of a step on an idle GPU."""
    times = []
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def resident(field: str) -> int:
    """Return the resident memory of this process in bytes: VmRSS, current, or VmHWM, peak."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.findall(rf"{field}:\s+(\d+)", status)[0])


def measure(name: str, size: int, bins: int, device: str) -> Row:
    """Measure time and memory of one case."""
    torch.manual_seed(0)
    outputs = torch.randn(size, DIMENSIONS, device=device, requires_grad=True)
    groups = torch.arange(size) // GROUP_SIZE  # on the CPU, as from samplers
    if name not in ("fused", "nested"):
        groups = groups.to(device)
    loss = OBJECTIVES[name](bins)

    def step() -> None:
        outputs.grad = None
        loss(outputs, groups).backward()

    loss(outputs[:64], groups[:64]).backward()  # one-time loading and allocation
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        memory = torch.cuda.max_memory_allocated() - before
    else:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = resident("VmRSS")
        step()
        memory = resident("VmHWM") - before
    row = {"objective": name, "M": size, "bins": bins, "milliseconds": 1000 * seconds(step, device)}
    if device == "cuda":
        row["alone"] = 1000 * seconds_alone(step)
    return {**row, "megabytes": memory / 2**20}


def attempt(name: str, size: int, bins: int, device: str) -> Row:
    """Measure a case, on the CPU in its own process; the row has "failed" if it does not fit."""
    failed = {"objective": name, "M": size, "bins": bins, "failed": "out of memory"}
    if device == "cuda":
        torch.cuda.empty_cache()
        try:
            return measure(name, size, bins, device)
        except torch.OutOfMemoryError:
            return failed
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(measure, name, size, bins, device).result()
        except BrokenProcessPool:
            return failed


def training_step(size: int, loss: Loss | None) -> float:
    """Return the milliseconds of forward and backward of L2Net (bf16, channels-last), with or without a loss."""
    network = L2Net().cuda().to(memory_format=torch.channels_last)
    patches = (torch.rand(size, 1, 32, 32, device="cuda") * 255).to(memory_format=torch.channels_last)
    groups = torch.arange(size) // GROUP_SIZE

    def step() -> None:
        network.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            outputs = network(patches)
        if loss is None:
            outputs.backward(torch.ones_like(outputs))
        else:
            loss(outputs, groups).backward()

    step()
    return 1000 * seconds(step, "cuda")


def run(device: str, sizes: list[int], bins: list[int]) -> list[Row]:
    """Measure all cases and print each."""
    if device == "cuda":
        memory_limit = 0.9 * torch.cuda.get_device_properties(0).total_memory
    else:
        memory_limit = 0.6 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    names = list(OBJECTIVES)
    if find_spec("pytorch_metric_learning") is None:
        print("pytorch-metric-learning is not installed; skipped (the naive form works the same way)")
        names.remove("pytorch-metric-learning")
    cases = [(name, size, STANDARD_BINS) for size in sizes for name in names]
    cases += [case for b in bins if (case := ("fused", BINS_SWEEP_SIZE, b)) not in cases]
    rows: list[Row] = []
    for name, size, b in cases:
        estimates = [
            row["milliseconds"] * (size / row["M"]) ** 2
            for row in rows
            if row["objective"] == name and "milliseconds" in row
        ]
        is_too_slow = bool(estimates) and estimates[-1] > 1000 * MAX_STEP_SECONDS
        if name != "fused" and (is_too_slow or bytes_needed(name, size, b) > memory_limit):
            print(f"{name:>24}  M = {size:>6}  b = {b:>3}  skipped: too large or too slow here")
            continue
        row = attempt(name, size, b, device)
        rows.append(row)
        result = row.get("failed") or f"{row['milliseconds']:10.2f} ms {row['megabytes']:10.1f} MB"
        if "alone" in row:
            result += f"  alone {row['alone']:10.2f} ms"
        print(f"{name:>24}  M = {size:>6}  b = {b:>3}  {result}", flush=True)
    if device == "cuda":
        losses = {f"L2Net step, {name}": OBJECTIVES[name](STANDARD_BINS) for name in ("fused", "nested")}
        for label, loss in {"L2Net step": None, **losses}.items():
            rows.append({"objective": label, "M": 4096, "milliseconds": training_step(4096, loss)})
            print(f"{label:>24}  M = {4096:>6}  {rows[-1]['milliseconds']:18.2f} ms")
    return rows


def compare(rows: list[Row]) -> Row:
    """Return the costs of the other implementations relative to the fused objective, at equal M and b."""
    measured = {(row["objective"], row["M"], row.get("bins")): row for row in rows if "milliseconds" in row}
    ratios: Row = {}
    for (name, size, b), row in measured.items():
        fused = measured.get(("fused", size, b))
        if name in OBJECTIVES and name != "fused" and fused:
            ratios[f"{name} / fused at M = {size}"] = {
                "time": round(row["milliseconds"] / fused["milliseconds"], 2),
                "memory": round(row["megabytes"] / max(fused["megabytes"], 1), 1),
            }
    few, many = (measured.get(("fused", BINS_SWEEP_SIZE, b)) for b in (10, 200))
    if few and many:
        ratios["b = 200 / b = 10"] = round(many["milliseconds"] / few["milliseconds"], 2)
    without, whole = (measured.get((label, 4096, None)) for label in ("L2Net step", "L2Net step, fused"))
    if without and whole:
        share = 1 - without["milliseconds"] / whole["milliseconds"]
        ratios["share of the objective in the L2Net step at M = 4096"] = round(share, 3)
    nested = measured.get(("L2Net step, nested", 4096, None))
    if whole and nested:
        ratios["L2Net step, nested / fused at M = 4096"] = round(nested["milliseconds"] / whole["milliseconds"], 3)
    return ratios


def draw(rows: list[Row], device: str, path: Path) -> None:
    """Plot time and memory of all implementations against M, and time of the fused objective against b."""
    import matplotlib.pyplot as plt

    figure, (times, memory, by_bins) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    measured = [row for row in rows if "milliseconds" in row]
    for name in OBJECTIVES:
        points = [row for row in measured if row["objective"] == name and row["bins"] == STANDARD_BINS]
        points.sort(key=lambda row: row["M"])
        for axes, quantity in ((times, "milliseconds"), (memory, "megabytes")):
            axes.plot([row["M"] for row in points], [row[quantity] for row in points], "o-", label=name)
            axes.set(yscale="log", xlabel="M, the length of the list", ylabel=quantity)
            axes.set_xscale("log", base=2)
    sweep = sorted(
        (row["bins"], row["milliseconds"])
        for row in measured
        if row["M"] == BINS_SWEEP_SIZE and row["objective"] == "fused"
    )
    by_bins.plot(*zip(*sweep, strict=True), "o-")
    by_bins.set(xlabel=f"b, bins, at M = {BINS_SWEEP_SIZE}", ylabel="milliseconds", ylim=(0, None))
    times.legend()
    figure.suptitle(f"Forward and backward, {DIMENSIONS} dimensions, b = {STANDARD_BINS}: {device}")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run all cases, compare them, and write results and figure."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if cuda else "cpu")
    parser.add_argument("--sizes", type=int, nargs="+", help="lengths M of the list")
    parser.add_argument("--bins", type=int, nargs="+", default=[10, 25, 50, 100, 200], help="numbers b of bins")
    options = parser.parse_args()
    largest_power = 18 if options.device == "cuda" else 13
    sizes = options.sizes or [2**power for power in range(10, largest_power + 1)]
    name = device_name(options.device)
    print(name)
    rows = run(options.device, sizes, options.bins)
    ratios = compare(rows)
    write_result("objective", options.device, {"dimensions": DIMENSIONS, "ratios": ratios, "rows": rows})
    draw(rows, name, ROOT / "docs" / "images" / file_name("objective", name, ".png"))
    print(json.dumps(ratios, indent=1))


if __name__ == "__main__":
    main()
