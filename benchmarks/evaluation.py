"""Speed and memory of judging on HPatches at the official size, and of describing; each as a ratio to a named peer.

    python benchmarks/evaluation.py                   # on a CPU
    python benchmarks/evaluation.py --device cuda
    python benchmarks/evaluation.py --patches DIR     # and whether the fastest mode changes mAP on an HPatches folder
    python benchmarks/evaluation.py --try --sequences 4 --rows 100     # small, and nothing is written

Writes benchmarks/results/evaluation-<device>.json.

- The three tasks on a million random descriptors, 40 sequences of 1,560 rows, 128-d vectors and 256 bits: the official
  arithmetic, rebuilt plainly on the CPU (a distance by scipy for each pair; scipy's table of distances, and a stable
  sort and trapezoids for each list) and timed on a small part: its time is for as much of the work as the part is.
- Describing patches of 65x65: the same model in float32, as `doap.load` gives it.
"""

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.distance import cdist, euclidean

import doap
from doap.datasets.official.hpatches import NOISES, STRIPS
from doap.datasets.official.hpatches_tasks import find_patches, sequence_blocks
from doap.datasets.sets.patch_set import PatchSet
from doap.evaluation.hpatches.benchmark import open_test
from doap.evaluation.hpatches.distances import to_device
from doap.evaluation.hpatches.lists import RetrievalLists, VerificationLists, draw_pairs, draw_queries
from doap.evaluation.hpatches.matching import matching
from doap.evaluation.hpatches.retrieval import pools_of, retrieval
from doap.evaluation.hpatches.verification import verification
from doap.networks.architecture import Architecture, build
from doap.networks.descriptor import Descriptor
from doap.networks.fast import fastest
from machine import write_result

PART = 200  # of the pairs and of the queries, one in so many is done the slow way
Measured = dict[str, float | str]


