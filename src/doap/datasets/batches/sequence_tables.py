"""Ignore tables for patches of one sequence.

A sequence may show a structure several times, so that patches of different groups of it look the same. Without labels
that tell them apart, patches of a query's own sequence are not used as negatives (paper, section 4.2).
"""

import numpy as np
import torch

from doap.datasets.sets.groups import GroupedSet, Ids
from doap.objectives.lists import IgnoreTable


class SequenceTables:
    """Ignore tables of batches: patches of one sequence are never negatives of each other.

    Args:
        data: The set, with its sequences.
        device: Device of the tables.
    """

    def __init__(self, data: GroupedSet, device: str | torch.device = "cpu") -> None:
        self._sequences = data.sequences
        self._device = torch.device(device)

    def ignore_table(self, indices: Ids) -> IgnoreTable:
        """Return the ignore table of a batch, with one label per sequence, in the order of sequence ids.

        Args:
            indices: (M,) item indices of L sequences.

        Returns:
            Labels (M,) on the CPU, where they can be validated without synchronising with a GPU, and the table (L, L),
            the identity, on the device.
        """
        present, labels = np.unique(self._sequences[indices], return_inverse=True)
        table = torch.eye(len(present), dtype=torch.bool, device=self._device)
        return IgnoreTable(torch.from_numpy(labels), table)
