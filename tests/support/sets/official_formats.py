"""Small data sets in exactly the official formats, written independently of the code under test."""

import struct
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.io import savemat

from doap.types import Grey

QUERIES, PER_GROUP = 6, 10  # per half of RomePatches

Patches = NDArray[np.uint8]


def write_bmp(file: Path, pixels: Grey) -> None:
    """Write an 8-bit BMP with a grey palette and rows from the bottom up, as the Phototour sheets are."""
    height, width = pixels.shape
    palette = b"".join(bytes([i, i, i, 0]) for i in range(256))
    header = struct.pack("<2sIHHI", b"BM", 1078 + pixels.size, 0, 0, 1078)
    header += struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 0, pixels.size, 0, 0, 256, 0)
    assert width % 4 == 0  # rows are padded to four bytes
    file.write_bytes(header + palette + pixels[::-1].tobytes())


def write_phototour(folder: Path, patches: Patches, points: NDArray[np.int64]) -> None:
    """Write sheets of 16x16 patches, row by row, the last one padded with black, and info.txt."""
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, len(patches), 256)):
        sheet = np.zeros((1024, 1024), np.uint8)
        for index, patch in enumerate(patches[start : start + 256]):
            top, left = 64 * (index // 16), 64 * (index % 16)
            sheet[top : top + 64, left : left + 64] = patch
        write_bmp(folder / f"patches{number:04d}.bmp", sheet)
    (folder / "info.txt").write_text("".join(f"{point} 0\n" for point in points))


def some_phototour(folder: Path, count: int = 300, seed: int = 0) -> tuple[Patches, NDArray[np.int64]]:
    """Write random patches, three per point, and return the patches and their points."""
    random = np.random.default_rng(seed)
    patches = random.integers(0, 256, (count, 64, 64), dtype=np.uint8)
    points = 7 + np.arange(count) // 3 * 2  # neither from 0 nor without gaps
    write_phototour(folder, patches, points)
    return patches, points


def write_mat73(file: Path, **variables: NDArray[Any]) -> None:
    """Write a MATLAB 7.3 file: HDF5 after a header of 512 bytes, reversed axes, the class of each variable."""
    with h5py.File(file, "w", userblock_size=512) as store:
        for name, values in variables.items():
            item = store.create_dataset(name, data=values.T)
            item.attrs["MATLAB_class"] = np.bytes_({"uint8": "uint8", "float64": "double"}[str(values.dtype)])
    text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  5 10:00:00 2015 HDF5 schema 1.00 ."
    with file.open("r+b") as raw:
        raw.write(text.ljust(116) + bytes(8) + struct.pack("<H", 0x0200) + b"IM")


def write_mat5(file: Path, **variables: NDArray[Any]) -> None:
    """Write a MATLAB file of version 5."""
    savemat(file, variables, do_compression=True)


class MatWriter(Protocol):
    """Writer of a MATLAB file."""

    def __call__(self, file: Path, **variables: NDArray[Any]) -> None:
        """Write variables by name."""


def write_half(
    folder: Path, half: str, write: MatWriter = write_mat5, seed: int = 0
) -> tuple[Patches, NDArray[np.int64]]:
    """Write a half of RomePatches in colour, queries first; return the patches (N, 3, 51, 51) and their labels."""
    random = np.random.default_rng(seed)
    patches = random.integers(0, 256, (QUERIES * PER_GROUP, 3, 51, 51), dtype=np.uint8)
    queries = np.arange(1, QUERIES + 1, dtype=np.float64)[None]
    others = random.permutation(np.repeat(np.arange(1, QUERIES + 1, dtype=np.float64), PER_GROUP - 1))[None]
    folder.mkdir(exist_ok=True)
    write(folder / f"patch_retrieval_Rome_{half}.mat", patches=patches)
    write(folder / f"patch_retrieval_Rome_{half}_labels.mat", labels_gt=queries, labels=others)
    return patches, np.concatenate([queries[0], others[0]]).astype(np.int64)
