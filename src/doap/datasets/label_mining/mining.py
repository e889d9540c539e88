"""Label mining: which patches of one sequence are negatives of each other (paper, "Label Mining in HPatches").

Different points of a sequence are not always valid negatives ("distractors" in the paper): two windows of one facade
look the same. The patches of each sequence are therefore clustered by appearance, with a threshold at a percentile of
the distances between the centres of the clusters. Patches of clusters farther apart are negatives; patches of nearer
clusters, or of the same cluster, ignore each other. Patches of one group always match, and patches of different
sequences are always negatives.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from doap.datasets.batches.resident_patches import to_device
from doap.datasets.label_mining.hog import hog
from doap.datasets.label_mining.k_means import k_means
from doap.datasets.label_mining.settings import CLUSTERS, MiningSettings
from doap.datasets.sets.groups import GroupedSet, Ids
from doap.errors import DoapError
from doap.files import atomic_file
from doap.objectives.lists import IgnoreTable
from doap.parsing.array_files import read_archive
from doap.parsing.json_files import parse_json
from doap.types import Progress, no_progress

FORMAT = "doap mined labels 2"
OLD_FORMAT = "doap mined labels 1"  # without the settings
ARRAYS = {"format", "grouping", "clusters", "near", "thresholds"}
CHUNK_SIZE = 256  # patches described per step
SPARE_BYTES = 1 << 30  # of a file of labels, besides those of the default or expected number of clusters
HOG_SIZE = 64  # side in pixels of the patches given to HOG
THUMBNAIL_SIZE = 16
PAPER = MiningSettings()


def describe_appearance(patches: Tensor) -> Tensor:
    """Compute the vectors that patches are clustered by: HOG of 8 x 8 cells at 64 x 64, and the pixels at 16 x 16.

    Pixels are scaled to [0, 1] for both parts. The 256 pixels then weigh less than the 1,984 values of HOG but are not
    negligible: geometry dominates and brightness contributes. With pixels in 0..255, HOG would be negligible.

    Args:
        patches: (N, S, S) uint8, of any size S.

    Returns:
        (N, 2240) float32.
    """
    values = patches[:, None].float() / 255
    large, small = (
        F.interpolate(values, (side, side), mode="bilinear", antialias=True)[:, 0]
        for side in (HOG_SIZE, THUMBNAIL_SIZE)
    )
    return torch.cat((hog(large).flatten(1), small.flatten(1)), 1)


@dataclass(frozen=True)
class MinedLabels:
    """Clusters within sequences, and which of them look too similar.

    Args:
        clusters: (N,) cluster of each patch: K times the index of its sequence among the sequences of the set, plus
            its cluster within the sequence, in 0..K-1.
        near: (S, K, K) bool, whether two clusters of a sequence ignore each other.
        thresholds: (S,) the distance between clusters of each sequence beyond which they are negatives.
        settings: What the labels were mined with; None if read from a file of version 0.2 or earlier.
    """

    clusters: Ids
    near: Tensor
    thresholds: NDArray[np.float32]
    settings: MiningSettings | None = None

    def to(self, device: str | torch.device) -> "MinedLabels":
        """Return the same labels with `near` on a device; the tables of batches are computed there."""
        return replace(self, near=self.near.to(device))

    def ignore_table(self, indices: Ids) -> IgnoreTable:
        """Return the ignore table of a batch, with one label per cluster that occurs in it.

        Args:
            indices: (M,) patch indices, of L clusters.

        Returns:
            Labels (M,) on the CPU, where they can be validated without synchronising with a GPU, and the table (L, L)
            on the device of `near`.
        """
        present, labels = np.unique(self.clusters[indices], return_inverse=True)
        ids = to_device(present, self.near.device)
        sequence, cluster = ids // self.near.shape[1], ids % self.near.shape[1]
        table = self.near[sequence[:, None], cluster[:, None], cluster] & (sequence[:, None] == sequence)
        return IgnoreTable(torch.from_numpy(labels), table)

    def save(self, path: Path | str, data: GroupedSet) -> None:
        """Write the labels to a .npz file, atomically, with a checksum of the set they belong to."""
        check_label_path(Path(path))
        with atomic_file(Path(path)) as temporary:
            np.savez_compressed(
                temporary,
                format=np.array(FORMAT),
                grouping=np.array(_checksum(data)),
                clusters=self.clusters,
                near=self.near.cpu().numpy(),
                thresholds=self.thresholds,
                settings=np.array(json.dumps(asdict(self.settings) if self.settings else None)),
            )

    @classmethod
    def load(cls, path: Path | str, data: GroupedSet, expected: MiningSettings | None = None) -> "MinedLabels":
        """Read a file written by `save`.

        Args:
            path: The file.
            data: The set that the labels must belong to.
            expected: Settings that the labels must have been mined with, as far as the file records them.

        Raises:
            DoapError: If the file cannot be read, has no mined labels, belongs to another set, or was mined with other
                settings.
        """
        clusters = expected.clusters if expected else CLUSTERS
        sequences = len(np.unique(data.sequences))
        arrays = _read_arrays(path, SPARE_BYTES + 8 * len(data) + sequences * clusters**2)
        if arrays["grouping"].ndim or arrays["grouping"] != _checksum(data):
            raise DoapError(f"{path}: mined from another set; mine the labels of the training set")
        _check_arrays(path, arrays, data)
        settings = _parse_settings(path, arrays)
        recorded = asdict(settings) if settings else {"clusters": arrays["near"].shape[1]}
        for name, value in recorded.items():
            wanted = asdict(expected)[name] if expected else value
            if value != wanted:
                value, wanted = (f"{v:g}" if isinstance(v, float) else v for v in (value, wanted))  # seeds in full
                raise DoapError(
                    f"{path}: mined with {name} {value}, but the recipe has {wanted}; mine the labels again with "
                    f"--{name} {wanted}, or change the recipe"
                )
        return cls(arrays["clusters"], torch.from_numpy(arrays["near"]), arrays["thresholds"], settings)


def _read_arrays(path: Path | str, max_bytes: int) -> dict[str, NDArray[Any]]:
    """Read the arrays of a file of mined labels, of either format."""
    try:
        arrays = read_archive(Path(path), max_bytes)
    except OSError as error:
        raise DoapError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DoapError(f"{path}: not a file of mined labels, or damaged ({error}); mine the labels again") from error
    names = {OLD_FORMAT: ARRAYS, FORMAT: {*ARRAYS, "settings"}}
    if names.get(str(arrays.get("format"))) != set(arrays):
        raise DoapError(f"{path}: not a file of mined labels; mine the labels again")
    return arrays


def _check_arrays(path: Path | str, arrays: dict[str, NDArray[Any]], data: GroupedSet) -> None:
    """Check the types and shapes of mined labels, and that the cluster of each patch is one of its sequence."""
    clusters, near, thresholds = arrays["clusters"], arrays["near"], arrays["thresholds"]
    distinct, sequences = np.unique(data.sequences, return_inverse=True)
    per_sequence = near.shape[-1] if near.ndim else 0
    is_valid = (
        (clusters.dtype.str, near.dtype.kind, thresholds.dtype.kind) == ("<i8", "b", "f")
        and clusters.shape == (len(data),)
        and near.shape == (len(distinct), per_sequence, per_sequence)
        and thresholds.shape == (len(distinct),)
        and per_sequence > 0
        and (clusters // per_sequence == sequences.ravel()).all()
    )
    if not is_valid:
        raise DoapError(f"{path}: its labels do not fit the set; it is damaged, mine the labels again")


def _parse_settings(path: Path | str, arrays: dict[str, NDArray[Any]]) -> MiningSettings | None:
    try:
        values = parse_json(str(arrays.get("settings", "null")))
        if values is None:
            return None
        settings = MiningSettings(**values)
        if not all(isinstance(value, int | float) for value in values.values()):
            raise TypeError("not numbers")
        return settings
    except (TypeError, ValueError) as error:
        raise DoapError(f"{path}: its settings are damaged; mine the labels again") from error


def check_label_path(path: Path) -> None:
    """Raise a DoapError if mined labels cannot be written to a path; call it before mining."""
    if path.suffix != ".npz":
        raise DoapError(f"{path}: mined labels are written as .npz; change the suffix")


def mine_labels(
    data: GroupedSet,
    take: Callable[[Ids], Tensor],
    settings: MiningSettings = PAPER,
    progress: Progress = no_progress,
) -> MinedLabels:
    """Cluster the patches of each sequence and find the clusters that look too similar.

    Args:
        data: The set. One sequence at a time is held in memory, 9 kB per patch.
        take: Function that returns the patches at indices, (M, S, S) uint8; clusters are computed on their device.
        settings: Clusters, percentile and seed.
        progress: Callback, called as progress(done, total) with numbers of patches.
    """
    sequences = np.unique(data.sequences)
    cluster_of_patch = np.empty(len(data.sequences), np.int64)
    near = torch.zeros(len(sequences), settings.clusters, settings.clusters, dtype=torch.bool)
    thresholds = np.zeros(len(sequences), np.float32)
    done = 0
    for number, sequence in enumerate(sequences):
        indices = np.flatnonzero(data.sequences == sequence)
        count = min(settings.clusters, len(indices))
        chunks = [indices[start : start + CHUNK_SIZE] for start in range(0, len(indices), CHUNK_SIZE)]
        points = torch.cat([describe_appearance(take(chunk)) for chunk in chunks])
        random = torch.Generator().manual_seed(settings.seed + number)
        centres, assigned = k_means(points, count, random)
        near[number, :count, :count], thresholds[number] = _near_centres(centres, settings.percentile)
        cluster_of_patch[indices] = number * settings.clusters + assigned.cpu().numpy()
        done += len(indices)
        progress(done, len(data.sequences))
    return MinedLabels(cluster_of_patch, near, thresholds, settings)


def _near_centres(centres: Tensor, percentile: float) -> tuple[Tensor, float]:
    """Return which centres are at most the percentile of all their distances apart, and that distance."""
    if len(centres) == 1:
        return torch.ones(1, 1, dtype=torch.bool), 0.0
    distances = torch.cdist(centres, centres, compute_mode="donot_use_mm_for_euclid_dist").cpu()
    rows, columns = torch.triu_indices(len(centres), len(centres), 1)
    threshold = torch.quantile(distances[rows, columns], percentile / 100)
    return distances <= threshold, float(threshold)


def count_pairs(mined: MinedLabels, data: GroupedSet) -> tuple[Ids, Ids]:
    """Count the pairs of patches of one sequence and different groups that are negatives, and those ignored.

    Returns:
        Two arrays (S,), with one count per sequence.
    """
    sequence_count, clusters = mined.near.shape[:2]
    groups = np.repeat(np.arange(len(data.members_start) - 1), np.diff(data.members_start))
    sequence_of_group = np.searchsorted(np.unique(data.sequences), data.group_sequences)
    negatives, ignored = np.zeros(sequence_count, np.int64), np.zeros(sequence_count, np.int64)
    for number, near in enumerate(mined.near.cpu().numpy().astype(np.float64)):
        in_sequence = sequence_of_group[groups] == number
        _, rows = np.unique(groups[in_sequence], return_inverse=True)
        columns = mined.clusters[data.members[in_sequence]] - number * clusters
        histogram = np.zeros((rows.max() + 1, clusters))  # patches by group and cluster
        np.add.at(histogram, (rows, columns), 1)
        total = histogram.sum(0)
        sizes = histogram.sum(1)
        near_pairs = total @ near @ total - ((histogram @ near) * histogram).sum()
        ignored[number] = round(near_pairs) // 2
        negatives[number] = round(total.sum() ** 2 - (sizes**2).sum()) // 2 - ignored[number]
    return negatives, ignored


def _checksum(data: GroupedSet) -> int:
    return zlib.crc32(data.sequences.tobytes(), zlib.crc32(data.groups.tobytes()))
