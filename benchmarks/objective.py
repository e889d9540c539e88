"""What the objective costs, forward and backward, beside its peers: time and memory against M and b, in one run.

    python benchmarks/objective.py                  on the GPU if there is one, else on the CPU
    python benchmarks/objective.py --device cpu --sizes 1024 4096 --bins 10 25 200

Writes benchmarks/results/objective-<device>.json and docs/images/objective-<device>.png.

CPU cases run one to a process: their memory is the growth of its peak resident size. On a GPU it is the
growth of the peak of allocated memory. Times are medians after a warm-up; on a GPU they are the device's own, the
work queued behind a pause, as it is queued behind the network's in training. "alone" is the wall time of a step
that finds the GPU idle, and waits for Python to launch each kernel.
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
from doap.objectives import AveragePrecisionLoss
from doap.objectives.average_precision import dense_histograms, relaxed_average_precision, relaxed_descriptors
from machine import device_name, file_name, write_result

ROOT = Path(__file__).parent.parent
DIMENSIONS = 128
GROUP = 4
STANDARD_BINS = 25
BINS_SWEEP_SIZE = 8192
LONGEST_STEP = 60  # seconds; a peer that would take longer, judged by its last size, is left out
HEAD_START = 20_000_000  # GPU cycles, some 10 ms
Row = dict[str, Any]
Loss = Callable[[Tensor, Tensor], Tensor]


def naive(bins: int) -> Loss:
    """The formula as it stands, one kernel a pair and a bin: an M x M x (b + 1) tensor, as FastAP's code has it."""

    def loss(outputs: Tensor, groups: Tensor) -> Tensor:
        unit = relaxed_descriptors(outputs, "real")
        distances = (2 - 2 * unit @ unit.T).clamp(1e-6, 4).sqrt()
        centres = torch.linspace(0, 2, bins + 1, device=outputs.device)
        kernel = (1 - (distances[..., None] - centres).abs() * bins / 2).relu()
        others = ~torch.eye(len(groups), dtype=torch.bool, device=groups.device)
        matches = (groups[:, None] == groups[None]) & others
        histograms = ((kernel * chosen[..., None]).sum(1) for chosen in (matches, others))
        return 1 - relaxed_average_precision(*histograms).mean()

    return loss


def scatter(bins: int) -> Loss:
    """Two scatter-adds a distance in plain PyTorch, over M x M tensors."""

    def loss(outputs: Tensor, groups: Tensor) -> Tensor:
        return (
            1
            - relaxed_average_precision(
                *dense_histograms(relaxed_descriptors(outputs, "real"), groups, "real", bins)
            ).mean()
        )

    return loss


def metric_learning(bins: int) -> Loss:
    """FastAPLoss of pytorch-metric-learning, same bins."""
    from pytorch_metric_learning.losses import FastAPLoss

    loss: Loss = FastAPLoss(num_bins=bins)
    return loss


OBJECTIVES: dict[str, Callable[[int], Loss]] = {
    "fused": lambda bins: AveragePrecisionLoss("real", bins),
    "scatter": scatter,
    "naive": naive,
    "pytorch-metric-learning": metric_learning,
}


def bytes_needed(name: str, size: int, bins: int) -> float:
    """Roughly what a case holds at once, to leave out what would not fit."""
    tensors = {"fused": 0, "scatter": 12, "naive": 4 * (bins + 1), "pytorch-metric-learning": 6 * (bins + 1)}
    return 4.0 * tensors[name] * size * size


def seconds(step: Callable[[], None], device: str) -> float:
    """Median time of a step that is warm already: of three at least, and as many as two seconds allow."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - began < 2 and len(times) < 50):
        if device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(HEAD_START)
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
    """Median wall time of a step on an idle GPU."""
    times = []
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def resident(field: str) -> int:
    """Bytes of this process's memory: VmRSS now, VmHWM at its peak."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.findall(rf"{field}:\s+(\d+)", status)[0])


def measure(name: str, size: int, bins: int, device: str) -> Row:
    """Time and memory of one case."""
    torch.manual_seed(0)
    outputs = torch.randn(size, DIMENSIONS, device=device, requires_grad=True)
    groups = torch.arange(size) // GROUP  # on the CPU, where samplers make them
    if name != "fused":
        groups = groups.to(device)
    loss = OBJECTIVES[name](bins)

    def step() -> None:
        outputs.grad = None
        loss(outputs, groups).backward()

    loss(outputs[:64], groups[:64]).backward()  # what is loaded and allocated once
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        memory = torch.cuda.max_memory_allocated() - before
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = resident("VmRSS")
        step()
        memory = resident("VmHWM") - before
    row = {"objective": name, "M": size, "bins": bins, "milliseconds": 1000 * seconds(step, device)}
    if device == "cuda":
        row["alone"] = 1000 * seconds_alone(step)
    return {**row, "megabytes": memory / 2**20}


