"""Speed and memory of evaluation on HPatches at the official size, and of description; each relative to a baseline.

    python benchmarks/evaluation.py                   # on a CPU
    python benchmarks/evaluation.py --device cuda
    python benchmarks/evaluation.py --patches DIR     # also compare inference mode with float32 on real patches
    python benchmarks/evaluation.py --try --sequences 4 --rows 100     # small, and writes nothing

Writes benchmarks/results/evaluation-<device>.json.

- The three tasks on a million random descriptors, 40 sequences of 1,560 rows, 128-d vectors and 256 bits. Baseline: the
  official arithmetic, implemented plainly on the CPU (scipy's distance for each pair; scipy's table of distances, a
  stable sort and trapezoids for each list), timed on a small share of the work and scaled up.
- Description of 65x65 patches in inference mode. Baseline: the same model in float32, as `doap.load` returns it.
"""

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, euclidean

import doap
from doap.datasets.official.hpatches import NOISES, STRIPS
from doap.datasets.official.hpatches_tasks import find_patches, sequence_blocks
from doap.datasets.sets.patch_set import PatchSet
from doap.evaluation.hpatches.distances import to_device
from doap.evaluation.hpatches.lists import RetrievalLists, VerificationLists, sample_pairs, sample_queries
from doap.evaluation.hpatches.matching import matching
from doap.evaluation.hpatches.retrieval import pools_of, retrieval
from doap.evaluation.hpatches.task_data import open_tasks
from doap.evaluation.hpatches.verification import verification
from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import Descriptor
from doap.networks.inference import optimize_for_inference
from doap.types import Descriptors
from machine import write_result

SHARE = 200  # the baseline runs on one in so many pairs and queries
Measured = dict[str, float]


