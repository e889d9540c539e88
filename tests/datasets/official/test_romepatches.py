import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from doap import DoapError, PatchSet
from doap.datasets.official.romepatches import convert_romepatches, find_patches, read_mat, write_romepatches
from doap.types import Grey
from support.sets.official_formats import PER_GROUP, QUERIES, write_half, write_mat5, write_mat73

WRITERS = {"version 5": write_mat5, "version 7.3": write_mat73}


def luma(patch: NDArray[np.uint8]) -> Grey:
    return np.asarray(Image.fromarray(patch.transpose(1, 2, 0)).convert("L"))


@pytest.mark.parametrize("version", WRITERS)
def test_both_halves(tmp_path: Path, version: str) -> None:
    train, train_labels = write_half(tmp_path / "rome", "train", WRITERS[version], 1)
    test, test_labels = write_half(tmp_path / "rome", "test", WRITERS[version], 2)
    calls: list[tuple[int, int]] = []
    convert_romepatches(tmp_path / "rome", tmp_path / "set", lambda done, total: calls.append((done, total)))
    converted = PatchSet.open(tmp_path / "set")
    assert converted.sequence_names == ["train", "test"]
    assert calls == [(1, 2), (2, 2)]
    np.testing.assert_array_equal(converted.take(np.arange(120)), [luma(p) for p in np.concatenate([train, test])])
    assert set(np.diff(converted.members_start)) == {PER_GROUP}
    both = np.concatenate([train_labels, test_labels + 1000])
    np.testing.assert_array_equal(converted.groups[:, None] == converted.groups, both[:, None] == both)
    np.testing.assert_array_equal(converted.labels["query"], np.tile(np.arange(60) < QUERIES, 2))


def test_one_half(tmp_path: Path) -> None:
    write_half(tmp_path / "rome", "test")
    convert_romepatches(tmp_path / "rome", tmp_path / "set")
    assert PatchSet.open(tmp_path / "set").sequence_names == ["test"]


GREY = np.random.default_rng(5).integers(0, 256, (20, 51, 51), dtype=np.uint8)
LAYOUTS: dict[str, NDArray[Any]] = {
    "patches first": GREY,
    "patches last": GREY.transpose(1, 2, 0),
    "one channel": GREY[:, None],
    "one channel at the end": GREY[..., None],
    "as doubles": GREY.astype(np.float64),
}


@pytest.mark.parametrize("version", WRITERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_layouts_are_taken_by_shape(tmp_path: Path, layout: str, version: str) -> None:
    folder = tmp_path / "rome"
    folder.mkdir()
    write = WRITERS[version]
    write(folder / "patch_retrieval_Rome_test.mat", data=LAYOUTS[layout], other=np.arange(5.0)[None])
    write(folder / "patch_retrieval_Rome_test_labels.mat", groups=np.arange(20.0)[:, None] // 2)
    convert_romepatches(folder, tmp_path / "set")
    converted = PatchSet.open(tmp_path / "set")
    np.testing.assert_array_equal(converted.take(np.arange(20)), GREY)
    np.testing.assert_array_equal(converted.groups, np.arange(20) // 2)
    assert not converted.labels["query"].any()


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 3, 1), (2, 3, 1, 0), (1, 2, 3, 0)])
def test_colour_is_found_on_any_axis(axes: tuple[int, ...]) -> None:
    colour = np.random.default_rng(6).integers(0, 256, (4, 3, 51, 51), dtype=np.uint8)
    converted = find_patches({"patches": colour.transpose(axes)}, Path("x.mat"))
    np.testing.assert_array_equal(converted, [luma(p) for p in colour])


def test_an_empty_array_is_one_line() -> None:
    with pytest.raises(DoapError, match=r"x\.mat: patches is empty"):
        find_patches({"patches": np.zeros((0, 51, 51))}, Path("x.mat"))


PATCHES, LABELS = "patch_retrieval_Rome_train.mat", "patch_retrieval_Rome_train_labels.mat"


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def write_truncated_mat73(file: Path) -> None:
    write_mat73(file, patches=GREY)
    os.truncate(file, 9000)


