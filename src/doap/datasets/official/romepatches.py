"""RomePatches: 10,000 patches of 51x51 to train and 10,000 to test, 1,000 groups of 10 in each half.

The official files of a half, "train" or "test", are

    patch_retrieval_Rome_train.mat            the patches
    patch_retrieval_Rome_train_labels.mat     their groups

What was found published: these file names; the variable `patches` with the patches along its first axis and
colour next, (N, 3, 51, 51), in 0..255; the variables `labels_gt`, of the first 1,000 patches, which are the
queries, and `labels`, of the other 9,000, among which they are sought. What is assumed, since the files could
not be seen: that colour is red, green, blue, and that of the two axes of 51 the first runs down the picture.

So other layouts are taken by shape: any one variable with two axes of 51, one of N, and perhaps one of 1 or 3
for colour; any one variable of N whole numbers as groups. MATLAB's files of version 5 to 7.2 are read through
SciPy, those of 7.3 through h5py, which shows the axes of a MATLAB array in reverse.
"""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.io import loadmat

from doap.datasets.sets.writer import write_patch_set
from doap.errors import DoapError
from doap.images.reading import to_grey
from doap.types import Progress, no_progress

SIZE = 51
HALVES = ("train", "test")

Variables = dict[str, NDArray[Any]]


def source_files(folder: Path) -> list[Path]:
    """The files of patches and of labels of the halves that are there; empty if there is none."""
    halves = [half for half in HALVES if patches_file(folder, half).is_file()]
    return [file for half in halves for file in (patches_file(folder, half), labels_file(folder, half))]


def convert_romepatches(folder: Path, path: Path, progress: Progress = no_progress) -> None:
    """Write the halves of RomePatches that are in a folder as one patch set, one half in memory at a time.

    Each half is a sequence, "train" or "test"; colour becomes luma. The label "query" is 1 for the official
    queries, the patches of `labels_gt`, and 0 for the others. How large the patches are for their
    keypoints is not in the files; the extent is the default one, by assumption.

    Args:
        folder: with the .mat files.
        path: the patch set to write.
        progress: told the halves done, and how many there are.

    Raises:
        DoapError: one line that names the file and the error; nothing is written then.
    """
    halves = [half for half in HALVES if patches_file(folder, half).is_file()]
    if not halves:
        raise DoapError(f"{folder}: no {patches_file(folder, 'train').name} or {patches_file(folder, 'test').name}")
    groups = 0
    with write_patch_set(path, SIZE, halves) as writer:
        for number, half in enumerate(halves):
            patches = find_patches(read_mat(patches_file(folder, half)), patches_file(folder, half))
            labels, queries = find_labels(read_mat(labels_file(folder, half)), len(patches), labels_file(folder, half))
            distinct, dense = np.unique(labels, return_inverse=True)  # both halves may count from 1
            is_query = np.arange(len(patches)) < queries
            writer.append(patches, dense + groups, np.full(len(patches), number), query=is_query.astype(np.int64))
            groups += len(distinct)
            progress(number + 1, len(halves))


def read_mat(file: Path) -> Variables:
    """The numeric variables of a MATLAB file of any version, with MATLAB's order of axes."""
    if not file.is_file():
        raise DoapError(f"{file}: no such file; get the official data again")
    try:
        if h5py.is_hdf5(file):
            with h5py.File(file, "r") as store:
                found = {name: item[()].T for name, item in store.items() if isinstance(item, h5py.Dataset)}
        else:
            found = loadmat(str(file), appendmat=False)
    except Exception as error:  # both readers raise what their damaged bytes happen to cause, from KeyError to zlib's
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DoapError(f"{file}: not a MATLAB file, or a damaged one ({reason})") from error
    return {k: v for k, v in found.items() if isinstance(v, np.ndarray) and v.dtype.kind in "biuf"}


def find_patches(variables: Variables, file: Path) -> NDArray[np.uint8]:
    """The one variable that holds patches, grey, (N, 51, 51) uint8; see above for the layouts."""
    fitting = {name: axes for name, value in variables.items() if (axes := _axes(value.shape))}
    if len(fitting) != 1:
        seen = ", ".join(f"{name} {value.shape}" for name, value in variables.items()) or "none"
        raise DoapError(f"{file}: needs one variable of {SIZE}x{SIZE} patches, but the variables are {seen}")
    name, axes = fitting.popitem()
    values = _to_bytes(variables[name].transpose(axes), name, file)
    if values.ndim == 3:
        return np.ascontiguousarray(values)
    if values.shape[-1] == 1:
        return np.ascontiguousarray(values[..., 0])
    return to_grey(Image.fromarray(np.ascontiguousarray(values).reshape(-1, SIZE, 3))).reshape(-1, SIZE, SIZE)


def find_labels(variables: Variables, patches: int, file: Path) -> tuple[NDArray[np.int64], int]:
    """The group of each patch (N,), and how many patches at the beginning are the official queries."""
    if {"labels", "labels_gt"} <= set(variables):
        queries, others = variables["labels_gt"].reshape(-1), variables["labels"].reshape(-1)
        labels = np.concatenate([queries, others])
        if len(labels) != patches:
            raise DoapError(f"{file}: {len(queries)} + {len(others)} labels (labels_gt, labels) for {patches} patches")
        return _whole(labels, "labels", file), len(queries)
    fitting = [name for name, value in variables.items() if value.size == patches == max(value.shape)]
    if len(fitting) != 1:
        seen = ", ".join(f"{name} {value.shape}" for name, value in variables.items()) or "none"
        raise DoapError(f"{file}: needs labels_gt and labels, or one of {patches} numbers; the variables are {seen}")
    return _whole(variables[fitting[0]].reshape(-1), fitting[0], file), 0


def patches_file(folder: Path, half: str) -> Path:
    """The file of the patches of a half."""
    return folder / f"patch_retrieval_Rome_{half}.mat"


def labels_file(folder: Path, half: str) -> Path:
    """The file of their groups."""
    return folder / f"patch_retrieval_Rome_{half}_labels.mat"


def _axes(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order of axes that makes (N, 51, 51) or (N, 51, 51, colours) of a shape, or None if it holds no patches."""
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
    narrow = _whole(values, name, file)
    if narrow.min() < 0 or narrow.max() > 255:
        raise DoapError(f"{file}: {name} holds {narrow.min()} to {narrow.max()}, but pixels are 0 to 255")
    return narrow.astype(np.uint8)


def _whole(values: NDArray[Any], name: str, file: Path) -> NDArray[np.int64]:
    if not (np.isfinite(values).all() and (values == np.round(values)).all()):
        raise DoapError(f"{file}: {name} holds fractions, where whole numbers are needed")
    return values.astype(np.int64)
