"""RomePatches: patches of 51x51, 10,000 to train and 10,000 to test, in 1,000 groups of 10 per half.

The official files of a half, "train" or "test", are

    patch_retrieval_Rome_train.mat            the patches
    patch_retrieval_Rome_train_labels.mat     their groups

The file names and these variables are published: `patches`, (N, 3, 51, 51) in 0..255, with colour on the second axis;
`labels_gt`, of the first 1,000 patches, which are the queries; `labels`, of the other 9,000, which are searched. The
files themselves were not available. It is assumed that the colours are red, green, blue, and that the first axis of
length 51 is vertical.

Other layouts are recognised by shape: one variable with two axes of length 51, one of length N, and optionally one of
length 1 or 3 for colour; one variable of N integers as groups.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from doap.datasets.sets.writer import write_patch_set
from doap.errors import DoapError
from doap.images.reading import to_grey
from doap.parsing.matlab_files import read_arrays
from doap.types import Progress, no_progress

SIZE = 51
MAX_BYTES = 1 << 30  # of the arrays of a file: patches of a half as float64 take 0.6 GB
MAX_INTEGER = 1 << 53  # that a float64 holds exactly
TRAIN, TEST = HALVES = ("train", "test")

Variables = dict[str, NDArray[Any]]


def source_files(folder: Path) -> list[Path]:
    """Return the files of the halves that are in a folder; empty if there are none."""
    halves = [half for half in HALVES if patches_file(folder, half).is_file()]
    return [file for half in halves for file in (patches_file(folder, half), labels_file(folder, half))]


def convert_romepatches(folder: Path, path: Path, progress: Progress = no_progress) -> None:
    """Convert a folder of RomePatches to a patch set, with one half in memory at a time.

    Each half becomes a sequence, "train" or "test"; colour is converted to luma. The label "query" is 1 for the
    official queries, the patches of `labels_gt`, and 0 for the others. The files do not state the extent of the
    patches; the default extent is assumed.

    Args:
        folder: Folder with the .mat files of one half or both.
        path: Patch set to write.
        progress: Callback, called as progress(halves done, total).

    Raises:
        DoapError: If a file is missing or damaged; nothing is written then.
    """
    halves = [half for half in HALVES if patches_file(folder, half).is_file()]
    if not halves:
        raise DoapError(f"{folder}: no {patches_file(folder, 'train').name} or {patches_file(folder, 'test').name}")
    groups = 0
    with write_patch_set(path, SIZE, halves) as writer:
        for number, half in enumerate(halves):
            patches = find_patches(read_mat(patches_file(folder, half)), patches_file(folder, half))
            labels, queries = find_labels(read_mat(labels_file(folder, half)), len(patches), labels_file(folder, half))
            distinct, dense = np.unique(labels, return_inverse=True)  # group numbers of the halves may coincide
            is_query = np.arange(len(patches)) < queries
            writer.append(patches, dense + groups, np.full(len(patches), number), query=is_query.astype(np.int64))
            groups += len(distinct)
            progress(number + 1, len(halves))


def write_romepatches(folder: Path, half: str, patches: NDArray[np.uint8], groups: NDArray[np.int64]) -> None:
    """Write the files of a half into a folder, not atomically; the grey value is written as three equal colours.

    Args:
        folder: The folder.
        half: "train" or "test".
        patches: (N, 51, 51) uint8; the first patches, as many as there are groups, are the queries.
        groups: (N,) integers; each of the first patches is of another group.
    """
    from scipy.io import savemat

    queries = len(np.unique(groups))
    if patches.dtype != np.uint8 or patches.shape != (len(groups), SIZE, SIZE):
        raise DoapError(f"{folder}: patches are {patches.dtype} {patches.shape}, not uint8 {(len(groups), SIZE, SIZE)}")
    if len(np.unique(groups[:queries])) != queries:
        raise DoapError(f"{folder}: the first {queries} patches must be one of each group, to be the queries")
    colours = np.repeat(patches[:, None], 3, axis=1)
    labels = groups.astype(np.float64)[None]
    savemat(patches_file(folder, half), {"patches": colours}, do_compression=True)
    savemat(labels_file(folder, half), {"labels_gt": labels[:, :queries], "labels": labels[:, queries:]})


def read_mat(file: Path) -> Variables:
    """Read the numeric variables of a MATLAB file of version 5 to 7.3, with MATLAB's order of axes."""
    if not file.is_file():
        raise DoapError(f"{file}: no such file; get the official data again")
    try:
        return read_arrays(file, MAX_BYTES)
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror}); get the official data again") from error
    except ValueError as error:
        raise DoapError(f"{file}: not a MATLAB file, or damaged ({error}); get the official data again") from error


