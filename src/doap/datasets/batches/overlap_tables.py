"""Points that overlap in a photo show partly the same pixels: neither is a fair negative of the other."""

import numpy as np
import torch
from torch import Tensor

from doap.datasets.batches.resident_patches import send
from doap.datasets.sets.groups import Grouping, Ids
from doap.objectives.lists import IgnoreTable


class OverlapTables:
    """Makes the ignore table of each batch, so that groups that overlap are never each other's negatives.

    What a group overlaps is held on the device, and the table is made there; the labels, which follow from
    the indices, stay on the CPU, where the objective can check them without making a GPU wait.

    Args:
        grouping: whose `overlaps` to respect.
        device: where the tables are made.
    """

    def __init__(self, grouping: Grouping, device: str | torch.device = "cpu") -> None:
        groups, self._group_of_item = np.unique(grouping.groups, return_inverse=True)
        pairs = np.searchsorted(groups, grouping.overlaps)
        pairs = np.concatenate((pairs, pairs[:, ::-1]))
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        # Group g overlaps neighbours[start[g]:start[g + 1]].
        self._start: Ids = np.concatenate(([0], np.cumsum(np.bincount(pairs[:, 0], minlength=len(groups)))))
        self._start_on_device = torch.from_numpy(self._start).to(device)
        self._neighbours = torch.from_numpy(np.ascontiguousarray(pairs[:, 1])).to(device)

    def ignore(self, indices: Ids) -> IgnoreTable:
        """The table of a batch of items: a label for each of its G groups, in the order of their ids.

        Args:
            indices: (M,) item indices.

        Returns:
            Labels (M,) on the CPU and the table (G, G) on the device.
        """
        groups, labels = np.unique(self._group_of_item[indices], return_inverse=True)
        count = len(groups)
        # Counted here, so that the device need not tell: asking would make it wait.
        total = int((self._start[groups + 1] - self._start[groups]).sum())
        table = self._neighbours.new_zeros(
            count * count + 1, dtype=torch.bool
        )  # the last is for pairs not in the batch
        present = send(groups, table.device)
        owner, neighbour = self._edges(present, total)
        place = torch.searchsorted(present, neighbour).clamp(max=count - 1)
        table.scatter_(0, torch.where(present[place] == neighbour, owner * count + place, count * count), True)
        return IgnoreTable(torch.from_numpy(labels), table[:-1].view(count, count))

    def _edges(self, groups: Tensor, total: int) -> tuple[Tensor, Tensor]:
        """All neighbours of some groups, `total` of them, and whose they are as a place in `groups`."""
        first = self._start_on_device[groups]
        degrees = self._start_on_device[groups + 1] - first
        before = degrees.cumsum(0) - degrees
        owner = torch.repeat_interleave(degrees, output_size=total)
        return owner, self._neighbours[torch.arange(total, device=groups.device) + (first - before)[owner]]
