import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from doap import DoapError, PatchSet
from doap.datasets.official.hpatches import STRIPS, convert_hpatches, read_strip, write_hpatches_folder
from doap.datasets.official.hpatches_tasks import (
    PatchLocations,
    find_patches,
    read_retrieval_list,
    read_splits,
    read_verification_pairs,
)

Strips = dict[str, NDArray[np.uint8]]

OFFICIAL = ["ref", *(f"{noise}{image}" for noise in "eht" for image in range(1, 6))]


@pytest.fixture(scope="session")
def contruction(hpatches_patches: Path, tmp_path_factory: pytest.TempPathFactory) -> PatchSet:
    """The official sequence i_contruction, converted."""
    path = tmp_path_factory.mktemp("hpatches") / "set"
    convert_hpatches(hpatches_patches, path)
    return PatchSet.open(path)


def some_strips(rows: int, seed: int = 0) -> Strips:
    random = np.random.default_rng(seed)
    return {name: random.integers(0, 256, (rows, 65, 65), dtype=np.uint8) for name in OFFICIAL}


def some_folder(folder: Path) -> dict[str, Strips]:
    made = {"v_there": some_strips(3, 1), "i_dome": some_strips(5, 2)}
    for name, strips in made.items():
        write_hpatches_folder(folder / name, strips)
    return made


def test_an_official_sequence(contruction: PatchSet, hpatches_patches: Path) -> None:
    assert len(contruction) == 1994 * 16
    assert contruction.sequence_names == ["i_contruction"]
    assert set(np.diff(contruction.members_start)) == {16}
    for strip, image, noise in [("ref", 0, 0), ("e2", 2, 1), ("t5", 5, 3)]:
        pixels = cv2.imread(str(hpatches_patches / "i_contruction" / f"{strip}.png"), cv2.IMREAD_UNCHANGED)
        where = np.flatnonzero((contruction.labels["image"] == image) & (contruction.labels["noise"] == noise))
        assert len(where) == 1994
        for row in (0, 1000, 1993):
            assert pixels is not None
            index = where[contruction.groups[where] == row]
            np.testing.assert_array_equal(contruction.take(index)[0], pixels[65 * row : 65 * row + 65])


def test_the_patches_of_a_row_show_the_same_point(contruction: PatchSet) -> None:
    sample = np.random.default_rng(0).permutation(1994)[:200]  # neighbours in a strip overlap in the image
    vectors = contruction.take(contruction.members.reshape(-1, 16)[sample, :2].reshape(-1)).astype(np.float64)
    vectors = vectors.reshape(200, 2, -1)
    vectors -= vectors.mean(2, keepdims=True)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True) + 1e-9
    nearest = (vectors[:, 0] @ vectors[:, 1].T).argmax(1)
    assert (nearest == np.arange(200)).mean() > 0.5  # shifted rows would give 0.005


def test_round_trip_of_several_sequences(tmp_path: Path) -> None:
    made = some_folder(tmp_path / "hpatches")
    calls: list[tuple[int, int]] = []
    convert_hpatches(tmp_path / "hpatches", tmp_path / "set", lambda done, total: calls.append((done, total)))
    converted = PatchSet.open(tmp_path / "set")
    assert converted.sequence_names == ["i_dome", "v_there"]
    assert calls == [(n, 32) for n in range(1, 33)]
    assert len(np.unique(converted.groups)) == 8
    image_noise = {name: (int(name[1]), "reht".index(name[0])) if name != "ref" else (0, 0) for name in OFFICIAL}
    for number, name in enumerate(converted.sequence_names):
        for strip, patches in made[name].items():
            image, noise = image_noise[strip]
            mask = (
                (converted.sequences == number)
                & (converted.labels["image"] == image)
                & (converted.labels["noise"] == noise)
            )
            where = np.flatnonzero(mask)
            np.testing.assert_array_equal(converted.take(where), patches)
            np.testing.assert_array_equal(converted.groups[where], np.arange(len(patches)) + 5 * number)


def test_strips_are_written_as_the_official_ones(tmp_path: Path, hpatches_patches: Path) -> None:
    strip = read_strip(hpatches_patches / "i_contruction" / "ref.png")[:7]
    write_hpatches_folder(tmp_path / "i_new", dict.fromkeys(OFFICIAL, strip))
    assert sorted(p.stem for p in (tmp_path / "i_new").iterdir()) == sorted(OFFICIAL)
    with Image.open(tmp_path / "i_new" / "h3.png") as image:
        assert (image.format, image.mode, image.size) == ("PNG", "L", (65, 7 * 65))
    np.testing.assert_array_equal(read_strip(tmp_path / "i_new" / "h3.png"), strip)


