"""Speed of describing, network beside network: patches a second, each as a ratio to DesDis-8 in the same run.

    python benchmarks/networks.py                   # on a CPU, all its cores
    python benchmarks/networks.py --threads 1       # on one core
    python benchmarks/networks.py --device cuda

Writes benchmarks/results/networks-<device>.json.

What is timed is `Descriptor`, from uint8 patches of 32x32 to unit vectors or bits: as `doap.load` gives it, in float32,
and in the mode of `networks.fast.fastest`. Networks take turns, so that a busy moment of the machine is nobody's, and
the ratio is the median over the rounds of the ratio within a round. Weights are random: they cost the same.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from doap.networks.architecture import Architecture, build
from doap.networks.baselines.desdis import DesDis
from doap.networks.baselines.tfeat import HardTFeat
from doap.networks.descriptor import Descriptor, batch_size
from doap.networks.fast import fastest
from doap.networks.network import PatchNetwork
from doap.types import Kind
from machine import write_result

PEER = "DesDis-8"
NETWORKS: dict[str, tuple[Kind, Callable[[], PatchNetwork]]] = {
    PEER: ("real", lambda: DesDis(8)),
    "DesDis-32": ("real", lambda: DesDis(32)),
    "HardTFeat": ("real", HardTFeat),
    "tiny, 128": ("real", lambda: build(Architecture(network="tiny"))),
    "tiny, 256 bits": ("binary", lambda: build(Architecture(network="tiny", dimensions=256))),
    "L2Net, 128": ("real", lambda: build(Architecture())),
    "L2Net, 256 bits": ("binary", lambda: build(Architecture(dimensions=256))),
}
Measured = dict[str, float]


def seconds(model: Descriptor, patches: torch.Tensor) -> float:
    """Wall time of describing all patches in batches, a GPU's work included."""
    start = time.perf_counter()
    for batch in torch.split(patches, batch_size(patches.device)):
        model(batch)
    if patches.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def take_turns(models: dict[str, Descriptor], patches: torch.Tensor, rounds: int) -> dict[str, Measured]:
    """Patches a second of each model, its best, and the median of its ratios to the peer."""
    with torch.inference_mode():
        for model in models.values():
            seconds(model, patches)
        times = {name: [0.0] * rounds for name in models}
        for number in range(rounds):
            for name, model in models.items():
                times[name][number] = seconds(model, patches)
    peer = np.array(times[PEER])
    return {
        name: {"patches a second": len(patches) / min(took), "ratio": float(np.median(peer / took))}
        for name, took in times.items()
    }


def main() -> None:
    """Run all, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, help="of the CPU; all by default")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--try", dest="trying", action="store_true", help="write nothing")
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    # A few batches on a CPU, where one is small; enough to keep a GPU busy for a while.
    count = 8 * batch_size(torch.device(chosen.device))
    patches = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, 32, 32), dtype=np.uint8))
    patches = patches.to(chosen.device)
    models = {
        name: Descriptor(make(), kind, 12.0, name).to(chosen.device).eval() for name, (kind, make) in NETWORKS.items()
    }
    modes = {
        "float32": take_turns(models, patches, chosen.rounds),
        "fastest": take_turns({name: fastest(model) for name, model in models.items()}, patches, chosen.rounds),
    }
    result = {}
    for name, model in models.items():
        parameters = sum(p.numel() for p in model.parameters())
        result[name] = {"parameters": parameters, **{mode: modes[mode][name] for mode in modes}}
        speeds = "; ".join(
            f"{mode} {found[name]['patches a second']:,.0f} patches/s, {found[name]['ratio']:.2f}x"
            for mode, found in modes.items()
        )
        print(f"{name}: {parameters:,} parameters; {speeds}")
    if not chosen.trying:
        write_result("networks", chosen.device, {"peer": PEER, "networks": result})


if __name__ == "__main__":
    main()