def write_empty_mat73(file: Path) -> None:
    """Write a file of some kilobytes whose patches take 3.1 GB."""
    with h5py.File(file, "w") as store:
        store.create_dataset("patches", (51, 51, 3, 400_000), "u1", chunks=(51, 51, 3, 10))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no labels": (lambda f: (f / LABELS).unlink(), f"{LABELS}: no such file"),
    "truncated": (lambda f: os.truncate(f / PATCHES, 4000), f"{PATCHES}: not a MATLAB file, or damaged"),
    "corrupt": (lambda f: flip(f / PATCHES), f"{PATCHES}: not a MATLAB file, or damaged"),
    "empty": (lambda f: os.truncate(f / PATCHES, 0), f"{PATCHES}: not a MATLAB file"),
    "text": (lambda f: (f / PATCHES).write_text("hello\n" * 100), f"{PATCHES}: not a MATLAB file"),
    "no patches": (lambda f: write_mat5(f / PATCHES, a=np.zeros((5, 4))), rf"{PATCHES}: .* variables are a \(5, 4\)"),
    "another size": (
        lambda f: write_mat5(f / PATCHES, patches=np.zeros((60, 64, 64), np.uint8)),
        f"{PATCHES}: needs one variable of 51x51 patches",
    ),
    "two candidates": (lambda f: write_mat5(f / PATCHES, a=GREY, b=GREY), f"{PATCHES}: needs one variable"),
    "16 bit": (
        lambda f: write_mat5(f / PATCHES, patches=np.full((60, 51, 51), 4095, np.uint16)),
        f"{PATCHES}: patches holds 4095 to 4095, but pixels are 0 to 255",
    ),
    "fractions": (
        lambda f: write_mat5(f / PATCHES, patches=np.full((60, 51, 51), 0.5)),
        f"{PATCHES}: patches holds fractions",
    ),
    "too few labels": (
        lambda f: write_mat5(f / LABELS, labels_gt=np.zeros((1, 6)), labels=np.zeros((1, 50))),
        rf"{LABELS}: 6 \+ 50 labels .* for 60 patches",
    ),
    "no labels inside": (lambda f: write_mat5(f / LABELS, a=np.zeros((1, 6))), f"{LABELS}: needs labels_gt"),
    "undefined labels": (lambda f: write_mat5(f / LABELS, a=np.full((1, 60), np.nan)), f"{LABELS}: a holds fractions"),
    "labels out of range": (
        lambda f: write_mat5(f / LABELS, a=np.linspace(0, 1e300, 60)[None].round()),
        f"{LABELS}: a holds 0 to 1e\\+300, too large",
    ),
    "claims of gigabytes": (lambda f: write_empty_mat73(f / PATCHES), f"{PATCHES}: .* claims 3,121,200,000 bytes"),
    "truncated 7.3": (
        lambda f: write_truncated_mat73(f / PATCHES),
        f"{PATCHES}: not a MATLAB file, or damaged",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_named_in_one_line(tmp_path: Path, damage: str) -> None:
    write_half(tmp_path / "rome", "train")
    apply, message = DAMAGES[damage]
    apply(tmp_path / "rome")
    with pytest.raises(DoapError, match=message) as caught:
        convert_romepatches(tmp_path / "rome", tmp_path / "set")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["rome"]


@pytest.mark.parametrize("version", WRITERS)
def test_any_damage_is_reported_or_harmless(tmp_path: Path, version: str) -> None:
    WRITERS[version](tmp_path / "a.mat", patches=GREY[:2], labels=np.arange(2.0)[None])
    whole = (tmp_path / "a.mat").read_bytes()
    random = np.random.default_rng(0)
    errors = []
    for offset in [*range(0, 400, 7), *random.integers(0, len(whole), 100)]:
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << random.integers(8)
        (tmp_path / "b.mat").write_bytes(damaged if offset % 2 else damaged[:offset])
        try:
            read_mat(tmp_path / "b.mat")
        except DoapError as error:
            errors.append(str(error))
    assert len(errors) > 50
    assert not any("\n" in line for line in errors)


def test_a_folder_without_files(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"no patch_retrieval_Rome_train\.mat or patch_retrieval_Rome_test\.mat"):
        convert_romepatches(tmp_path, tmp_path / "set")


def test_a_written_half_is_official(tmp_path: Path) -> None:
    """The variables are those that SciPy reads from the independent writer's files."""
    from scipy.io import loadmat

    write_half(tmp_path / "expected", "test")
    pixels = np.random.default_rng(0).integers(0, 256, (60, 51, 51), dtype=np.uint8)
    groups = np.concatenate([np.arange(40, 46), np.repeat(np.arange(40, 46), 9)])
    write_romepatches(tmp_path, "test", pixels, groups)
    for name in ("patch_retrieval_Rome_test.mat", "patch_retrieval_Rome_test_labels.mat"):
        written, expected = ({k: v for k, v in loadmat(path / name).items() if k[0] != "_"}
                             for path in (tmp_path, tmp_path / "expected"))  # fmt: skip
        assert {k: (v.shape, v.dtype) for k, v in written.items()} == {
            k: (v.shape, v.dtype) for k, v in expected.items()
        }
    convert_romepatches(tmp_path, tmp_path / "set")
    converted = PatchSet.open(tmp_path / "set")
    np.testing.assert_array_equal(converted.take(np.arange(60)), pixels)
    np.testing.assert_array_equal(converted.groups, groups - 40)
    np.testing.assert_array_equal(converted.labels["query"], np.arange(60) < 6)


def test_queries_must_be_one_of_each_group(tmp_path: Path) -> None:
    pixels = np.zeros((4, 51, 51), np.uint8)
    with pytest.raises(DoapError, match="the first 2 patches must be one of each group"):
        write_romepatches(tmp_path, "test", pixels, np.array([0, 0, 1, 1]))
    with pytest.raises(DoapError, match=r"patches are uint8 \(4, 51, 51\), not uint8 \(3, 51, 51\)"):
        write_romepatches(tmp_path, "test", pixels, np.arange(3))
