"""Patch verification on UBC Phototour: FPR95 on the 100,000 official pairs of a set (paper, "UBC Phototour")."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.evaluation.metrics import false_positive_rate_at_recall
from doap.matching.nearest import Descriptors
from doap.networks.descriptor import Descriptor, describe
from doap.patches.official import open_any
from doap.patches.patchset import PatchSet
from doap.patches.phototour import INFO, PAIRS, read_pairs, source_files
from doap.patches.source import Progress, no_progress

AT_ONCE = 4096  # patches read and described, and pairs compared


@dataclass(frozen=True)
class PairTest:
    """A patch set and pairs of its patches to tell apart.

    Attributes:
        name: of the set.
        patches: all of them; only those in pairs are read.
        first: (P,) indices of patches.
        second: (P,) likewise.
        same: (P,) bool, whether both show the same point.
    """

    name: str
    patches: PatchSet
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    same: NDArray[np.bool_]


def open_test(folder: Path, progress: Progress = no_progress) -> PairTest:
    """The official test of a Phototour folder; its patches are converted the first time, see `official`.

    Args:
        folder: with the sheets, info.txt and m50_100000_100000_0.txt.
        progress: told the pieces done of a conversion, and how many there are.

    Raises:
        DoapError: one line that names the file and the fault.
    """
    if not source_files(folder):
        raise DoapError(f"{folder}: not an official folder of Phototour ({INFO} and *.bmp)")
    patches = open_any(folder, progress)
    first, second, same = read_pairs(folder / PAIRS, len(patches))
    if same.all() or not same.any():
        raise DoapError(f"{folder / PAIRS}: needs pairs that match and pairs that do not; get the official data again")
    return PairTest(folder.resolve().name, patches, first, second, same)


def fpr95(model: Descriptor, test: PairTest | Path, progress: Progress = no_progress) -> float:
    """False positive rate at 95 % recall, in [0, 1]; ties as in `false_positive_rate_at_recall`.

    Real-valued descriptors are compared by Euclidean distance, binary ones by Hamming distance.

    Args:
        model: what to judge.
        test: from `open_test`, or the folder of one.
        progress: told the patches described, and how many there are: those in pairs.
    """
    opened = open_test(test) if isinstance(test, Path) else test
    used, places = np.unique(np.concatenate([opened.first, opened.second]), return_inverse=True)
    parts = []
    for start in range(0, len(used), AT_ONCE):
        part = used[start : start + AT_ONCE]
        parts.append(describe(opened.patches.take(part), model))
        progress(start + len(part), len(used))
    descriptors = np.concatenate(parts)
    first, second = np.split(places, 2)
    distances = np.concatenate(
        [
            pair_distances(descriptors[first[start : start + AT_ONCE]], descriptors[second[start : start + AT_ONCE]])
            for start in range(0, len(first), AT_ONCE)
        ]
    )
    return false_positive_rate_at_recall(distances, opened.same)


def pair_distances(first: Descriptors, second: Descriptors) -> NDArray[np.float64]:
    """(P,) distances of descriptors, row by row: Hamming of (P, bits / 8) uint8, else Euclidean of (P, d)."""
    if first.dtype == np.uint8:
        return np.asarray(np.unpackbits(np.bitwise_xor(first, second), axis=1).sum(1), np.float64)
    # In float64, so that the order of close pairs does not hang on rounding.
    return np.asarray(np.linalg.norm(first.astype(np.float64) - second, axis=1))
