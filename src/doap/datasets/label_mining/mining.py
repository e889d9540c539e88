"""Label mining: which patches of one sequence are fair distractors of each other (paper, "Label Mining in HPatches").

The points of a sequence are known, but not every pair of different points is a fair negative: of two windows
of one facade, both look the same. So the patches of each sequence are clustered by appearance, and a
threshold is put at a percentile of the distances between the clusters' centres: patches of clusters farther
apart are distractors, those of nearer clusters, or of the same, ignore each other. Patches of one group
always match, and those of different sequences are always distractors.
"""

import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from doap.datasets.batches.resident_patches import send
from doap.datasets.label_mining.hog import hog
from doap.datasets.label_mining.k_means import k_means
from doap.datasets.sets.groups import Grouping, Ids
from doap.errors import DoapError
from doap.files import atomic_file
from doap.objectives.lists import IgnoreTable

CLUSTERS = 100
PERCENTILE = 20.0
FORMAT = "doap mined labels 1"
CHUNK = 256
SIDE = 64  # of the patches that HOG looks at


def appearance(patches: Tensor) -> Tensor:
    """What patches are clustered by: HOG of 8 x 8 cells at 64 x 64, and the pixels at 16 x 16.

    Pixels count from 0 to 1, black to white, in both parts. Their 256 differences then weigh less than the
    1,984 of HOG but not nothing: geometry leads and light has a say, where pixels in 0..255 would leave HOG
    without a say.

    Args:
        patches: (N, S, S) uint8, of any size S.

    Returns:
        (N, 2240) float32.
    """
    values = patches[:, None].float() / 255
    large, small = (F.interpolate(values, (side, side), mode="bilinear", antialias=True)[:, 0] for side in (SIDE, 16))
    return torch.cat((hog(large).flatten(1), small.flatten(1)), 1)


