"""Ignore tables for groups that overlap in a photo.

Patches of overlapping points share pixels, so neither is a valid negative of the other.
"""

import numpy as np
import torch
from torch import Tensor

from doap.datasets.batches.resident_patches import to_device
from doap.datasets.sets.groups import GroupedSet, Ids
from doap.objectives.lists import IgnoreTable


class OverlapTables:
    """Ignore tables of batches: overlapping groups are never negatives of each other.

    The overlaps are stored on the device and the tables are computed there. The labels depend on the indices only
    and stay on the CPU, where the objective can validate them without synchronising with the GPU.

    Args:
        data: The set, with its `overlaps`.
        device: Device of the tables.
    """

    def __init__(self, data: GroupedSet, device: str | torch.device = "cpu") -> None:
        groups, self._group_of_item = np.unique(data.groups, return_inverse=True)
        pairs = np.searchsorted(groups, data.overlaps)
        pairs = np.concatenate((pairs, pairs[:, ::-1]))
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        # Group g overlaps neighbours[start[g]:start[g + 1]].
        self._start: Ids = np.concatenate(([0], np.cumsum(np.bincount(pairs[:, 0], minlength=len(groups)))))
        self._start_on_device = torch.from_numpy(self._start).to(device)
        self._neighbours = torch.from_numpy(np.ascontiguousarray(pairs[:, 1])).to(device)

    def ignore_table(self, indices: Ids) -> IgnoreTable:
        """Return the ignore table of a batch, with one label per group, in the order of group ids.

        Args:
            indices: (M,) item indices of G groups.

        Returns:
            Labels (M,) on the CPU and the table (G, G) on the device.
        """
        groups, labels = np.unique(self._group_of_item[indices], return_inverse=True)
        count = len(groups)
        # Counted on the CPU: reading it from the device would synchronise.
        total = int((self._start[groups + 1] - self._start[groups]).sum())
        # The last entry collects the pairs whose second group is not in the batch.
        table = self._neighbours.new_zeros(count * count + 1, dtype=torch.bool)
        present = to_device(groups, table.device)
        rows, neighbours = self._edges(present, total)
        columns = torch.searchsorted(present, neighbours).clamp(max=count - 1)
        table.scatter_(0, torch.where(present[columns] == neighbours, rows * count + columns, count * count), True)
        return IgnoreTable(torch.from_numpy(labels), table[:-1].view(count, count))

    def _edges(self, groups: Tensor, total: int) -> tuple[Tensor, Tensor]:
        """Return the `total` overlaps of some groups: positions in `groups`, and the groups they overlap."""
        first = self._start_on_device[groups]
        degrees = self._start_on_device[groups + 1] - first
        before = degrees.cumsum(0) - degrees
        rows = torch.repeat_interleave(degrees, output_size=total)
        return rows, self._neighbours[torch.arange(total, device=groups.device) + (first - before)[rows]]
