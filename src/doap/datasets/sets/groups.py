"""Groups and sequences: what samplers, mining and objectives need to know of a set, whatever it holds."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError

Ids = NDArray[np.int64]


class Grouping:
    """Items in groups in sequences; a patch set's items are patches, a frame set's are frames.

    Args:
        groups: (N,) integers; items with the same group show the same point.
        sequences: (N,) integers; all items of a group share one. 0 for all by default.
        sequence_names: what the sequence ids mean: name of sequence i at place i, if they have names.
        overlaps: (P, 2) pairs of group ids that overlap in some photo, so that neither is a fair negative
            of the other. None by default.
    """

    # Whether an item drawn twice in one batch gives two different patches, so that one item can make a group.
    fresh: bool = False

    def __init__(
        self,
        groups: Sequence[int] | Ids,
        sequences: Sequence[int] | Ids | None = None,
        sequence_names: Sequence[str] = (),
        overlaps: NDArray[np.int64] | None = None,
    ) -> None:
        self.groups: Ids = np.asarray(groups, dtype=np.int64)
        self.sequences: Ids = np.asarray(np.zeros(len(self.groups)) if sequences is None else sequences, dtype=np.int64)
        self.sequence_names = list(sequence_names)
        self.overlaps: Ids = np.zeros((0, 2), np.int64) if overlaps is None else np.asarray(overlaps, np.int64)
        self._check_groups()

    def _check_groups(self) -> None:
        if self.groups.ndim != 1 or not len(self.groups):
            raise DoapError(f"groups must be (N,) integers, at least one, not {self.groups.shape}")
        if self.sequences.shape != self.groups.shape:
            raise DoapError(f"sequences has shape {self.sequences.shape}, but there are {len(self.groups)} items")
        first = self.members_start[:-1]
        shared = self.sequences[self.members] == np.repeat(self.group_sequences, np.diff(self.members_start))
        if not shared.all():
            group = self.groups[self.members[int(np.argmin(shared))]]
            raise DoapError(f"group {group} lies in more than one sequence")
        named = len(self.sequence_names)
        if named and not (self.sequences.min() >= 0 and self.sequences.max() < named):
            raise DoapError(f"sequence ids must be 0..{named - 1} to be named, not {self.sequences.max()}")
        if self.overlaps.ndim != 2 or self.overlaps.shape[1] != 2:
            raise DoapError(f"overlaps must be (P, 2) group ids, not {self.overlaps.shape}")
        if not np.isin(self.overlaps, self.groups[self.members[first]]).all():
            raise DoapError("overlaps name a group that is not in the set")

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def members(self) -> Ids:
        """Item indices sorted by group, stable: group g is `members[members_start[g]:members_start[g+1]]`."""
        return np.argsort(self.groups, kind="stable")

    @cached_property
    def members_start(self) -> Ids:
        """Where each group starts in `members`, and the end: one more than there are groups."""
        ordered = self.groups[self.members]
        changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        return np.concatenate(([0], changes, [len(ordered)])) if len(ordered) else np.zeros(1, np.int64)

    @cached_property
    def group_sequences(self) -> Ids:
        """The sequence of each group, in the order of `members_start`."""
        return self.sequences[self.members[self.members_start[:-1]]]

    def counted(self) -> str:
        """How many groups and sequences, in words."""
        groups, sequences = len(self.members_start) - 1, len(np.unique(self.sequences))
        return f"{groups:,} group{'s' * (groups != 1)}, {sequences:,} sequence{'s' * (sequences != 1)}"
