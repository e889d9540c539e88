"""The metrics of HPatches written from their definitions, one item after the other, and small sets for them."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from doap.datasets.official.hpatches import STRIPS
from doap.datasets.sets.patch_set import PatchSet
from doap.types import Descriptors

KINDS = ("bits", "few levels", "vectors")
ROWS = {"i_dome": 9, "i_moon": 4, "v_there": 7, "v_wall": 12}


def small_set(rows: dict[str, int] | None = None, seed: int = 0) -> PatchSet:
    """Return sequences of random pixels, written strip by strip."""
    counts = rows or ROWS
    total = sum(counts.values()) * len(STRIPS)
    pixels = np.random.default_rng(seed).integers(0, 256, (total, 3, 3), dtype=np.uint8)
    sequences = np.repeat(np.arange(len(counts)), [len(STRIPS) * n for n in counts.values()])
    groups = np.concatenate([100_000 * s + np.tile(np.arange(n), len(STRIPS)) for s, n in enumerate(counts.values())])
    return PatchSet([pixels], groups, sequences, sequence_names=list(counts))


def some_codes(kind: str, count: int, seed: int = 0) -> Descriptors:
    """Return descriptors with many ties: 8-bit codes, vectors of few levels, or unit vectors with many equal ones."""
    random = np.random.default_rng(seed)
    if kind == "bits":
        return random.integers(0, 256, (count, 1), dtype=np.uint8)
    if kind == "few levels":
        return random.integers(0, 3, (count, 6)).astype(np.float32)
    vectors = random.normal(size=(count // 3, 24)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[random.integers(0, len(vectors), count)]


def distances(first: Descriptors, second: Descriptors) -> NDArray[np.float64]:
    """Compute the distances of all pairs by scipy: Hamming for packed bits, else Euclidean."""
    if first.dtype == np.uint8:
        first, second = (np.unpackbits(each, axis=1).astype(np.float64) for each in (first, second))
    table: NDArray[np.float64] = cdist(first, second)
    return table


def patch_indices(patches: PatchSet) -> dict[tuple[str, str, int], int]:
    """Return the index of each patch by sequence, strip and row, counted one by one."""
    names, counts = patches.sequence_names, np.bincount(patches.sequences) // len(STRIPS)
    every = (
        (name, strip, row) for name, rows in zip(names, counts, strict=True) for strip in STRIPS for row in range(rows)
    )
    return {location: index for index, location in enumerate(every)}


def in_order(far: Sequence[float], relevant: Sequence[bool]) -> list[bool]:
    """Return labels by distance, equal ones in the given order: Python's sort is stable."""
    return [bool(relevant[item]) for item in sorted(range(len(far)), key=lambda item: far[item])]


def trapezoid(points: list[tuple[float, float]]) -> float:
    """Compute the area under a curve given by (x, y)."""
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))


def slow_precision(far: Sequence[float], relevant: Sequence[bool], positives: int | None = None) -> float:
    """Compute the area under (recall, precision), from (0, 1)."""
    total = sum(map(bool, relevant)) if positives is None else positives
    points, found = [(0.0, 1.0)], 0
    for rank, label in enumerate(in_order(far, relevant), 1):
        found += label
        points.append((found / total, found / rank))
    return trapezoid(points)


def slow_roc(far: Sequence[float], relevant: Sequence[bool]) -> float:
    """Compute the area under (false positives, true positives)."""
    positives = sum(map(bool, relevant))
    points, found = [(0.0, 0.0)], 0
    for rank, label in enumerate(in_order(far, relevant), 1):
        found += label
        points.append(((rank - found) / (len(relevant) - positives), found / positives))
    return trapezoid(points)
