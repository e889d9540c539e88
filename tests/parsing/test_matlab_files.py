"""MATLAB files: the arrays that SciPy and h5py read, in memory that is bounded by the file."""

import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.io import loadmat, savemat
from scipy.sparse import csc_matrix

from doap.parsing.matlab_files import read_arrays, read_shapes

LIMIT = 1 << 22
TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")


def element(kind: int, content: bytes, claimed: int | None = None) -> bytes:
    """Return an element, which may claim another length."""
    return struct.pack("<II", kind, len(content) if claimed is None else claimed) + content + bytes(-len(content) % 8)


def matlab_5(variable: bytes, compress: bool) -> bytes:
    """Return a file of version 5 with one element."""
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    return header + (element(15, zlib.compress(variable, 9)) if compress else variable)


def variable(content: bytes, shape: tuple[int, ...], **claims: int) -> bytes:
    """Return the element of a variable of bytes; `claims` are lengths of its name, its values and itself."""
    parts = element(6, struct.pack("<II", 9, 0)) + element(5, struct.pack(f"<{len(shape)}i", *shape))
    parts += element(1, b"patches", claims.get("name")) + element(2, content, claims.get("values"))
    return element(14, parts, claims.get("all"))


@pytest.mark.parametrize("compress", [False, True])
def test_arrays_are_those_of_scipy(tmp_path: Path, compress: bool) -> None:
    random = np.random.default_rng(0)
    shapes = ((3, 4), (1, 1), (1, 3), (2, 3, 4, 5), (0, 4), (300, 200))
    arrays = {
        f"{kind}_{number}": (100 * random.random(shape)).astype(kind)
        for kind in TYPES
        for number, shape in enumerate(shapes)
    }
    others: dict[str, Any] = {
        "text": "words", "structure": {"field": np.zeros(3)}, "cells": np.array([1, "two"], object),
        "complex": np.array([[1j, 2.0]]), "sparse": csc_matrix(np.eye(3)),
    }  # fmt: skip
    savemat(tmp_path / "a.mat", {**others, **arrays, "flag": np.array([[True, False]])}, do_compression=compress)
    read, expected = read_arrays(tmp_path / "a.mat", LIMIT), loadmat(tmp_path / "a.mat")
    assert set(read) == {*arrays, "flag"}
    assert read_shapes(tmp_path / "a.mat", LIMIT) == {name: values.shape for name, values in read.items()}
    for name, values in read.items():
        assert values.dtype == expected[name].dtype
        np.testing.assert_array_equal(values, expected[name])


def test_files_of_other_byte_order_are_read(tmp_path: Path) -> None:
    parts = b"".join(
        struct.pack(">II", kind, len(content)) + content
        for kind, content in ((6, struct.pack(">II", 11, 0)), (5, struct.pack(">ii", 1, 2)), (1, b"a" + bytes(7)))
    )
    parts += struct.pack(">IHH", 4 << 16 | 4, 258, 7)  # two values in the tag itself
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"
    (tmp_path / "a.mat").write_bytes(header + struct.pack(">II", 14, len(parts)) + parts)
    (values,) = read_arrays(tmp_path / "a.mat", LIMIT).values()
    assert values.tolist() == [[258, 7]]


HUGE = 3_100_000_000
HOSTILE: dict[str, tuple[bytes, str]] = {
    "zeros": (matlab_5(variable(bytes(LIMIT + 1), (1, LIMIT + 1)), True), "over the limit"),
    "values": (matlab_5(variable(bytes(8), (1, HUGE // 2), values=HUGE // 2), True), "has 1,550,000,000 bytes"),
    "all": (matlab_5(variable(bytes(8), (1, HUGE // 2), values=HUGE // 2, all=HUGE), True), "over the limit"),
    "plain": (matlab_5(variable(bytes(8), (1, HUGE // 2), values=HUGE // 2), False), "has 1,550,000,000 bytes"),
    "element": (matlab_5(variable(bytes(8), (1, 8), all=HUGE), False), "truncated"),
    "name": (matlab_5(variable(bytes(8), (1, 8), name=HUGE), True), "3,100,000,000 bytes in the header"),
    "shape": (matlab_5(variable(bytes(8), (1 << 30, 1 << 30)), True), "has 8 bytes"),
    "negative": (matlab_5(variable(bytes(8), (-2, -4)), True), "has 8 bytes"),
    "longer": (matlab_5(variable(bytes(8), (1, 8)) + bytes(1 << 24), True), "of another length"),
    "version 4": (struct.pack("<5i", 0, 1, HUGE // 8, 0, 2) + b"a\0", "no header of version 5"),
    "empty": (b"", "no header of version 5"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_claims_of_gigabytes_are_refused_before_they_are_read(tmp_path: Path, kind: str) -> None:
    content, message = HOSTILE[kind]
    (tmp_path / "a.mat").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ValueError, match=message) as caught:
        read_arrays(tmp_path / "a.mat", LIMIT)
    assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT
    tracemalloc.stop()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["chunked", "contiguous", "large", "blocks", "external", "virtual", "link"])
def test_claims_of_hdf5_are_refused_before_they_are_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(range(100)))
    with h5py.File(tmp_path / "a.mat", "w") as file:
        if kind == "chunked":  # no block is stored: a file of some kilobytes
            file.create_dataset("a", (400_000, 3, 51, 51), "u1", chunks=(1, 3, 51, 51))
        elif kind == "contiguous":
            file.create_dataset("a", (HUGE,), "u1")
        elif kind == "large":
            file.create_dataset("a", data=np.zeros(LIMIT + 1, np.uint8), compression="gzip")
        elif kind == "blocks":
            item = file.create_dataset("a", (10,), "u1", maxshape=(None,), chunks=(2 * LIMIT,), compression="gzip")
            item[:] = 1
        elif kind == "external":
            file.create_dataset("a", (100,), "u1", external=str(tmp_path / "secret"))
        elif kind == "virtual":
            layout = h5py.VirtualLayout((3,), "u1")
            layout[:] = h5py.VirtualSource(str(tmp_path / "b.mat"), "a", (3,))
            file.create_virtual_dataset("a", layout)
        else:
            file["a"] = h5py.ExternalLink(tmp_path / "secret", "a")
    tracemalloc.start()
    if kind == "link":
        assert read_arrays(tmp_path / "a.mat", LIMIT) == {}
    else:
        with pytest.raises(ValueError, match=r"claims|stored"):
            read_arrays(tmp_path / "a.mat", LIMIT)
    assert tracemalloc.get_traced_memory()[1] < LIMIT
    tracemalloc.stop()
