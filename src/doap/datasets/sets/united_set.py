"""Unions of patch sets: one set to sample from, whose parts stay where they are, on disk or in memory."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import DTypeLike, NDArray

from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet, Pixels
from doap.errors import DoapError

READ_SIZES = (128, 64)  # sides of the largest patches that networks read: those of three and of two extents


class UnitedSet(PatchSet):
    """Union of patch sets; pixels are not copied, and are resized when they are read.

    All patches have the size of the largest part, reduced to the next of `READ_SIZES` if it is larger. Groups and
    sequences are renumbered, so that those of different parts differ. A sequence name that occurs in several parts is
    prefixed by the name of its part. Overlaps are kept; labels and frames are not. The extent is that of the part with
    the most patches, which a network trained on the union sees most often.

    Args:
        parts: Patch sets.
        names: Name of each part, all different.

    Attributes:
        parts: Patch sets, unchanged.
        part_names: Name of each part.
        part_sequences: Sequence ids of each part that have patches, ascending. Those of all parts, in order, are the
            sequences 0, 1, … of the union.

    Example:
        >>> import numpy as np
        >>> first = PatchSet([np.zeros((4, 64, 64), np.uint8)], groups=[0, 0, 1, 1])
        >>> second = PatchSet([np.zeros((2, 65, 65), np.uint8)], groups=[0, 0])
        >>> union = UnitedSet([first, second], ["first", "second"])
        >>> union.groups.tolist(), union.sequences.tolist(), union.size
        ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1], 64)
    """

    def __init__(self, parts: Sequence[PatchSet], names: Sequence[str]) -> None:
        if len(set(names)) < len(parts):
            raise DoapError(f"the parts of a union need different names, not {', '.join(names)}")
        self.parts, self.part_names = list(parts), list(names)
        self.part_sequences: list[Ids] = [np.unique(part.sequences) for part in parts]
        largest = max(part.size for part in parts)
        size = next((size for size in READ_SIZES if largest >= size), largest)
        shards = [shard if part.size == size else ResizedShard(shard, size) for part in parts for shard in part.shards]
        group_counts = [len(part.members_start) - 1 for part in parts]
        first_groups = np.cumsum([0, *group_counts[:-1]])
        first_sequences = np.cumsum([0, *map(len, self.part_sequences[:-1])])
        groups, overlaps = [], []
        for part, first in zip(parts, first_groups, strict=True):
            ids, dense = np.unique(part.groups, return_inverse=True)
            groups.append(dense.ravel() + first)
            overlaps.append(np.searchsorted(ids, part.overlaps) + first)
        sequences = [
            np.searchsorted(ids, part.sequences) + first
            for part, ids, first in zip(parts, self.part_sequences, first_sequences, strict=True)
        ]
        super().__init__(
            shards,
            np.concatenate(groups),
            np.concatenate(sequences),
            sequence_names=self._sequence_names(),
            extent=max(parts, key=len).extent,
            overlaps=np.concatenate(overlaps),
        )

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))

    def _sequence_names(self) -> list[str]:
        by_part = [
            [part.sequence_names[number] if part.sequence_names else f"sequence {number}" for number in ids]
            for part, ids in zip(self.parts, self.part_sequences, strict=True)
        ]
        parts_with = Counter(name for names in by_part for name in set(names))
        return [
            f"{part}/{name}" if parts_with[name] > 1 else name
            for part, names in zip(self.part_names, by_part, strict=True)
            for name in names
        ]


class ResizedShard:
    """Patches that are resized when they are read, by antialiased bilinear interpolation, as a network's input is.

    Args:
        shard: (n, S, S) uint8.
        size: Side to resize to.

    Attributes:
        original: The shard as it is stored.
    """

    dtype = np.dtype(np.uint8)
    ndim = 3

    def __init__(self, shard: Pixels, size: int) -> None:
        self.original = shard
        self._size = size

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the resized patches."""
        return (len(self.original), self._size, self._size)

    def __len__(self) -> int:
        return len(self.original)

    def __getitem__(self, rows: slice | Ids, /) -> Any:
        """Return some patches: by a slice as a shard that is not read yet, by indices as an array."""
        if isinstance(rows, slice):
            return ResizedShard(self.original[rows], self._size)
        return _resize(np.asarray(self.original[rows]), self._size)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all patches as an array."""
        pixels = _resize(np.asarray(self.original), self._size)
        return pixels if dtype is None else pixels.astype(dtype)


def original_size(shard: Pixels | ResizedShard) -> int:
    """Return the side of the patches of a shard before they are resized."""
    return original_size(shard.original) if isinstance(shard, ResizedShard) else int(shard.shape[1])


def _resize(patches: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    values = torch.from_numpy(np.ascontiguousarray(patches))[:, None].float()
    resized = F.interpolate(values, (size, size), mode="bilinear", antialias=True)[:, 0]
    return resized.round().to(torch.uint8).numpy()
