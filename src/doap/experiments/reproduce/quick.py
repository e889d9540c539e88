"""Small copies of data sets in the official formats, for a quick reproduction of all steps."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.datasets.official.hpatches import STRIPS, write_hpatches_folder
from doap.datasets.official.hpatches_tasks import Split, find_split, sequence_blocks, write_splits
from doap.datasets.official.image_sequences import find_sequences
from doap.datasets.official.opening import open_dataset
from doap.datasets.official.phototour import write_phototour
from doap.datasets.official.romepatches import HALVES, write_romepatches
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.experiments.reproduce.data import SPLIT, DataFolder
from doap.files import atomic_folder
from doap.images.reading import read_grey
from doap.types import StepProgress, no_step_progress

GROUPS = 40  # of a Phototour set, and per half of RomePatches
TRAIN_SEQUENCES, TEST_SEQUENCES, ROWS = 3, 2, 16  # of HPatches
OXFORD_SEQUENCES = 2
SEED = 0


def make_quick_data(
    data: DataFolder, names: list[str], folder: Path, progress: StepProgress = no_step_progress
) -> DataFolder:
    """Write small copies of data sets; copies that exist are kept.

    Args:
        data: Folder of the data sets.
        names: Names of the sets to copy; those that are missing are left out.
        folder: Parent of the copies.
        progress: Callback, called as `progress(step, done, total)`.

    Raises:
        DoapError: If a set is damaged or too small.
    """
    missing = data.missing(names)
    for number, name in enumerate(names):
        target = folder / name
        progress("reducing the data sets", number, len(names))
        if name in missing or target.exists():
            continue
        with data.advising(name), atomic_folder(target) as temporary:
            _writer(name)(data.path(name), temporary)
    return DataFolder(folder, data.is_look_alike, is_reduced=True)


def _writer(name: str) -> Callable[[Path, Path], None]:
    if name.startswith("phototour-"):
        return _write_phototour
    return {
        "romepatches": _write_romepatches,
        "hpatches": _write_hpatches,
        "oxford": _copy_sequences,
        "hpatches-sequences": _copy_sequences,
    }[name]


def _write_phototour(source: Path, folder: Path) -> None:
    patches = open_dataset(source)
    members = np.concatenate(_sample_groups(patches, np.arange(len(patches))))
    points = patches.groups[members]
    write_phototour(folder, patches.take(members), points, _sample_pairs(points))


def _write_romepatches(source: Path, folder: Path) -> None:
    patches = open_dataset(source, sequences=HALVES)
    for half in HALVES:
        groups = _sample_groups(patches, np.flatnonzero(patches.sequences == patches.sequence_names.index(half)))
        queries_first = np.concatenate([[group[0] for group in groups], *(group[1:] for group in groups)])
        write_romepatches(folder, half, patches.take(queries_first), patches.groups[queries_first])


def _write_hpatches(source: Path, folder: Path) -> None:
    split = find_split(source, SPLIT)
    reduced = Split(name=SPLIT, train=split.training_sequences()[:TRAIN_SEQUENCES], test=split.test[:TEST_SEQUENCES])
    patches = open_dataset(source, sequences=[*reduced.train, *reduced.test])
    for name, (start, rows) in sequence_blocks(patches).items():
        kept = np.arange(min(rows, ROWS))
        strips = {strip: patches.take(start + index * rows + kept) for index, strip in enumerate(STRIPS)}
        write_hpatches_folder(folder / name, strips)
    write_splits(folder / "splits.json", [reduced])


def _copy_sequences(source: Path, folder: Path) -> None:
    for sequence in find_sequences(source)[:OXFORD_SEQUENCES]:
        for image in sequence.images:
            read_grey(image)  # a damaged one is not copied
        shutil.copytree(sequence.images[0].parent, folder / sequence.name)


def _sample_groups(patches: PatchSet, candidates: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the patches of some groups with at least two of the candidates, each group in the order of the set."""
    ids, counts = np.unique(patches.groups[candidates], return_counts=True)
    sample = np.random.default_rng(SEED).permutation(ids[counts > 1])[:GROUPS]
    if len(sample) < 2:
        raise DoapError(f"{patches}: fewer than two groups with two patches")
    return [candidates[patches.groups[candidates] == group] for group in np.sort(sample)]


def _sample_pairs(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return pairs of patches, (P, 2): each patch with the next of its point, and as many of different points."""
    matching = np.flatnonzero(points[1:] == points[:-1])
    other = (np.arange(len(matching)) * 7919 + len(points) // 2) % len(points)
    is_different = points[matching] != points[other]
    return np.concatenate([np.stack([matching, matching + 1], 1), np.stack([matching, other], 1)[is_different]])
