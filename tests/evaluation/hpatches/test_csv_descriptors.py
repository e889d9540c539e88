"""Descriptor folders of the official benchmark: written, read back, and refused in one line."""

from pathlib import Path

import numpy as np
import pytest

from doap.errors import DoapError
from doap.evaluation.harness.methods import Selection
from doap.evaluation.hpatches.csv_descriptors import CsvDescriptors, read_descriptors, write_descriptors
from support.slow_hpatches import patch_indices, small_set, some_codes

PATCHES = small_set({"i_a": 4, "v_b": 3})


def test_vectors_are_read_back_exactly(tmp_path: Path) -> None:
    made = some_codes("vectors", len(PATCHES))
    write_descriptors(tmp_path / "mine", PATCHES, made)
    actual = CsvDescriptors(tmp_path / "mine")
    np.testing.assert_array_equal(actual.describe_patches(Selection(PATCHES)), made)
    assert actual.metadata() == {
        "name": "mine",
        "spec": str(tmp_path / "mine"),
        "kind": "real",
        "bytes": 96,
        "dimensions": 24,
    }


def test_the_layout_is_the_official_one(tmp_path: Path) -> None:
    made = some_codes("few levels", len(PATCHES))
    write_descriptors(tmp_path / "mine", PATCHES, made)
    strips = ["ref", *(f"{noise}{image}" for noise in "eht" for image in range(1, 6))]
    assert sorted(p.name for p in (tmp_path / "mine" / "v_b").iterdir()) == sorted(f"{strip}.csv" for strip in strips)
    rows = (tmp_path / "mine" / "v_b" / "h4.csv").read_text().splitlines()
    assert [float(number) for number in rows[2].split(",")] == made[patch_indices(PATCHES)["v_b", "h4", 2]].tolist()
    assert len(rows) == 3


def test_bits_are_written_as_columns(tmp_path: Path) -> None:
    made = some_codes("bits", len(PATCHES))
    write_descriptors(tmp_path / "mine", PATCHES, made)
    assert set((tmp_path / "mine" / "i_a" / "ref.csv").read_text()) == set("01,\n")
    actual = CsvDescriptors(tmp_path / "mine").describe_patches(Selection(PATCHES))
    np.testing.assert_array_equal(actual, np.unpackbits(made, axis=1))


@pytest.mark.parametrize("text", ["1,2.5\n3,4e-1\n", "1;2.5\n3;4e-1\n", "1\t2.5\n3\t4e-1\n", " 1  2.5\n 3  0.4\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_separators(tmp_path: Path, text: str, encoding: str) -> None:
    (tmp_path / "ref.csv").write_text(text, encoding=encoding)
    np.testing.assert_array_equal(read_descriptors(tmp_path / "ref.csv"), np.array([[1, 2.5], [3, 0.4]], np.float32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("", "empty"),
        ("1,2,3\n4,5,6\n", "2 descriptors, but the strip has 3 patches"),
        ("1,2\n3,4\n5,6\n", "2 columns, but files before it have 6"),
        ("1,2\n3\n5,6\n", "not a table of numbers"),
        ("1,x\n3,2\n5,6\n", "not a table of numbers"),
        ("1,2\n3,nan\n5,6\n", "row 2 has an entry"),
    ],
)
def test_a_bad_file_is_named_in_one_line(tmp_path: Path, text: str | None, message: str) -> None:
    write_descriptors(tmp_path / "mine", PATCHES, some_codes("few levels", len(PATCHES)))
    file = tmp_path / "mine" / "v_b" / "t5.csv"
    file.unlink()
    if text is not None:
        file.write_text(text)
    with pytest.raises(DoapError, match=rf"t5\.csv: .*{message}") as caught:
        CsvDescriptors(tmp_path / "mine").describe_patches(Selection(PATCHES))
    assert "\n" not in str(caught.value)


def test_nothing_is_overwritten_or_half_written(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(DoapError, match="exists already"):
        write_descriptors(tmp_path / "mine", PATCHES, some_codes("bits", len(PATCHES)))

    def stop(done: int, _total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_descriptors(tmp_path / "other", PATCHES, some_codes("bits", len(PATCHES)), stop)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(DoapError, match="no such folder"):
        CsvDescriptors(tmp_path / "absent")