def test_the_folder_of_one_sequence(tmp_path: Path) -> None:
    some_folder(tmp_path)
    convert_hpatches(tmp_path / "v_there", tmp_path / "set")
    assert PatchSet.open(tmp_path / "set").sequence_names == ["v_there"]


def remove_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing strip": (lambda f: (f / "t5.png").unlink(), r"t5\.png: no such file"),
    "no strips": (lambda f: remove_files(f), r"v_there.ref\.png: no such file"),
    "flipped bit": (lambda f: flip_bit(f / "h2.png"), r"h2\.png: cannot be decoded"),
    "truncated": (lambda f: os.truncate(f / "h2.png", 5000), r"h2\.png: cannot be decoded"),
    "empty": (lambda f: os.truncate(f / "h2.png", 0), r"h2\.png: not an image"),
    "other width": (lambda f: Image.new("L", (64, 65)).save(f / "h2.png"), r"h2\.png: 64x65 pixels"),
    "other height": (lambda f: Image.new("L", (65, 100)).save(f / "h2.png"), r"h2\.png: 65x100 pixels"),
    "fewer rows": (lambda f: Image.new("L", (65, 130)).save(f / "h2.png"), r"h2\.png: 2 patches, but ref.png has 3"),
    "colour": (lambda f: Image.new("RGB", (65, 195)).save(f / "h2.png"), r"h2\.png: pixels are in colour"),
    "16 bit": (lambda f: Image.new("I;16", (65, 195)).save(f / "h2.png"), r"h2\.png: pixels are deeper than 8 bit"),
    "alpha": (lambda f: Image.new("LA", (65, 195)).save(f / "h2.png"), r"h2\.png: pixels are in colour \(LA\)"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_sequence_is_named_in_one_line(tmp_path: Path, damage: str) -> None:
    some_folder(tmp_path / "hpatches")
    apply, message = DAMAGES[damage]
    apply(tmp_path / "hpatches" / "v_there")
    with pytest.raises(DoapError, match=message) as caught:
        convert_hpatches(tmp_path / "hpatches", tmp_path / "set")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["hpatches"]


def test_a_folder_without_sequences(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="no HPatches sequence here"):
        convert_hpatches(tmp_path, tmp_path / "set")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"e6": np.zeros((3, 65, 65), np.uint8)}, "missing or unknown: e6"),
        ({"e1": np.zeros((2, 65, 65), np.uint8)}, r"strip e1 is uint8 \(2, 65, 65\), not uint8 \(3, 65, 65\)"),
        ({"e1": np.zeros((3, 65, 65))}, "strip e1 is float64"),
    ],
)
def test_wrong_strips_are_not_written(tmp_path: Path, change: dict[str, NDArray[Any]], message: str) -> None:
    with pytest.raises(DoapError, match=message):
        write_hpatches_folder(tmp_path / "i_x", {**some_strips(3), **change})
    assert not list(tmp_path.iterdir())


def test_the_official_splits(hpatches_tasks: Path) -> None:
    splits = read_splits(hpatches_tasks / "splits.json")
    assert {name: (len(s.train), len(s.test)) for name, s in splits.items()} == {
        **dict.fromkeys("abc", (76, 40)),
        "full": (0, 116),
        "illum": (0, 57),
        "view": (0, 59),
    }
    everything = set(splits["full"].test)
    for name in "abc":
        assert {*splits[name].training_sequences(), *splits[name].test} == everything
    assert all(name.startswith("v_") for name in splits["view"].test)
    with pytest.raises(DoapError, match="split view has no train sequences"):
        splits["view"].training_sequences()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a list of splits"),
        ("[]", "not a list of splits"),
        ('{"a": {"name": "a"}}', r"a\.test: "),
        ('{"a": {"name": "a", "test": [1]}}', r"a\.test\.0: "),
        ('{"a": {"name": "a", "test": [], "more": 1}}', r"a\.more: "),
        (None, "cannot be read"),
    ],
)
def test_wrong_splits_are_named_in_one_line(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "splits.json").write_text(text)
    with pytest.raises(DoapError, match=f"splits.json: .*{message}") as caught:
        read_splits(tmp_path / "splits.json")
    assert "\n" not in str(caught.value)


def test_the_official_retrieval_lists(hpatches_tasks: Path) -> None:
    test = json.loads((hpatches_tasks / "splits.json").read_text())["a"]["test"]
    for name, count in [("queries", 10_000), ("distractors", 20_000)]:
        file = hpatches_tasks / f"retr_{name}_split-a.csv"
        locations = read_retrieval_list(file)
        with file.open() as lines:
            rows = list(csv.DictReader(lines))
        assert len(locations) == len(rows) == count
        assert [locations.sequence_names[s] for s in locations.sequences] == [row["s"] for row in rows]
        assert locations.rows.tolist() == [int(row["idx"]) for row in rows]
        assert not locations.images.any()
        assert set(locations.sequence_names) <= set(test)