def find_patches(variables: Variables, file: Path) -> NDArray[np.uint8]:
    """Return the patches of the only variable that holds patches: grey, (N, 51, 51) uint8.

    The layouts are those of the module docstring.
    """
    candidates = {name: axes for name, value in variables.items() if (axes := _axes(value.shape))}
    if len(candidates) != 1:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in variables.items()) or "none"
        raise DoapError(f"{file}: needs one variable of {SIZE}x{SIZE} patches, but the variables are {shapes}")
    name, axes = candidates.popitem()
    values = _to_bytes(variables[name].transpose(axes), name, file)
    if values.ndim == 3:
        return np.ascontiguousarray(values)
    if values.shape[-1] == 1:
        return np.ascontiguousarray(values[..., 0])
    return to_grey(Image.fromarray(np.ascontiguousarray(values).reshape(-1, SIZE, 3))).reshape(-1, SIZE, SIZE)


def find_labels(variables: Variables, patches: int, file: Path) -> tuple[NDArray[np.int64], int]:
    """Return the group of each patch (N,), and the number of official queries, which come first."""
    if {"labels", "labels_gt"} <= set(variables):
        queries, others = variables["labels_gt"].reshape(-1), variables["labels"].reshape(-1)
        labels = np.concatenate([queries, others])
        if len(labels) != patches:
            raise DoapError(f"{file}: {len(queries)} + {len(others)} labels (labels_gt, labels) for {patches} patches")
        return _to_integers(labels, "labels", file), len(queries)
    candidates = [name for name, value in variables.items() if value.size == patches == max(value.shape)]
    if len(candidates) != 1:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in variables.items()) or "none"
        raise DoapError(f"{file}: needs labels_gt and labels, or one of {patches} numbers; the variables are {shapes}")
    return _to_integers(variables[candidates[0]].reshape(-1), candidates[0], file), 0


def patches_file(folder: Path, half: str) -> Path:
    """Return the path of the patches of a half."""
    return folder / f"patch_retrieval_Rome_{half}.mat"


def labels_file(folder: Path, half: str) -> Path:
    """Return the path of the groups of a half."""
    return folder / f"patch_retrieval_Rome_{half}_labels.mat"


def _axes(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the permutation of axes to (N, 51, 51) or (N, 51, 51, colours), or None if the shape does not fit."""
    sides = tuple(axis for axis, length in enumerate(shape) if length == SIZE)
    others = [axis for axis in range(len(shape)) if axis not in sides]
    colours = tuple(axis for axis in others if shape[axis] in (1, 3)) if len(others) == 2 else ()
    counts = tuple(axis for axis in others if axis not in colours)
    if len(sides) != 2 or len(counts) != 1 or len(others) - len(colours) != 1:
        return None
    return counts + sides + colours


def _to_bytes(values: NDArray[Any], name: str, file: Path) -> NDArray[np.uint8]:
    if values.dtype == np.uint8:
        return values
    if not values.size:
        raise DoapError(f"{file}: {name} is empty")
    integers = _to_integers(values, name, file)
    if integers.min() < 0 or integers.max() > 255:
        raise DoapError(f"{file}: {name} holds {integers.min()} to {integers.max()}, but pixels are 0 to 255")
    return integers.astype(np.uint8)


def _to_integers(values: NDArray[Any], name: str, file: Path) -> NDArray[np.int64]:
    if not (np.isfinite(values).all() and (values == np.round(values)).all()):
        raise DoapError(f"{file}: {name} holds fractions or undefined values, but must hold integers")
    if values.size and max(-float(values.min()), float(values.max())) > MAX_INTEGER:
        raise DoapError(f"{file}: {name} holds {values.min():g} to {values.max():g}, too large for integers")
    return values.astype(np.int64)
