"""Base class of patch sets and frame sets: items in groups, groups in sequences."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError, inflect

Ids = NDArray[np.int64]
"""Integer ids or indices, one per item."""


class GroupedSet:
    """Items in groups and sequences. The items of a patch set are patches, those of a frame set are frames.

    Samplers, label mining and objectives need only this part of a set.

    Args:
        groups: (N,) integers; items of the same group show the same 3D point.
        sequences: (N,) integers; all items of a group have the same sequence. 0 for all by default.
        sequence_names: Name of sequence i at index i; empty if the sequences have no names.
        overlaps: (P, 2) pairs of group ids that overlap in some photo, so that neither is a valid negative
            of the other. No pairs by default.
    """

    # Whether each sampling of an item yields a new view of it, so that a single item can form a group.
    is_jittered: bool = False

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
        is_shared = self.sequences[self.members] == np.repeat(self.group_sequences, np.diff(self.members_start))
        if not is_shared.all():
            group = self.groups[self.members[int(np.argmin(is_shared))]]
            raise DoapError(f"group {group} is in more than one sequence")
        name_count = len(self.sequence_names)
        if name_count and not (self.sequences.min() >= 0 and self.sequences.max() < name_count):
            raise DoapError(f"sequence ids must be 0..{name_count - 1} to be named, not {self.sequences.max()}")
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
        """Start of each group in `members`, and the end: one entry more than there are groups."""
        ordered = self.groups[self.members]
        changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        return np.concatenate(([0], changes, [len(ordered)])) if len(ordered) else np.zeros(1, np.int64)

    @cached_property
    def group_sequences(self) -> Ids:
        """Sequence of each group, in the order of `members_start`."""
        return self.sequences[self.members[self.members_start[:-1]]]

    def summary(self) -> str:
        """Return the numbers of groups and sequences as text."""
        groups, sequences = len(self.members_start) - 1, len(np.unique(self.sequences))
        return f"{groups:,} {inflect(groups, 'group')}, {sequences:,} {inflect(sequences, 'sequence')}"
