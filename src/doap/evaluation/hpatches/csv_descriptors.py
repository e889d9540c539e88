"""Descriptors in the layout of the official benchmark: NAME/SEQUENCE/ref.csv, e1.csv … t5.csv, one a row.

So descriptors made elsewhere are judged here, and ours by the official code. Numbers are separated by commas; when
reading, semicolons, tabs and blanks are known too. Bits are written as columns of 0 and 1, which the official code
compares rightly, since the Euclidean distance orders them as the Hamming distance does; they are read as numbers.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.datasets.official.hpatches import STRIPS
from doap.datasets.official.hpatches_tasks import sequence_blocks
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.harness.methods import Selection
from doap.files import atomic_folder
from doap.types import Descriptors, Progress, no_progress

SEPARATORS = (",", ";", "\t", " ")


class CsvDescriptors:
    """Descriptors read from a folder; a `PatchDescriber`.

    Args:
        folder: NAME, with a folder a sequence.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DoapError(f"{folder}: no such folder; descriptors lie in NAME/SEQUENCE/ref.csv …")
        self.folder = folder
        self.name = folder.resolve().name
        self._dimensions = 0

    def about(self) -> dict[str, Any]:
        """For the record of a result."""
        size = self._dimensions
        return {"name": self.name, "given": str(self.folder), "kind": "real", "bytes": 4 * size, "dimensions": size}

    def describe_patches(self, selection: Selection, progress: Progress = no_progress) -> Descriptors:
        """Read the (N, d) float32 descriptors of all patches of an HPatches set.

        Raises:
            DoapError: one line that names the file and the error.
        """
        blocks = sequence_blocks(selection.patches)
        parts: list[NDArray[np.float32]] = []
        for sequence, (_, rows) in blocks.items():
            for strip in STRIPS:
                file = self.folder / sequence / f"{strip}.csv"
                values = read_descriptors(file)
                if len(values) != rows:
                    raise DoapError(f"{file}: {len(values)} descriptors, but the strip has {rows} patches")
                if parts and values.shape[1] != parts[0].shape[1]:
                    raise DoapError(f"{file}: {values.shape[1]} columns, but files before it have {parts[0].shape[1]}")
                parts.append(values)
                progress(len(parts), len(blocks) * len(STRIPS))
        self._dimensions = parts[0].shape[1]
        return np.concatenate(parts)


def read_descriptors(file: Path) -> NDArray[np.float32]:
    """The (N, d) descriptors of a strip."""
    try:
        with file.open(encoding="utf-8") as lines:
            start = lines.readline()
        separator = next((mark for mark in SEPARATORS if mark in start.strip()), None)
        if not start.strip():
            raise DoapError(f"{file}: empty")
        values = np.loadtxt(file, np.float32, delimiter=None if separator == " " else separator, ndmin=2)
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DoapError(f"{file}: not a table of numbers ({str(error).splitlines()[0]})") from error
    finite = np.isfinite(values).all(1)
    if not finite.all():
        raise DoapError(f"{file}: row {int(np.argmin(finite)) + 1} has an entry that is infinite or no number")
    return values


def write_descriptors(
    folder: Path, patches: PatchSet, descriptors: Descriptors, progress: Progress = no_progress
) -> None:
    """Write descriptors for the official code; the folder appears whole or not at all.

    Args:
        folder: NAME, refused if it exists.
        patches: N of HPatches.
        descriptors: (N, d) float32, with digits enough to be read back exactly, or (N, bits / 8) uint8.
        progress: told the files written, and how many there are.
    """
    blocks = sequence_blocks(patches)
    binary = descriptors.dtype == np.uint8
    done = 0
    with atomic_folder(folder) as temporary:
        for sequence, (start, rows) in blocks.items():
            (temporary / sequence).mkdir()
            for number, strip in enumerate(STRIPS):
                part = descriptors[start + number * rows : start + (number + 1) * rows]
                values = np.unpackbits(part, axis=1) if binary else part
                np.savetxt(temporary / sequence / f"{strip}.csv", values, "%d" if binary else "%.9g", ",")
                done += 1
                progress(done, len(blocks) * len(STRIPS))
