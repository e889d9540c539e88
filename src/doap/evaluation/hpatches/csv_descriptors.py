"""Descriptors in the layout of the official benchmark: NAME/SEQUENCE/ref.csv, e1.csv … t5.csv, one row per patch.

Descriptors computed elsewhere can thus be evaluated here, and ours by the official code. Numbers are separated by
commas; semicolons, tabs and blanks are also read. Bits are written as columns of 0 and 1 and read as numbers: the
official code uses the Euclidean distance, which orders them as the Hamming distance does.
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
        folder: Folder NAME, with one folder per sequence.

    Raises:
        DoapError: If there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DoapError(f"{folder}: no such folder; give one with descriptors in SEQUENCE/ref.csv …")
        self.folder = folder
        self.name = folder.resolve().name
        self._dimensions = 0

    def metadata(self) -> dict[str, Any]:
        """Return the entry of `Result.methods`; the size is known after `describe_patches`."""
        size = self._dimensions
        return {"name": self.name, "spec": str(self.folder), "kind": "real", "bytes": 4 * size, "dimensions": size}

    def describe_patches(self, selection: Selection, progress: Progress = no_progress) -> Descriptors:
        """Read the (N, d) float32 descriptors of all patches of an HPatches set.

        Args:
            selection: All patches of the set.
            progress: Callback, called as `progress(done, total)` with numbers of files.

        Raises:
            DoapError: If a file cannot be read, or has another number of rows or columns than expected.
        """
        blocks = sequence_blocks(selection.patches)
        strips: list[NDArray[np.float32]] = []
        for sequence, (_, rows) in blocks.items():
            for strip in STRIPS:
                file = self.folder / sequence / f"{strip}.csv"
                values = read_descriptors(file)
                if len(values) != rows:
                    raise DoapError(f"{file}: {len(values)} descriptors, but the strip has {rows} patches")
                if strips and values.shape[1] != strips[0].shape[1]:
                    raise DoapError(f"{file}: {values.shape[1]} columns, but files before it have {strips[0].shape[1]}")
                strips.append(values)
                progress(len(strips), len(blocks) * len(STRIPS))
        self._dimensions = strips[0].shape[1]
        return np.concatenate(strips)


def read_descriptors(file: Path) -> NDArray[np.float32]:
    """Read the (N, d) descriptors of a strip.

    Raises:
        DoapError: If the file cannot be read or is not a table of finite numbers.
    """
    try:
        with file.open(encoding="utf-8-sig") as lines:
            start = lines.readline()
        separator = next((mark for mark in SEPARATORS if mark in start.strip()), None)
        if not start.strip():
            raise DoapError(f"{file}: empty")
        delimiter = None if separator == " " else separator
        values = np.loadtxt(file, np.float32, delimiter=delimiter, ndmin=2, encoding="utf-8-sig")
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DoapError(f"{file}: not a table of numbers ({str(error).splitlines()[0]})") from error
    is_finite = np.isfinite(values).all(1)
    if not is_finite.all():
        raise DoapError(f"{file}: row {int(np.argmin(is_finite)) + 1} has an entry that is infinite or not a number")
    return values


def write_descriptors(
    folder: Path, patches: PatchSet, descriptors: Descriptors, progress: Progress = no_progress
) -> None:
    """Write descriptors for the official code, atomically.

    Args:
        folder: New folder NAME; an existing one is refused.
        patches: Set of N patches of HPatches.
        descriptors: (N, d) float32, written with enough digits to be read back exactly, or (N, bits / 8) uint8.
        progress: Callback, called as `progress(done, total)` with numbers of files.
    """
    blocks = sequence_blocks(patches)
    is_binary = descriptors.dtype == np.uint8
    done = 0
    with atomic_folder(folder) as temporary:
        for sequence, (start, rows) in blocks.items():
            (temporary / sequence).mkdir()
            for number, strip in enumerate(STRIPS):
                values = descriptors[start + number * rows : start + (number + 1) * rows]
                values = np.unpackbits(values, axis=1) if is_binary else values
                np.savetxt(temporary / sequence / f"{strip}.csv", values, "%d" if is_binary else "%.9g", ",")
                done += 1
                progress(done, len(blocks) * len(STRIPS))