@dataclass(frozen=True)
class MinedLabels:
    """Clusters inside sequences, and which of them look too much alike.

    Args:
        clusters: (N,) cluster of each patch: K times the place of its sequence among the sequences of the
            set, plus its cluster there, in 0..K-1.
        near: (S, K, K) bool, for each sequence whether two of its clusters ignore each other.
        thresholds: (S,) the distance of clusters beyond which they are distractors, for each sequence.
    """

    clusters: Ids
    near: Tensor
    thresholds: NDArray[np.float32]

    def to(self, device: str | torch.device) -> "MinedLabels":
        """The same with tables on a device: those of batches are then made there."""
        return MinedLabels(self.clusters, self.near.to(device), self.thresholds)

    def ignore(self, indices: Ids) -> IgnoreTable:
        """The table of a batch of patches: a label for each of the L clusters present.

        Args:
            indices: (M,) patch indices.

        Returns:
            Labels (M,) on the CPU, where they can be checked without making a GPU wait, and the table (L, L)
            on the device of `near`.
        """
        present, labels = np.unique(self.clusters[indices], return_inverse=True)
        names = send(present, self.near.device)
        sequence, cluster = names // self.near.shape[1], names % self.near.shape[1]
        table = self.near[sequence[:, None], cluster[:, None], cluster] & (sequence[:, None] == sequence)
        return IgnoreTable(torch.from_numpy(labels), table)

    def save(self, path: Path | str, grouping: Grouping) -> None:
        """Write to a .npz file, atomically, with a checksum of the grouping it belongs to."""
        check_name(Path(path))
        with atomic_file(Path(path)) as temporary:
            np.savez_compressed(
                temporary,
                format=np.array(FORMAT),
                grouping=np.array(_checksum(grouping)),
                clusters=self.clusters,
                near=self.near.cpu().numpy(),
                thresholds=self.thresholds,
            )

    @classmethod
    def load(cls, path: Path | str, grouping: Grouping) -> "MinedLabels":
        """Read what `save` wrote; a DoapError if it is something else or belongs to another set."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                found = {name: archive[name] for name in archive.files}
        except OSError as error:
            raise DoapError(f"{path}: cannot be read ({error.strerror or 'not a .npz file'})") from error
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise DoapError(f"{path}: not a file of mined labels, or damaged; mine again") from error
        if {"format", "grouping", "clusters", "near", "thresholds"} != set(found) or found["format"] != FORMAT:
            raise DoapError(f"{path}: not a file of mined labels; mine again")
        if found["grouping"] != _checksum(grouping):
            raise DoapError(f"{path}: mined from another set; mine again")
        return cls(found["clusters"], torch.from_numpy(found["near"]), found["thresholds"])


def check_name(path: Path) -> None:
    """Refuse a file name that mined labels cannot have, before they are mined."""
    if path.suffix != ".npz":
        raise DoapError(f"{path}: mined labels are written as .npz")


def mine_labels(
    data: Grouping,
    take: Callable[[Ids], Tensor],
    clusters: int = CLUSTERS,
    percentile: float = PERCENTILE,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _count: None,
) -> MinedLabels:
    """Cluster the patches of each sequence and find the clusters that look too much alike.

    Args:
        data: the set. One sequence at a time is held in memory, 9 kB a patch.
        take: gives the patches at some indices, (M, S, S) uint8, on the device where to work.
        clusters: K; a sequence with fewer patches has as many clusters as patches.
        percentile: of the distances between centres, where the threshold lies.
        seed: fixes the clusters, on one kind of device.
        progress: called with how many more patches are done.
    """
    sequences = np.unique(data.sequences)
    of_patch = np.empty(len(data.sequences), np.int64)
    near = torch.zeros(len(sequences), clusters, clusters, dtype=torch.bool)
    thresholds = np.zeros(len(sequences), np.float32)
    for place, sequence in enumerate(sequences):
        indices = np.flatnonzero(data.sequences == sequence)
        count = min(clusters, len(indices))
        starts = range(0, len(indices), CHUNK)
        points = torch.cat([appearance(take(indices[start : start + CHUNK])) for start in starts])
        random = torch.Generator().manual_seed(seed + place)
        centres, assigned = k_means(points, count, random)
        near[place, :count, :count], thresholds[place] = _alike(centres, percentile)
        of_patch[indices] = place * clusters + assigned.cpu().numpy()
        progress(len(indices))
    return MinedLabels(of_patch, near, thresholds)


def _alike(centres: Tensor, percentile: float) -> tuple[Tensor, float]:
    """Which centres are no farther apart than the percentile of all their distances, and that distance."""
    if len(centres) == 1:
        return torch.ones(1, 1, dtype=torch.bool), 0.0
    distances = torch.cdist(centres, centres, compute_mode="donot_use_mm_for_euclid_dist").cpu()
    rows, columns = torch.triu_indices(len(centres), len(centres), 1)
    threshold = torch.quantile(distances[rows, columns], percentile / 100)
    return distances <= threshold, float(threshold)


def count_pairs(mined: MinedLabels, grouping: Grouping) -> tuple[Ids, Ids]:
    """How many pairs of patches of one sequence, of different groups, are distractors, and how many ignored.

    Returns:
        Two of (S,), a count for each sequence.
    """
    sequence_count, clusters = mined.near.shape[:2]
    groups = np.repeat(np.arange(len(grouping.members_start) - 1), np.diff(grouping.members_start))
    sequence_of_group = np.searchsorted(np.unique(grouping.sequences), grouping.group_sequences)
    distractors, ignored = np.zeros(sequence_count, np.int64), np.zeros(sequence_count, np.int64)
    for place, near in enumerate(mined.near.cpu().numpy().astype(np.float64)):
        here = sequence_of_group[groups] == place
        _, rows = np.unique(groups[here], return_inverse=True)
        columns = mined.clusters[grouping.members[here]] - place * clusters
        of_group = np.zeros((rows.max() + 1, clusters))
        np.add.at(of_group, (rows, columns), 1)
        total = of_group.sum(0)
        within = of_group.sum(1)
        near_pairs = total @ near @ total - ((of_group @ near) * of_group).sum()
        ignored[place] = round(near_pairs) // 2
        distractors[place] = round(total.sum() ** 2 - (within**2).sum()) // 2 - ignored[place]
    return distractors, ignored


def _checksum(grouping: Grouping) -> int:
    return zlib.crc32(grouping.sequences.tobytes(), zlib.crc32(grouping.groups.tobytes()))
