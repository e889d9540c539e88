"""Training sets: the split in each official folder, unions, and the check of what is trained on."""

import json
from pathlib import Path

import numpy as np
import pytest

from doap import DoapError, FrameSet, PatchSet
from doap.datasets.official.opening import open_dataset
from doap.datasets.official.training_set import check_split, layout_of, open_training_set, used_sequences
from doap.datasets.sets.united_set import UnitedSet
from support.sets.official_formats import some_phototour, write_half
from support.sets.small_frame_set import small_frame_set
from support.sets.small_official_sets import make_hpatches

SPLITS = {
    "a": {"name": "a", "train": ["i_one", "v_three"], "test": ["v_two"]},
    "full": {"name": "full", "test": ["i_one", "v_two", "v_three"]},
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def hpatches(tmp_path: Path) -> Path:
    folder = make_hpatches(tmp_path / "hpatches", patches=2)
    (folder / "splits.json").write_text(json.dumps(SPLITS))
    return folder


@pytest.fixture
def rome(tmp_path: Path) -> Path:
    for seed, half in enumerate(("train", "test")):
        write_half(tmp_path / "rome", half, seed=seed)
    return tmp_path / "rome"


@pytest.fixture
def liberty(tmp_path: Path) -> Path:
    some_phototour(tmp_path / "phototour-liberty", 30)
    return tmp_path / "phototour-liberty"


def test_the_split_of_each_official_folder(hpatches: Path, rome: Path, liberty: Path) -> None:
    assert used_sequences(open_training_set([hpatches], "a")) == ["i_one", "v_three"]
    assert used_sequences(open_training_set([hpatches])) == ["i_one", "v_three", "v_two"]
    train = open_training_set([rome], "train")
    assert isinstance(train, PatchSet)
    assert used_sequences(train) == ["train"]
    whole = open_dataset(rome)
    np.testing.assert_array_equal(train.take(range(len(train))), whole.take(np.flatnonzero(whole.sequences == 0)))
    assert len(open_training_set([rome])) == 2 * len(train)
    assert len(open_training_set([liberty])) == 30


def test_a_union_selects_the_split_where_there_is_one(hpatches: Path, liberty: Path) -> None:
    union = open_training_set([liberty, hpatches], "a")
    assert isinstance(union, UnitedSet)
    assert union.sequence_names == ["phototour-liberty", "i_one", "v_three"]
    assert (len(union), union.size) == (30 + 2 * 2 * 16, 64)
    check_split(union, "a", [liberty, hpatches])


def test_folders_of_one_name_are_told_apart_by_their_paths(hpatches: Path, tmp_path: Path) -> None:
    other = make_hpatches(tmp_path / "other" / "hpatches", names=("i_one",), patches=2)
    union = open_training_set([hpatches, other])
    assert f"{other.resolve()}/i_one" in union.sequence_names


@pytest.mark.parametrize(
    ("folders", "split", "message"),
    [
        (["rome"], "a", "rome: no split a; RomePatches is trained on its half train"),
        (["rome"], "test", "rome: no split test; RomePatches is trained on its half train"),
        (["hpatches"], "train", "no split train; there are a, full"),
        (["hpatches"], "full", "split full has no train sequences; use a, b or c"),
        (["hpatches", "rome"], "a", "rome: no split a"),
        (["liberty"], "a", "split=a needs HPatches or RomePatches; train on all of it with split=null"),
        (["half"], "train", "half: 1 of 1 sequence is not in the set: train"),
        (["liberty", "liberty"], None, "given twice; give every set once"),
        (["liberty", "frames"], None, "a frame set cannot be united with other sets; build it without --frames"),
        ([], None, "no training set; give the folder of one"),
    ],
)
def test_what_cannot_be_trained_on_is_one_line(
    hpatches: Path, rome: Path, liberty: Path, tmp_path: Path, folders: list[str], split: str | None, message: str
) -> None:
    small_frame_set().save(tmp_path / "frames")
    write_half(tmp_path / "half", "test")
    paths = {"hpatches": hpatches, "rome": rome, "liberty": liberty}
    with pytest.raises(DoapError) as error:
        open_training_set([paths.get(name, tmp_path / name) for name in folders], split)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_sequences_outside_the_split_are_seen(hpatches: Path, rome: Path, liberty: Path) -> None:
    with pytest.raises(DoapError, match="split=train, but the training set holds 1 sequence outside it: test"):
        check_split(open_dataset(rome), "train")
    check_split(open_dataset(rome), None)
    check_split(open_training_set([rome], "train"), "train")
    with pytest.raises(DoapError, match="split=a, but the training set holds 1 sequence outside it: v_two"):
        check_split(open_dataset(hpatches), "a", [hpatches])
    with pytest.raises(DoapError, match="outside it: v_two"):
        check_split(UnitedSet([open_dataset(liberty), open_dataset(hpatches)], "ab"), "a", [liberty, hpatches])
    check_split(open_dataset(hpatches), "a")  # the split cannot be known
    check_split(open_dataset(liberty), "a", [liberty])


def test_more_sequences_than_any_split_has_are_seen_without_its_list() -> None:
    groups = np.arange(2 * 77) // 2
    labels = {"image": np.zeros(154, np.int64), "noise": np.zeros(154, np.int64)}
    names = [f"v_{number}" for number in range(77)]
    data = PatchSet([np.zeros((154, 4, 4), np.uint8)], groups, groups, labels, names)
    with pytest.raises(DoapError, match="holds 77 sequences outside it"):
        check_split(data, "a")
    check_split(data.select(groups > 0), "a")


def test_official_sets_are_recognised_also_in_parts(hpatches: Path, rome: Path, liberty: Path, tmp_path: Path) -> None:
    open_training_set([hpatches], "a").save(tmp_path / "saved")
    assert layout_of(PatchSet.open(tmp_path / "saved")) == "hpatches"
    assert layout_of(open_dataset(rome)) == "romepatches"
    assert layout_of(open_dataset(liberty), liberty) == "phototour"
    assert layout_of(open_dataset(liberty)) == ""
    frames = small_frame_set()
    assert isinstance(frames, FrameSet)
    assert layout_of(frames, liberty) == ""
