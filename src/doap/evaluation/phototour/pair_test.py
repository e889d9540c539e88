"""The official pairs of a Phototour scene, and FPR95 on them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.datasets.official.opening import open_dataset
from doap.datasets.official.phototour import INFO, PAIRS, read_pairs, source_files
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.harness.methods import Selection
from doap.evaluation.metrics.average_precision import false_positive_rate_at_recall
from doap.networks import split_name
from doap.networks.descriptor import Descriptor, describe_patches
from doap.types import Descriptors, Progress, no_progress

SCENES = ("liberty", "notredame", "yosemite")
PREFIX = "phototour-"
CHUNK_SIZE = 4096  # pairs compared at once


@dataclass(frozen=True)
class PairTest:
    """A patch set with matching and non-matching pairs of its patches.

    Attributes:
        name: Name of the set.
        patches: Patch set; only patches that occur in pairs are read.
        first: (P,) indices of patches.
        second: (P,) indices of patches.
        same: (P,) bool, whether both patches show the same point.
    """

    name: str
    patches: PatchSet
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    same: NDArray[np.bool_]

    @cached_property
    def selection(self) -> Selection:
        """The patches that occur in pairs, each once."""
        return Selection(self.patches, np.union1d(self.first, self.second))

    def distances(self, descriptors: Descriptors) -> NDArray[np.float64]:
        """Return the (P,) distances of the pairs, given the descriptors of `selection`; see `pair_distances`."""
        used = np.asarray(self.selection.indices)
        first, second = (np.searchsorted(used, patches) for patches in (self.first, self.second))
        chunks = (slice(start, start + CHUNK_SIZE) for start in range(0, len(first), CHUNK_SIZE))
        return np.concatenate([pair_distances(descriptors[first[c]], descriptors[second[c]]) for c in chunks])


def open_test(folder: Path, progress: Progress = no_progress) -> PairTest:
    """Open the official test of a scene; its patches are converted on first use, see `open_dataset`.

    Args:
        folder: Folder with the patch images, info.txt and m50_100000_100000_0.txt.
        progress: Callback of the conversion, called as `progress(done, total)`.

    Raises:
        DoapError: If a file is missing or cannot be read.
    """
    if not source_files(folder):
        raise DoapError(f"{folder}: not an official folder of Phototour ({INFO} and *.bmp)")
    patches = open_dataset(folder, progress)
    first, second, same = read_pairs(folder / PAIRS, len(patches))
    if same.all() or not same.any():
        raise DoapError(f"{folder / PAIRS}: needs matching and non-matching pairs; download the official data again")
    return PairTest(folder.absolute().name, patches, first, second, same)


def find_scenes(folder: Path) -> dict[str, Path]:
    """Return the official folders of scenes: the folder itself, or those inside it, by scene.

    The paper's scenes come first, in its order, then others by name.

    Raises:
        DoapError: If there is none, or two are of the same scene.
    """
    if not folder.is_dir():
        raise DoapError(f"{folder}: no such folder")
    official = [folder] if source_files(folder) else [p for p in sorted(folder.iterdir()) if source_files(p)]
    if not official:
        raise DoapError(f"{folder}: not an official folder of Phototour ({INFO} and *.bmp), and contains none")
    scenes: dict[str, Path] = {}
    for path in official:
        scene = folder_scene(path.absolute().name)
        if scene in scenes:
            raise DoapError(f"{folder}: {scenes[scene].name} and {path.name} are both {scene}; give one of them")
        scenes[scene] = path
    return {scene: scenes[scene] for scene in order_scenes(scenes)}


def order_scenes(scenes: Iterable[str]) -> list[str]:
    """Return scenes in the order of tables: the paper's first, in its order, then others by name."""
    return sorted(set(scenes), key=lambda scene: (SCENES.index(scene) if scene in SCENES else len(SCENES), scene))


def folder_scene(name: str) -> str:
    """Return the scene of an official folder: that of `scene_of`, else the name of the folder.

    Example:
        >>> folder_scene("phototour-a"), folder_scene("my-liberty"), folder_scene("Harbour")
        ('a', 'liberty', 'harbour')
    """
    return scene_of(name) or name.lower()


def scene_of(name: str) -> str:
    """Return the scene that the name of a folder or model tells; an empty string if it tells none.

    It is the name after "phototour-", or the scene of the paper that the name ends in, as in "doap-liberty"; the length
    of a prefix is no part of it.

    Example:
        >>> scene_of("phototour-a"), scene_of("doap-liberty"), scene_of("doap-liberty@64"), scene_of("mine")
        ('a', 'liberty', 'liberty', '')
    """
    base, _ = split_name(name.lower())
    ending = re.search(rf"(?:^|[-_. ])({'|'.join(SCENES)})$", base)
    if ending:
        return ending[1]
    return base.removeprefix(PREFIX) if base.startswith(PREFIX) else ""


def fpr95(model: Descriptor, test: PairTest | Path, progress: Progress = no_progress) -> float:
    """Compute the false positive rate at 95 % recall; ties are counted as in `false_positive_rate_at_recall`.

    Real-valued descriptors are compared by Euclidean distance, binary ones by Hamming distance.

    Args:
        model: Model to evaluate.
        test: Test from `open_test`, or its folder.
        progress: Callback, called as `progress(done, total)` with numbers of patches that occur in pairs.

    Returns:
        Rate in [0, 1].
    """
    pairs = open_test(test) if isinstance(test, Path) else test
    chunks = []
    for chunk, pixels in pairs.selection.chunks():
        chunks.append(describe_patches(pixels, model))
        progress(chunk.stop, len(pairs.selection))
    return false_positive_rate_at_recall(pairs.distances(np.concatenate(chunks)), pairs.same)


def pair_distances(first: Descriptors, second: Descriptors) -> NDArray[np.float64]:
    """Return the (P,) distances of descriptors by row: Hamming of (P, bits / 8) uint8, else Euclidean of (P, d)."""
    if first.dtype == np.uint8:
        return np.asarray(np.unpackbits(np.bitwise_xor(first, second), axis=1).sum(1), np.float64)
    # In float64, so that the order of close pairs does not depend on rounding.
    return np.asarray(np.linalg.norm(first.astype(np.float64) - second, axis=1))