def seconds(work: Callable[[], object], device: str) -> float:
    """Wall time, a GPU's work included."""
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def memory(device: str) -> float:
    """The most that was held at once so far, in GB: by the process, or on the GPU."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def split_of(sequences: int, rows: int) -> PatchSet:
    """As many patches as a split has; the pixels, which nobody looks at here, are four."""
    names = [f"{'iv'[number % 2]}_{number}" for number in range(sequences)]
    count = len(STRIPS) * rows
    pixels = np.random.default_rng(0).integers(0, 256, (sequences * count, 2, 2), dtype=np.uint8)
    groups = np.concatenate([rows * number + np.tile(np.arange(rows), len(STRIPS)) for number in range(sequences)])
    return PatchSet([pixels], groups, np.repeat(np.arange(sequences), count), sequence_names=names)


def random_codes(kind: str, count: int) -> np.ndarray:
    """128-d unit vectors, or 256 bits."""
    random = np.random.default_rng(1)
    if kind == "bits":
        return random.integers(0, 256, (count, 32), dtype=np.uint8)
    vectors = random.standard_normal((count, 128), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def plain_precision(far: np.ndarray, right: np.ndarray, positives: int) -> float:
    """The area under the precision-recall curve, as the official code computes it."""
    found = np.concatenate(([0], np.cumsum(right[np.argsort(far, kind="stable")])))
    precision = np.concatenate(([1.0], found[1:] / np.arange(1, len(found))))
    recall = found / positives
    return float(((recall[1:] - recall[:-1]) * (precision[1:] + precision[:-1]) / 2).sum())


def plain_verification(codes: np.ndarray, patches: PatchSet, lists: VerificationLists) -> None:
    """A distance for each pair, one after the other; the sorts are left out."""
    for noise in NOISES[1:]:
        for pairs in (lists.positives, *lists.negatives.values()):
            first, second = (find_patches(patches, places, noise)[::PART] for places in pairs)
            for a, b in zip(first, second, strict=True):
                euclidean(codes[a], codes[b])


def plain_matching(codes: np.ndarray, patches: PatchSet) -> None:
    """The first sequence."""
    _, rows = next(iter(sequence_blocks(patches).values()))
    reference, *others = codes[: len(STRIPS) * rows].reshape(len(STRIPS), rows, -1)
    for other in others:
        table = cdist(reference, other)
        nearest = table.argmin(1)
        plain_precision(table[np.arange(rows), nearest], nearest == np.arange(rows), rows)


def plain_retrieval(codes: np.ndarray, patches: PatchSet, lists: RetrievalLists) -> None:
    """Some queries; a sorted list for each noise and each pool."""
    queries, distractors = (find_patches(patches, places, "easy") for places in (lists.queries, lists.distractors))
    table = cdist(codes[queries[::PART]], codes[distractors])
    for number, query in enumerate(queries[::PART]):
        others = table[number][lists.distractors.sequences != lists.queries.sequences[number * PART]]
        for _ in NOISES[1:]:
            copies = [cdist(codes[query][None], codes[query][None])[0, 0] for _ in range(5)]
            far = np.concatenate((copies, others))
            for pool in pools_of(len(distractors)):
                plain_precision(far[:pool], np.arange(min(pool, len(far))) < 5, 5)


def judging(kind: str, patches: PatchSet, device: str) -> dict[str, Measured]:
    """The three tasks."""
    made = random_codes(kind, len(patches))
    pairs, searches = draw_pairs(patches, 0), draw_queries(patches, 0)
    assert pairs
    assert searches
    codes = to_device(made, device)
    plain = np.unpackbits(made, axis=1).astype(np.float32) if kind == "bits" else made
    sequences = len(sequence_blocks(patches))
    works = {
        "verification": (
            lambda: verification(codes, patches, pairs),
            lambda: plain_verification(plain, patches, pairs),
            PART,
        ),
        "matching": (lambda: matching(codes, patches), lambda: plain_matching(plain, patches), sequences),
        "retrieval": (
            lambda: retrieval(codes, patches, searches),
            lambda: plain_retrieval(plain, patches, searches),
            PART,
        ),
    }
    measured: dict[str, Measured] = {}
    for task, (ours, theirs, part) in works.items():
        taken = seconds(ours, device)
        held = memory(device)
        slow = part * seconds(theirs, "cpu")
        print(f"  {task}: doap {taken:.1f} s, official arithmetic {slow:.0f} s: {slow / taken:.0f}x", flush=True)
        measured[task] = {"doap": taken, "official arithmetic": slow, "ratio": slow / taken, "GB at most": held}
    total = sum(float(task["doap"]) for task in measured.values())
    print(f"  all three: {total:.1f} s, {memory(device):.1f} GB at most", flush=True)
    return {**measured, "all": {"doap": total, "patches": len(patches), "pairs": 3 * len(pairs.positives[0])}}


def describing(device: str) -> Measured:
    """L2Net on patches of 65x65, in the fastest mode and as it is loaded."""
    count = 200_000 if device == "cuda" else 4096
    patches = np.random.default_rng(0).integers(0, 256, (count, 65, 65), dtype=np.uint8)
    plain = Descriptor(build(Architecture()), "real", 12.0, "L2Net").to(device).eval()
    fast = fastest(plain)
    speed = {}
    for name, model in (("doap", fast), ("float32", plain)):
        doap.describe(patches[: count // 8], model)
        speed[name] = count / min(seconds(lambda model=model: doap.describe(patches, model), device) for _ in range(3))
    ratio = speed["doap"] / speed["float32"]
    print(f"  doap {speed['doap']:,.0f} patches/s, float32 {speed['float32']:,.0f} patches/s: {ratio:.1f}x", flush=True)
    return {**{f"{name}, patches a second": value for name, value in speed.items()}, "ratio": ratio}


def unchanged(folder: Path, names: list[str], device: str) -> dict[str, Measured]:
    """The matching task on real patches, in the fastest mode and in float32: by how much mAP differs, at most 0.1."""
    test = open_test(folder, tasks=["matching"])
    patches = test.patches.take(np.arange(len(test.patches)))
    found: dict[str, Measured] = {}
    for name in names:
        model = doap.load(name, device)
        maps = {}
        for mode, described in (("fastest", fastest(model)), ("float32", model)):
            codes = to_device(doap.describe(patches, described), device)
            fair = [score for score in matching(codes, test.patches) if score["rule"] == "fair"]
            maps[mode] = float(np.mean([float(score["value"] or 0) for score in fair]))
        apart = abs(maps["fastest"] - maps["float32"])
        print(f"  {model.name}: {maps['fastest']:.2f} fastest, {maps['float32']:.2f} float32", flush=True)
        assert apart <= 0.1, f"{model.name}: the fastest mode changes mAP by {apart:.2f}"
        found[model.name] = {f"{mode}, matching mAP %": value for mode, value in maps.items()}
    return found


def main() -> None:
    """Run all, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sequences", type=int, default=40)
    parser.add_argument("--rows", type=int, default=1560)
    parser.add_argument("--patches", type=Path, help="an HPatches folder: does the fastest mode change the result?")
    parser.add_argument("--models", nargs="+", default=doap.list_models(), help="on these patches")
    parser.add_argument("--try", dest="trial", action="store_true", help="write nothing")
    asked = parser.parse_args()
    result: dict[str, object] = {}
    patches = split_of(asked.sequences, asked.rows)
    for kind, words in (("vectors", "128-d vectors"), ("bits", "256 bits")):
        print(f"judging {len(patches):,} {words}", flush=True)
        result[f"judging {words}"] = judging(kind, patches, asked.device)
    print("describing with L2Net", flush=True)
    result["describing"] = describing(asked.device)
    if asked.patches:
        print(f"in the fastest mode and in float32, on {asked.patches.name}", flush=True)
        result["fastest mode"] = unchanged(asked.patches, asked.models, asked.device)
    if not asked.trial:
        write_result("evaluation", asked.device, result)


if __name__ == "__main__":
    main()
