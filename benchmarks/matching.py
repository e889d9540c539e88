"""Speed of exact matching against OpenCV, faiss, one matrix product, and the peak of the machine.

    python benchmarks/matching.py                                          # 2,000 and 10,000 descriptors on the CPU
    python benchmarks/matching.py --sizes 50000 --skip opencv              # OpenCV takes minutes
    python benchmarks/matching.py --device cuda --sizes 10000 50000 100000

Writes benchmarks/results/matching-<device>.json.

Two sets of equal size are matched, of 128 floats or of 256 bits; half of the second set are noisy copies of the first.
Times are the shortest of several after a warm-up, in seconds:

- doap: `search_matches`, mutual nearest neighbours with the distance to the second nearest
- mutual: `mutual_nearest`, the same without second distances
- opencv: BFMatcher with crossCheck
- faiss: IndexFlatL2 or IndexBinaryFlat, the nearest neighbour in both directions, which a mutual check needs
- product: one product of the sets with the largest values of its rows and columns, by PyTorch in float32 in blocks of
  rows, without indices; for bits as ±1

The peak is the speed of a product of large square matrices by PyTorch in the fastest type, measured in the same run.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.matching.nearest import mutual_nearest, search_matches
from doap.types import Descriptors
from machine import write_result

DIMENSIONS = {"floats": 128, "bits": 256}
BASELINES = ("opencv", "faiss", "product")
BLOCK_ENTRIES = 1 << 27
PEAK_SIZE = 4096


def sample(kind: str, count: int) -> tuple[Descriptors, Descriptors]:
    """Return two sets of descriptors."""
    random = np.random.default_rng(0)
    order = random.permutation(count)
    if kind == "bits":
        first, second = (random.integers(0, 256, (count, DIMENSIONS[kind] // 8), dtype=np.uint8) for _ in range(2))
        flipped = np.packbits(random.random((count // 2, DIMENSIONS[kind])) < 0.15, axis=1)
        second[: count // 2] = first[order[: count // 2]] ^ flipped
        return first, second
    first, second = (random.normal(size=(count, DIMENSIONS[kind])).astype(np.float32) for _ in range(2))
    second[: count // 2] = first[order[: count // 2]] + 0.5 * second[: count // 2]
    first, second = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second))
    return first, second


def seconds(work: Callable[[], object], device: str, limit: float = 20.0) -> float:
    """Return the shortest time of up to five runs after one to warm up, as many as fit the limit."""
    times: list[float] = []
    while len(times) < 6 and (len(times) < 2 or sum(times) < limit):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def product_with_maxima(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest values of the rows and columns of the product, computed in blocks of rows."""
    rows, columns = [], torch.full((len(second),), -torch.inf, device=first.device)
    for block in first.split(max(1, BLOCK_ENTRIES // len(second))):
        products = block @ second.T
        rows.append(products.amax(1))
        columns = torch.maximum(columns, products.amax(0))
    return torch.cat(rows), columns


def peak_speed(kind: str, device: str) -> float:
    """Return the operations per second of a product of large matrices, in the fastest type that the search can use."""
    values = torch.randint(0, 2, (PEAK_SIZE, PEAK_SIZE), device=device) * 2 - 1
    if device == "cuda":
        types = (torch.float16,) if kind == "floats" else (torch.float16, torch.int8)
    else:
        types = (torch.float32,) if kind == "floats" else (torch.float32, torch.int8)
    times = []
    for dtype in types:
        x = values.to(dtype)
        if dtype == torch.int8:
            times.append(seconds(lambda x=x: torch._int_mm(x, x.T), device))  # type: ignore[misc]
        else:
            times.append(seconds(lambda x=x: x @ x.T, device))  # type: ignore[misc]
    return float(2 * PEAK_SIZE**3 / min(times))


def signs(bits: NDArray[np.uint8]) -> Tensor:
    """Unpack bits to float32 values ±1."""
    return torch.from_numpy(np.unpackbits(bits, axis=1)).float() * 2 - 1


def faiss_search(first: Descriptors, second: Descriptors) -> None:
    """Search the nearest neighbours in both directions."""
    import faiss

    for queries, database in ((first, second), (second, first)):
        is_binary = first.dtype == np.uint8
        index = faiss.IndexBinaryFlat(8 * first.shape[1]) if is_binary else faiss.IndexFlatL2(first.shape[1])
        index.add(database)
        index.search(queries, 1)


def opencv_match(first: Descriptors, second: Descriptors) -> None:
    """Match with the cross-check."""
    import cv2

    norm = cv2.NORM_HAMMING if first.dtype == np.uint8 else cv2.NORM_L2
    cv2.BFMatcher(norm, crossCheck=True).match(first, second)


def measure(kind: str, count: int, device: str, baselines: set[str], peak: float) -> dict[str, float | int | str]:
    """Time the search and its baselines on two sets of one size."""
    first, second = sample(kind, count)
    a, b = (torch.from_numpy(x).to(device) for x in (first, second))
    times = {
        "doap": seconds(lambda: search_matches(a, b), device),
        "mutual": seconds(lambda: mutual_nearest(a, b), device),
    }
    if "product" in baselines:
        x, y = (signs(z).to(device) for z in (first, second)) if kind == "bits" else (a, b)
        times["product"] = seconds(lambda: product_with_maxima(x, y), device)
    if "opencv" in baselines and device == "cpu":
        times["opencv"] = seconds(lambda: opencv_match(first, second), device)
    if "faiss" in baselines and device == "cpu" and find_spec("faiss"):
        times["faiss"] = seconds(lambda: faiss_search(first, second), device)
    share = 2 * count**2 * DIMENSIONS[kind] / times["doap"] / peak
    ratios = {
        f"{baseline} / doap": round(times[baseline] / times["doap"], 2) for baseline in BASELINES if baseline in times
    }
    row = {name: round(value, 5) for name, value in times.items()}
    return {"kind": kind, "count": count, **row, **ratios, "share of peak": round(share, 3)}


def main() -> None:
    """Measure all sizes, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 10_000], metavar="N")
    parser.add_argument("--skip", choices=BASELINES, nargs="+", default=[], help="baselines not to measure")
    arguments = parser.parse_args()
    rows = []
    peaks = {kind: peak_speed(kind, arguments.device) for kind in DIMENSIONS}
    for count in arguments.sizes:
        for kind in DIMENSIONS:
            row = measure(kind, count, arguments.device, set(BASELINES) - set(arguments.skip), peaks[kind])
            print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
            rows.append(row)
    rounded = {kind: round(peak / 1e9) for kind, peak in peaks.items()}
    write_result("matching", arguments.device, {"peak_gflops": rounded, "rows": rows})


if __name__ == "__main__":
    main()
