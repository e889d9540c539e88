"""Speed of networks in patches per second, each as a ratio to kornia's HardNet in the same run.

    python benchmarks/networks.py                   # on a CPU, all its cores
    python benchmarks/networks.py --threads 1       # on one core
    python benchmarks/networks.py --device cuda

Writes benchmarks/results/networks-<device>.json.

HardNet has the architecture of L2Net. Without kornia there are no ratios. The timed function is `describe_patches`,
from uint8 patches of 32x32 to unit vectors or bits: with exact models, as returned by `doap.load(..., fast=False)`, and
fast ones, the default; from a NumPy array and, on a GPU, from a tensor on it. HardNet is called as kornia calls it, on
float32 tensors on the device, in the same batches. All are timed alternately, so that other load on the machine affects
all of them, and the ratio is the median over the rounds of the ratio within a round. Weights are random; they do not
affect the speed.

The share of the peak is the number of multiplications and additions per second, by that of the fastest of several large
matrix products in the dtype of the network.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from doap.choices import DEFAULT_EXTENT
from doap.networks.architecture import Architecture, build_network
from doap.networks.baselines.desdis import DesDis
from doap.networks.baselines.tfeat import HardTFeat
from doap.networks.descriptor import Descriptor, describe_patches, inference_batch_size
from doap.networks.inference import InferenceNetwork, optimize_for_inference
from doap.networks.network import PatchNetwork
from doap.types import Kind
from machine import write_result

BASELINE = "HardNet of kornia"
NETWORKS: dict[str, tuple[Kind, Callable[[], PatchNetwork]]] = {
    "L2Net, 128": ("real", lambda: build_network(Architecture())),
    "L2Net, 256 bits": ("binary", lambda: build_network(Architecture(dimensions=256))),
    "tiny, 128": ("real", lambda: build_network(Architecture(network="tiny"))),
    "tiny, 256 bits": ("binary", lambda: build_network(Architecture(network="tiny", dimensions=256))),
    "windows, 128": ("real", lambda: build_network(Architecture(network="windows"))),
    "windows, 256 bits": ("binary", lambda: build_network(Architecture(network="windows", dimensions=256))),
    "DesDis-8": ("real", lambda: DesDis(8)),
    "DesDis-32": ("real", lambda: DesDis(32)),
    "HardTFeat": ("real", HardTFeat),
}
MATRIX_SIDES = {"cpu": (512, 1024, 2048), "cuda": (8192,)}
Timed = Callable[[], object]


def build_hardnet() -> nn.Module:
    """Return kornia's HardNet with random weights."""
    from kornia.feature import HardNet

    return HardNet(pretrained=False).eval()


def measure(timed: dict[str, Timed], device: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each function per round, after a round of warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for number in range(rounds + 1):
        for name, function in timed.items():
            start = time.perf_counter()
            function()
            if device == "cuda":
                torch.cuda.synchronize()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def matrix_product_rate(dtype: torch.dtype, device: str) -> float:
    """Return the multiplications and additions per second of the fastest of several large matrix products."""
    rates = []
    for side in MATRIX_SIDES[device]:
        first, second = (torch.rand(side, side, device=device).to(dtype) for _ in range(2))
        seconds = measure({"product": partial(torch.matmul, first, second)}, device, 10)["product"]
        rates.append(2 * side**3 / min(seconds))
    return max(rates)


def count_operations(network: PatchNetwork) -> int:
    """Return the multiplications and additions of one patch."""
    device = next(network.parameters()).device
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.rand(1, 1, network.input_size, network.input_size, device=device))
    return int(counter.get_total_flops())


def time_hardnet(patches: Tensor, device: str) -> Timed:
    """Return a function that describes patches with HardNet on a device."""
    hardnet, inputs = build_hardnet().to(device), patches[:, None].float().to(device) / 255
    batches = torch.split(inputs, inference_batch_size(hardnet, torch.device(device)))

    def describe() -> None:
        with torch.inference_mode():
            for batch in batches:
                hardnet(batch)

    return describe


def main() -> None:
    """Measure all networks, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=list(MATRIX_SIDES))
    parser.add_argument("--threads", type=int, help="threads of the CPU; all by default")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--patches", type=int, help="number of patches; by default 1,024 on a CPU, 2^19 on a GPU")
    parser.add_argument("--try", dest="dry_run", action="store_true", help="write nothing")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = options.device
    count = options.patches or (1024 if device == "cpu" else 2**19)
    array = np.random.default_rng(0).integers(0, 256, (count, 32, 32), dtype=np.uint8)
    tensor = torch.from_numpy(array).to(device)
    sources = {"NumPy": array, **({"GPU": tensor} if device == "cuda" else {})}
    timed: dict[str, Timed] = {}
    if find_spec("kornia"):
        timed[BASELINE] = time_hardnet(torch.from_numpy(array), device)
    models: dict[str, Descriptor] = {}
    for name, (kind, build) in NETWORKS.items():
        exact = Descriptor(build(), kind, DEFAULT_EXTENT, name).to(device).eval()
        for mode, model in (("exact", exact), ("fast", optimize_for_inference(exact))):
            for source, patches in sources.items():
                key = f"{name}; {mode}; from {source}"
                models[key] = model
                timed[key] = lambda patches=patches, model=model: describe_patches(patches, model)  # type: ignore[misc]
    seconds = measure(timed, device, options.rounds)
    peaks = {dtype: matrix_product_rate(dtype, device) for dtype in (torch.float32, fast_dtype(models))}
    result = {}
    for name, times in seconds.items():
        row: dict[str, object] = {"patches per second": count / min(times)}
        if BASELINE in seconds:
            row["ratio"] = float(np.median(np.array(seconds[BASELINE]) / times))
        if name in models:
            network = models[name].network
            dtype = network.precision if isinstance(network, InferenceNetwork) else torch.float32
            # Fused layers are not counted, so the operations are those of the exact form.
            operations = count_operations(models[name.replace("; fast;", "; exact;")].network)
            share = count / min(times) * operations / peaks[dtype]
            row |= {"dtype": str(dtype).removeprefix("torch."), "share of the peak": share}
        result[name] = row
        print(name, {key: f"{value:.3g}" if isinstance(value, float) else value for key, value in row.items()})
    rates = {str(dtype).removeprefix("torch."): rate for dtype, rate in peaks.items()}
    if not options.dry_run:
        write_result("networks", device, {"baseline": BASELINE, "matrix product": rates, "networks": result})


def fast_dtype(models: dict[str, Descriptor]) -> torch.dtype:
    """Return the dtype of the fast models."""
    return next(m.network.precision for m in models.values() if isinstance(m.network, InferenceNetwork))


if __name__ == "__main__":
    main()
