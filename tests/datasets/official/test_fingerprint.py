"""Fingerprints: which changes of data they tell, and which they do not."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from doap import DoapError, PatchSet
from doap.datasets.official.fingerprint import fingerprint_folder, fingerprint_training_set
from doap.datasets.official.training_set import open_training_set
from support.sets.official_formats import write_half
from support.sets.small_official_sets import make_hpatches
from support.sets.small_pairs import write_sequence
from support.sets.small_phototour import PAIRS, learnable_phototour
from support.trainings import noisy_patches


def fingerprint(*folders: Path, split: str | None = None) -> str | None:
    """Return the fingerprint of a training set."""
    return fingerprint_training_set(open_training_set(folders, split), folders)


def touch(folder: Path) -> None:
    """Make all files of a folder newer, as a copy of them is."""
    for file in folder.rglob("*"):
        os.utime(file, (1e9, 1e9))


def save_again(folder: Path, patches: PatchSet) -> None:
    shutil.rmtree(folder)
    patches.save(folder)


def test_a_set_is_known_by_its_content(tmp_path: Path) -> None:
    folder, patches = tmp_path / "set", noisy_patches(20)
    patches.save(folder)
    training, evaluation = fingerprint(folder), fingerprint_folder(folder)
    assert training
    touch(folder)
    moved = folder.rename(tmp_path / "moved")
    assert (fingerprint(moved), fingerprint_folder(moved)) == (training, evaluation)
    pixels, groups, sequences = patches.take(range(60)), patches.groups, patches.sequences
    pixels[30, 5, 5] ^= 1
    for other in (
        PatchSet([patches.shards[0]], groups, sequences, extent=7.0),
        PatchSet([pixels], groups, sequences),
    ):
        save_again(moved, other)
        assert repr(other) == repr(patches)
        assert fingerprint(moved) != training
        assert fingerprint_folder(moved) != evaluation
    save_again(moved, patches)
    assert fingerprint(moved) == training


def test_sets_in_memory_have_none(tmp_path: Path) -> None:
    patches = noisy_patches(20)
    assert fingerprint_training_set(patches, []) is None
    assert fingerprint_training_set(patches, [tmp_path]) is None  # a folder of something else


def test_a_damaged_manifest_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text("[]")
    with pytest.raises(DoapError, match=r"set\.json: cannot be read; the set is damaged, build it again$"):
        fingerprint_folder(tmp_path)


def test_a_training_on_an_official_folder_may_be_continued_on_a_copy(tmp_path: Path) -> None:
    folder = learnable_phototour(tmp_path / "liberty", points=20, pairs=20)
    before = fingerprint(folder)
    touch(folder)
    assert fingerprint(folder.rename(tmp_path / "copy")) == before
    other = learnable_phototour(tmp_path / "other", points=20, pairs=20, seed=1)
    assert fingerprint(other) not in (None, before)


def test_only_the_part_of_a_split_counts_for_a_training(tmp_path: Path) -> None:
    folder = make_hpatches(tmp_path / "hpatches", ("i_b", "i_c", "i_d"), patches=4)

    def write_split(*train: str) -> None:
        (tmp_path / "splits.json").write_text(json.dumps({"a": {"name": "a", "train": train, "test": ["i_d"]}}))

    write_split("i_b", "i_c")
    before = fingerprint(folder, split="a")
    assert before
    make_hpatches(folder, ("i_a", "i_d"), patches=4)  # sequences and groups have other numbers then
    assert fingerprint(folder, split="a") == before
    write_split("i_b", "i_d")
    assert fingerprint(folder, split="a") not in (None, before)
    write_split("i_b", "i_c")
    shutil.copy(folder / "i_c" / "e1.png", folder / "i_c" / "e3.png")
    assert fingerprint(folder, split="a") not in (None, before)


def test_the_other_half_of_romepatches_may_be_added(tmp_path: Path) -> None:
    folder = tmp_path / "rome"
    write_half(folder, "train")
    before = fingerprint(folder, split="train")
    write_half(folder, "test", seed=1)
    assert fingerprint(folder, split="train") == before
    write_half(folder, "train", seed=2)
    assert fingerprint(folder, split="train") not in (None, before)


def test_all_parts_of_a_union_count(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        noisy_patches(20).save(folder)
    before = fingerprint(first, second)
    save_again(second, PatchSet([np.zeros((60, 32, 32), np.uint8)], np.arange(60) // 3, np.arange(60) // 12))
    assert fingerprint(first, second) not in (None, before)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file more": lambda folder: write_sequence(folder / "oxford" / "wall", seed=1),
    "a file less": lambda folder: (folder / "oxford" / "graf" / "H1to3p").unlink(),
    "a newer file": lambda folder: touch(folder / "oxford"),
    "other pairs": lambda folder: (folder / "liberty" / PAIRS).write_text(""),
    "lists in the parent": lambda folder: (folder / "splits.json").write_text("{}"),
    "lists beside": lambda folder: (folder / "hpatches-tasks" / "pairs.csv").write_text("1"),
    "a linked sequence": lambda folder: touch(folder / "elsewhere"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_folders_to_evaluate_on_are_known_by_their_files(tmp_path: Path, change: str) -> None:
    write_sequence(tmp_path / "oxford" / "graf", seed=0)
    learnable_phototour(tmp_path / "liberty", points=20, pairs=20)
    make_hpatches(tmp_path / "elsewhere", ("i_one",))
    (tmp_path / "hpatches").mkdir()
    (tmp_path / "hpatches" / "i_one").symlink_to(tmp_path / "elsewhere" / "i_one")
    (tmp_path / "hpatches-tasks").mkdir()

    def fingerprints() -> list[str]:
        return [fingerprint_folder(tmp_path / name) for name in ("oxford", "liberty", "hpatches")]

    before = fingerprints()
    (tmp_path / "oxford" / ".DS_Store").touch()
    (tmp_path / "._splits.csv").touch()  # beside hpatches
    assert fingerprints() == before
    CHANGES[change](tmp_path)
    assert sum(new != old for new, old in zip(fingerprints(), before, strict=True)) == 1