def attempt(name: str, size: int, bins: int, device: str) -> Row:
    """A case, in a process of its own on the CPU; says why when it does not fit."""
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
    """Milliseconds of forward and backward of L2Net, bf16 and channels-last, with the objective or without."""
    network = L2Net().cuda().to(memory_format=torch.channels_last)
    patches = (torch.rand(size, 1, 32, 32, device="cuda") * 255).to(memory_format=torch.channels_last)
    groups = torch.arange(size) // GROUP

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
    """All cases, each printed as it comes."""
    if device == "cuda":
        room = 0.9 * torch.cuda.get_device_properties(0).total_memory
    else:
        room = 0.6 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    names = list(OBJECTIVES)
    if find_spec("pytorch_metric_learning") is None:
        print("pytorch-metric-learning is not installed: the naive form, which it also uses, stands in for it")
        names.remove("pytorch-metric-learning")
    cases = [(name, size, STANDARD_BINS) for size in sizes for name in names]
    cases += [case for b in bins if (case := ("fused", BINS_SWEEP_SIZE, b)) not in cases]
    rows: list[Row] = []
    for name, size, b in cases:
        known = [
            row["milliseconds"] * (size / row["M"]) ** 2
            for row in rows
            if row["objective"] == name and "milliseconds" in row
        ]
        if name != "fused" and (bytes_needed(name, size, b) > room or (known and known[-1] > 1000 * LONGEST_STEP)):
            print(f"{name:>24}  M = {size:>6}  b = {b:>3}  left out: too large or too slow here")
            continue
        row = attempt(name, size, b, device)
        rows.append(row)
        result = row.get("failed") or f"{row['milliseconds']:10.2f} ms {row['megabytes']:10.1f} MB"
        if "alone" in row:
            result += f"  alone {row['alone']:10.2f} ms"
        print(f"{name:>24}  M = {size:>6}  b = {b:>3}  {result}", flush=True)
    if device == "cuda":
        for label, loss in (("L2Net step", None), ("L2Net step, fused", OBJECTIVES["fused"](STANDARD_BINS))):
            rows.append({"objective": label, "M": 4096, "milliseconds": training_step(4096, loss)})
            print(f"{label:>24}  M = {4096:>6}  {rows[-1]['milliseconds']:18.2f} ms")
    return rows


def compare(rows: list[Row]) -> Row:
    """How many times the peers' cost is that of the fused objective, at equal M and b."""
    done = {(row["objective"], row["M"], row.get("bins")): row for row in rows if "milliseconds" in row}
    ratios: Row = {}
    for (name, size, b), row in done.items():
        ours = done.get(("fused", size, b))
        if name in OBJECTIVES and name != "fused" and ours:
            ratios[f"{name} / fused at M = {size}"] = {
                "time": round(row["milliseconds"] / ours["milliseconds"], 1),
                "memory": round(row["megabytes"] / max(ours["megabytes"], 1), 1),
            }
    few, many = (done.get(("fused", BINS_SWEEP_SIZE, b)) for b in (10, 200))
    if few and many:
        ratios["b = 200 / b = 10"] = round(many["milliseconds"] / few["milliseconds"], 2)
    without, whole = (done.get((label, 4096, None)) for label in ("L2Net step", "L2Net step, fused"))
    if without and whole:
        share = 1 - without["milliseconds"] / whole["milliseconds"]
        ratios["share of the objective in the L2Net step at M = 4096"] = round(share, 3)
    return ratios


def draw(rows: list[Row], device: str, path: Path) -> None:
    """Time and memory against M with the peers on the same axes, and time against b."""
    import matplotlib.pyplot as plt

    figure, (times, memory, by_bins) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    done = [row for row in rows if "milliseconds" in row]
    for name in OBJECTIVES:
        points = [row for row in done if row["objective"] == name and row["bins"] == STANDARD_BINS]
        points.sort(key=lambda row: row["M"])
        for axes, what in ((times, "milliseconds"), (memory, "megabytes")):
            axes.plot([row["M"] for row in points], [row[what] for row in points], "o-", label=name)
            axes.set(yscale="log", xlabel="M, the length of the list", ylabel=what)
            axes.set_xscale("log", base=2)
    sweep = sorted(
        (row["bins"], row["milliseconds"])
        for row in done
        if row["M"] == BINS_SWEEP_SIZE and row["objective"] == "fused"
    )
    by_bins.plot(*zip(*sweep, strict=True), "o-")
    by_bins.set(xlabel=f"b, bins, at M = {BINS_SWEEP_SIZE}", ylabel="milliseconds", ylim=(0, None))
    times.legend()
    figure.suptitle(f"Forward and backward, {DIMENSIONS} dimensions, b = {STANDARD_BINS}: {device}")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run, compare, write."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if cuda else "cpu")
    parser.add_argument("--sizes", type=int, nargs="+", help="lengths M of the list")
    parser.add_argument("--bins", type=int, nargs="+", default=[10, 25, 50, 100, 200], help="numbers b of bins")
    options = parser.parse_args()
    most = 18 if options.device == "cuda" else 13
    sizes = options.sizes or [2**power for power in range(10, most + 1)]
    name = device_name(options.device)
    print(name)
    rows = run(options.device, sizes, options.bins)
    ratios = compare(rows)
    write_result("objective", options.device, {"dimensions": DIMENSIONS, "ratios": ratios, "rows": rows})
    draw(rows, name, ROOT / "docs" / "images" / file_name("objective", name, ".png"))
    print(json.dumps(ratios, indent=1))


if __name__ == "__main__":
    main()