VERIFICATION = "s1,t1,idx1,s2,t2,idx2\nv_there,0,2,i_dome,4,1\ni_dome,3,4,i_dome,3,0\n"


def test_verification_pairs(tmp_path: Path) -> None:
    (tmp_path / "verif_pos_split-a.csv").write_text(VERIFICATION)
    first, second = read_verification_pairs(tmp_path / "verif_pos_split-a.csv")
    assert first.sequence_names == second.sequence_names == ["v_there", "i_dome"]
    assert (first.sequences.tolist(), first.images.tolist(), first.rows.tolist()) == ([0, 1], [0, 3], [2, 4])
    assert (second.sequences.tolist(), second.images.tolist(), second.rows.tolist()) == ([1, 1], [4, 3], [1, 0])


def test_a_list_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("s,idx\ni_a,7\n", encoding="utf-8-sig")
    locations = read_retrieval_list(tmp_path / "list.csv")
    assert (locations.sequence_names, locations.rows.tolist()) == (["i_a"], [7])


def test_the_patches_of_a_list_are_found(tmp_path: Path) -> None:
    made = some_folder(tmp_path / "hpatches")
    convert_hpatches(tmp_path / "hpatches", tmp_path / "set")
    converted = PatchSet.open(tmp_path / "set")
    (tmp_path / "pairs.csv").write_text(VERIFICATION)
    first, second = read_verification_pairs(tmp_path / "pairs.csv")
    expected = [made["v_there"]["ref"][2], made["i_dome"]["h3"][4]]
    np.testing.assert_array_equal(converted.take(find_patches(converted, first, "hard")), expected)
    expected = [made["i_dome"]["t4"][1], made["i_dome"]["t3"][0]]
    np.testing.assert_array_equal(converted.take(find_patches(converted, second, "tough")), expected)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("i_dome,0,9,v_there,1,1", "line 4 names row 9 of i_dome, which has 5 rows; "),
        ("v_there,0,2,i_moon,1,1", "line 4 names i_moon, a sequence not in the set; "),
    ],
)
def test_lists_of_other_data_are_named_with_the_line(tmp_path: Path, row: str, message: str) -> None:
    some_folder(tmp_path / "hpatches")
    convert_hpatches(tmp_path / "hpatches", tmp_path / "set")
    converted = PatchSet.open(tmp_path / "set")
    file = tmp_path / "pairs.csv"
    file.write_text(f"{VERIFICATION}{row}\nv_there,0,2,v_there,0,2\n")
    pairs = read_verification_pairs(file)
    wrong, other = pairs if row.startswith("i_dome") else pairs[::-1]
    with pytest.raises(DoapError) as caught:
        find_patches(converted, wrong, "easy")
    assert str(caught.value).startswith(f"{file}: {message}")
    assert len(find_patches(converted, other, "easy")) == 4
    queries = tmp_path / "queries.csv"
    queries.write_text("s,idx\nv_there,0\ni_moon,1\n")
    with pytest.raises(DoapError, match=r"^.*/queries\.csv: line 3 names i_moon"):
        find_patches(converted, read_retrieval_list(queries), "easy")
    sampled = PatchLocations(["i_moon"], np.zeros(1, int), np.zeros(1, int), np.array([0]))
    with pytest.raises(DoapError, match=r"^location 0 of the list names i_moon"):
        find_patches(converted, sampled, "easy")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s1,t1,idx1\n", "no column s2"),
        ("", "no column s1"),
        ("s1,t1,idx1,s2,t2,idx2\n", "the list is empty"),
        (VERIFICATION + "v_there,0,2\n", "line 4 is damaged"),
        (VERIFICATION + "v_there,0,2,i_dome,4,one\n", "line 4 is damaged"),
        (VERIFICATION + "v_there,0,-2,i_dome,4,1\n", "line 4 is damaged .-2 is negative"),
        (VERIFICATION + "v_there,0,99999999999999999999,i_dome,4,1\n", "line 4 is damaged"),
        (VERIFICATION + "v_there,6,2,i_dome,4,1\n", "line 4 has image 6 in column t1, but there are 0 to 5"),
        (None, "cannot be read"),
    ],
)
def test_wrong_lists_are_named_in_one_line(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(DoapError, match=f"pairs.csv: .*{message}") as caught:
        read_verification_pairs(tmp_path / "pairs.csv")
    assert "\n" not in str(caught.value)


def test_the_strips_are_the_official_ones() -> None:
    assert list(STRIPS) == OFFICIAL
