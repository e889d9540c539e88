"""Speed of networks in patches per second, each as a ratio to DesDis-8 in the same run.

    python benchmarks/networks.py                   # on a CPU, all its cores
    python benchmarks/networks.py --threads 1       # on one core
    python benchmarks/networks.py --device cuda

Writes benchmarks/results/networks-<device>.json.

The timed function is `Descriptor`, from uint8 patches of 32x32 to unit vectors or bits: as returned by `doap.load`, in
float32, and after `optimize_for_inference`. The networks are timed alternately, so that other load on the machine
affects all of them, and the ratio is the median over the rounds of the ratio within a round. Weights are random; they
do not affect the speed.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from doap.networks.architecture import Architecture, build_network
from doap.networks.baselines.desdis import DesDis
from doap.networks.baselines.tfeat import HardTFeat
from doap.networks.descriptor import Descriptor, inference_batch_size
from doap.networks.inference import optimize_for_inference
from doap.networks.network import PatchNetwork
from doap.types import DEFAULT_EXTENT, Kind
from machine import write_result

BASELINE = "DesDis-8"
NETWORKS: dict[str, tuple[Kind, Callable[[], PatchNetwork]]] = {
    BASELINE: ("real", lambda: DesDis(8)),
    "DesDis-32": ("real", lambda: DesDis(32)),
    "HardTFeat": ("real", HardTFeat),
    "tiny, 128": ("real", lambda: build_network(Architecture(network="tiny"))),
    "tiny, 256 bits": ("binary", lambda: build_network(Architecture(network="tiny", dimensions=256))),
    "L2Net, 128": ("real", lambda: build_network(Architecture())),
    "L2Net, 256 bits": ("binary", lambda: build_network(Architecture(dimensions=256))),
}
Speed = dict[str, float]


def time_batches(model: Descriptor, patches: torch.Tensor) -> float:
    """Return the wall time of describing all patches in batches, including the work of the GPU."""
    start = time.perf_counter()
    for batch in torch.split(patches, inference_batch_size(patches.device)):
        model(batch)
    if patches.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure_speeds(models: dict[str, Descriptor], patches: torch.Tensor, rounds: int) -> dict[str, Speed]:
    """Return the best patches per second of each model, and the median of its ratios to the baseline."""
    with torch.inference_mode():
        for model in models.values():
            time_batches(model, patches)  # warm-up
        seconds = {name: [0.0] * rounds for name in models}
        for number in range(rounds):
            for name, model in models.items():
                seconds[name][number] = time_batches(model, patches)
    baseline = np.array(seconds[BASELINE])
    return {
        name: {"patches per second": len(patches) / min(times), "ratio": float(np.median(baseline / times))}
        for name, times in seconds.items()
    }


def main() -> None:
    """Measure all networks, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, help="threads of the CPU; all by default")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--try", dest="dry_run", action="store_true", help="write nothing")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    # A few small batches on a CPU, enough work for a GPU.
    count = 8 * inference_batch_size(torch.device(options.device))
    patches = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, 32, 32), dtype=np.uint8))
    patches = patches.to(options.device)
    models = {
        name: Descriptor(build(), kind, DEFAULT_EXTENT, name).to(options.device).eval()
        for name, (kind, build) in NETWORKS.items()
    }
    optimised = {name: optimize_for_inference(model) for name, model in models.items()}
    modes = {
        "float32": measure_speeds(models, patches, options.rounds),
        "optimised": measure_speeds(optimised, patches, options.rounds),
    }
    result = {}
    for name, model in models.items():
        parameters = sum(p.numel() for p in model.parameters())
        result[name] = {"parameters": parameters, **{mode: speeds[name] for mode, speeds in modes.items()}}
        summary = "; ".join(
            f"{mode} {speeds[name]['patches per second']:,.0f} patches/s, {speeds[name]['ratio']:.2f}x"
            for mode, speeds in modes.items()
        )
        print(f"{name}: {parameters:,} parameters; {summary}")
    if not options.dry_run:
        write_result("networks", options.device, {"baseline": BASELINE, "networks": result})


if __name__ == "__main__":
    main()