def seconds(work: Callable[[], object], device: str) -> float:
    """Return the wall time of some work, including the GPU's."""
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_memory(device: str) -> float:
    """Return the peak memory so far in GB: of the process, or on the GPU."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def official_size_set(sequences: int, rows: int) -> PatchSet:
    """Return a set with as many patches as a split; the pixels, which are not used, are 2x2."""
    names = [f"{'iv'[number % 2]}_{number}" for number in range(sequences)]
    count = len(STRIPS) * rows
    pixels = np.random.default_rng(0).integers(0, 256, (sequences * count, 2, 2), dtype=np.uint8)
    groups = np.concatenate([rows * number + np.tile(np.arange(rows), len(STRIPS)) for number in range(sequences)])
    return PatchSet([pixels], groups, np.repeat(np.arange(sequences), count), sequence_names=names)


def random_descriptors(kind: str, count: int) -> Descriptors:
    """Return 128-d unit vectors, or 256 bits."""
    random = np.random.default_rng(1)
    if kind == "bits":
        return random.integers(0, 256, (count, 32), dtype=np.uint8)
    vectors = random.standard_normal((count, 128), dtype=np.float32)
    normalised: Descriptors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return normalised


def plain_precision(distances: NDArray[np.float64], relevant: NDArray[np.bool_], positives: int) -> float:
    """Compute the area under the precision-recall curve as the official code does."""
    count = np.concatenate(([0], np.cumsum(relevant[np.argsort(distances, kind="stable")])))
    precision = np.concatenate(([1.0], count[1:] / np.arange(1, len(count))))
    recall = count / positives
    return float(((recall[1:] - recall[:-1]) * (precision[1:] + precision[:-1]) / 2).sum())


def plain_verification(codes: Descriptors, patches: PatchSet, lists: VerificationLists) -> None:
    """Compute the distance of each pair, one after the other; the sorts are left out."""
    for noise in NOISES[1:]:
        for pairs in (lists.positives, *lists.negatives.values()):
            first, second = (find_patches(patches, locations, noise)[::SHARE] for locations in pairs)
            for a, b in zip(first, second, strict=True):
                euclidean(codes[a], codes[b])


def plain_matching(codes: Descriptors, patches: PatchSet) -> None:
    """Match the images of the first sequence."""
    _, rows = next(iter(sequence_blocks(patches).values()))
    reference, *others = codes[: len(STRIPS) * rows].reshape(len(STRIPS), rows, -1)
    for other in others:
        table = cdist(reference, other)
        nearest = table.argmin(1)
        plain_precision(table[np.arange(rows), nearest], nearest == np.arange(rows), rows)


def plain_retrieval(codes: Descriptors, patches: PatchSet, lists: RetrievalLists) -> None:
    """Rank the lists of some queries; one sorted list per noise and pool."""
    queries, distractors = (find_patches(patches, listed, "easy") for listed in (lists.queries, lists.distractors))
    table = cdist(codes[queries[::SHARE]], codes[distractors])
    for number, query in enumerate(queries[::SHARE]):
        others = table[number][lists.distractors.sequences != lists.queries.sequences[number * SHARE]]
        for _ in NOISES[1:]:
            copies = [cdist(codes[query][None], codes[query][None])[0, 0] for _ in range(5)]
            distances = np.concatenate((copies, others))
            for pool in pools_of(len(distractors)):
                plain_precision(distances[:pool], np.arange(min(pool, len(distances))) < 5, 5)


def measure_tasks(kind: str, patches: PatchSet, device: str) -> dict[str, Measured]:
    """Time the three tasks and their baselines."""
    descriptors = random_descriptors(kind, len(patches))
    pairs, searches = sample_pairs(patches, 0), sample_queries(patches, 0)
    assert pairs
    assert searches
    codes = to_device(descriptors, device)
    plain = np.unpackbits(descriptors, axis=1).astype(np.float32) if kind == "bits" else descriptors
    tasks: dict[str, tuple[Callable[[], object], Callable[[], object], int]] = {
        "verification": (
            partial(verification, codes, patches, pairs),
            partial(plain_verification, plain, patches, pairs),
            SHARE,
        ),
        "matching": (
            partial(matching, codes, patches),
            partial(plain_matching, plain, patches),
            len(sequence_blocks(patches)),
        ),
        "retrieval": (
            partial(retrieval, codes, patches, searches),
            partial(plain_retrieval, plain, patches, searches),
            SHARE,
        ),
    }
    measured: dict[str, Measured] = {}
    for task, (ours, baseline, share) in tasks.items():
        fast = seconds(ours, device)
        peak = peak_memory(device)
        slow = share * seconds(baseline, "cpu")
        print(f"  {task}: doap {fast:.1f} s, official arithmetic {slow:.0f} s: {slow / fast:.0f}x", flush=True)
        measured[task] = {"doap": fast, "official arithmetic": slow, "ratio": slow / fast, "peak GB": peak}
    total = sum(task["doap"] for task in measured.values())
    print(f"  all three: {total:.1f} s, peak {peak_memory(device):.1f} GB", flush=True)
    return {**measured, "all": {"doap": total, "patches": len(patches), "pairs": 3 * len(pairs.positives[0])}}


def measure_description(device: str) -> Measured:
    """Time L2Net on patches of 65x65, in inference mode and as it is loaded."""
    count = 200_000 if device == "cuda" else 4096
    patches = np.random.default_rng(0).integers(0, 256, (count, 65, 65), dtype=np.uint8)
    plain = Descriptor(build_network(Architecture()), "real", 12.0, "L2Net").to(device).eval()
    speed = {}
    for name, model in (("doap", optimize_for_inference(plain)), ("float32", plain)):
        doap.describe_patches(patches[: count // 8], model)
        describe = partial(doap.describe_patches, patches, model)
        speed[name] = count / min(seconds(describe, device) for _ in range(3))
    ratio = speed["doap"] / speed["float32"]
    print(f"  doap {speed['doap']:,.0f} patches/s, float32 {speed['float32']:,.0f} patches/s: {ratio:.1f}x", flush=True)
    return {**{f"{name}, patches per second": value for name, value in speed.items()}, "ratio": ratio}


def compare_modes(folder: Path, names: list[str], device: str) -> dict[str, Measured]:
    """Compute the matching mAP on real patches in inference mode and in float32; they differ by at most 0.1."""
    data = open_tasks(folder, tasks=["matching"])
    patches = data.patches.take(np.arange(len(data.patches)))
    measured: dict[str, Measured] = {}
    for name in names:
        model = doap.load(name, device)
        maps = {}
        for mode, variant in (("inference mode", optimize_for_inference(model)), ("float32", model)):
            codes = to_device(doap.describe_patches(patches, variant), device)
            scores = [score for score in matching(codes, data.patches) if score["rule"] == "tie-aware"]
            maps[mode] = float(np.mean([float(score["value"] or 0) for score in scores]))
        difference = abs(maps["inference mode"] - maps["float32"])
        print(f"  {model.name}: {maps['inference mode']:.2f} in inference mode, {maps['float32']:.2f} in float32")
        assert difference <= 0.1, f"{model.name}: inference mode changes mAP by {difference:.2f}"
        measured[model.name] = {f"{mode}, matching mAP %": value for mode, value in maps.items()}
    return measured


def main() -> None:
    """Run all measurements, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sequences", type=int, default=40)
    parser.add_argument("--rows", type=int, default=1560)
    parser.add_argument("--patches", type=Path, help="HPatches folder on which to compare inference mode with float32")
    parser.add_argument("--models", nargs="+", default=doap.list_models(), help="models to compare on these patches")
    parser.add_argument("--try", dest="trial", action="store_true", help="write nothing")
    options = parser.parse_args()
    result: dict[str, object] = {}
    patches = official_size_set(options.sequences, options.rows)
    for kind, label in (("vectors", "128-d vectors"), ("bits", "256 bits")):
        print(f"evaluating {len(patches):,} {label}", flush=True)
        result[f"evaluating {label}"] = measure_tasks(kind, patches, options.device)
    print("describing with L2Net", flush=True)
    result["describing"] = measure_description(options.device)
    if options.patches:
        print(f"inference mode and float32 on {options.patches.name}", flush=True)
        result["inference mode"] = compare_modes(options.patches, options.models, options.device)
    if not options.trial:
        write_result("evaluation", options.device, result)


if __name__ == "__main__":
    main()
