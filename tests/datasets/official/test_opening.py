import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from doap import DoapError, PatchSet
from doap.datasets.official.hpatches import STRIPS, write_hpatches_folder
from doap.datasets.official.opening import cache_folder, locate, open_dataset, select_sequences
from support.sets.official_formats import some_phototour


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "converted"


class ConversionCounter:
    """Progress callback that counts finished conversions."""

    def __init__(self) -> None:
        self.conversions = 0

    def __call__(self, done: int, total: int) -> None:
        self.conversions += done == total


def sets_in(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.iterdir() if p.name != "lock")


def some_hpatches(folder: Path, names: tuple[str, ...] = ("i_dome", "v_there", "v_wall")) -> None:
    for number, name in enumerate(names):
        patches = np.full((2 + number, 65, 65), number, np.uint8)
        write_hpatches_folder(folder / name, dict.fromkeys(STRIPS, patches))


def some_romepatches(folder: Path) -> None:
    folder.mkdir()
    for half in ("train", "test"):
        savemat(folder / f"patch_retrieval_Rome_{half}.mat", {"patches": np.zeros((20, 3, 51, 51), np.uint8)})
        labels = {"labels_gt": np.arange(2.0), "labels": np.arange(18.0) % 2}
        savemat(folder / f"patch_retrieval_Rome_{half}_labels.mat", labels)


def test_every_layout_is_recognised(tmp_path: Path) -> None:
    some_phototour(tmp_path / "notredame")
    some_hpatches(tmp_path / "hpatches")
    some_romepatches(tmp_path / "rome")
    PatchSet([np.zeros((4, 8, 8), np.uint8)], [0, 0, 1, 1]).save(tmp_path / "plain")
    sizes = {name: open_dataset(tmp_path / name).size for name in ("notredame", "hpatches", "rome", "plain")}
    assert sizes == {"notredame": 64, "hpatches": 65, "rome": 51, "plain": 8}


def test_the_second_opening_converts_nothing(tmp_path: Path, cache: Path) -> None:
    patches, _ = some_phototour(tmp_path / "liberty")
    counter = ConversionCounter()
    for _ in range(2):
        np.testing.assert_array_equal(open_dataset(tmp_path / "liberty", counter).take([299])[0], patches[299])
    assert counter.conversions == 1
    (tmp_path / "link").symlink_to(tmp_path / "liberty")
    assert locate(tmp_path / "link", counter) == locate(tmp_path / "liberty", counter)
    assert counter.conversions == 1
    assert len(sets_in(cache)) == 1


def test_a_changed_source_replaces_its_conversion(tmp_path: Path, cache: Path) -> None:
    some_phototour(tmp_path / "liberty", seed=0)
    some_phototour(tmp_path / "yosemite", seed=5)
    counter = ConversionCounter()
    open_dataset(tmp_path / "yosemite", counter)
    first = open_dataset(tmp_path / "liberty", counter)
    before = first.take([0])
    shutil.rmtree(tmp_path / "liberty")
    changed, _ = some_phototour(tmp_path / "liberty", seed=1)
    np.testing.assert_array_equal(open_dataset(tmp_path / "liberty", counter).take([0])[0], changed[0])
    assert counter.conversions == 3
    assert len(sets_in(cache)) == 2
    np.testing.assert_array_equal(first.take([0]), before)  # an open set stays readable


def test_a_source_with_a_new_modification_time(tmp_path: Path) -> None:
    some_phototour(tmp_path / "liberty")
    counter = ConversionCounter()
    open_dataset(tmp_path / "liberty", counter)
    os.utime(tmp_path / "liberty" / "patches0001.bmp", ns=(1, 1))
    open_dataset(tmp_path / "liberty", counter)
    assert counter.conversions == 2


def test_a_damaged_conversion_is_repeated(tmp_path: Path) -> None:
    patches, _ = some_phototour(tmp_path / "liberty")
    os.truncate(locate(tmp_path / "liberty") / "patches-00000.npy", 1000)
    np.testing.assert_array_equal(open_dataset(tmp_path / "liberty").take([7])[0], patches[7])


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
def test_a_killed_conversion_leaves_nothing(tmp_path: Path, cache: Path, changed: bool) -> None:
    some_phototour(tmp_path / "liberty")
    script = f"""
import os, signal
from doap.datasets.official.opening import open_dataset
open_dataset({str(tmp_path / "liberty")!r}, lambda done, total: os.kill(os.getpid(), signal.SIGKILL))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert all(name.startswith(".") for name in sets_in(cache))  # temporary folders only
    if changed:
        os.utime(tmp_path / "liberty" / "info.txt", (0, 0))
    open_dataset(tmp_path / "liberty")
    assert len(sets_in(cache)) == 1
    assert not sets_in(cache)[0].startswith(".")


def test_a_failed_conversion_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    some_phototour(tmp_path / "liberty")
    os.truncate(tmp_path / "liberty" / "patches0001.bmp", 5000)
    with pytest.raises(DoapError, match=r"patches0001\.bmp: cannot be decoded"):
        open_dataset(tmp_path / "liberty")
    assert sets_in(cache) == []


def test_concurrent_openings_convert_once(tmp_path: Path) -> None:
    some_phototour(tmp_path / "liberty")
    counter = ConversionCounter()
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: locate(tmp_path / "liberty", counter), range(2)))
    assert paths[0] == paths[1]
    assert counter.conversions == 1


def test_nothing_else_in_the_cache_is_touched(tmp_path: Path, cache: Path) -> None:
    (cache / ".mine").mkdir(parents=True)
    (cache / "phototour-notes.txt").write_text("mine")
    some_phototour(tmp_path / "liberty")
    open_dataset(tmp_path / "liberty")
    assert {".mine", "phototour-notes.txt"} <= set(sets_in(cache))


def test_the_default_cache_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOAP_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "doap" / "converted"


def test_some_sequences(tmp_path: Path) -> None:
    some_hpatches(tmp_path / "hpatches")
    whole = open_dataset(tmp_path / "hpatches")
    some = open_dataset(tmp_path / "hpatches", sequences=["v_wall", "i_dome"])
    assert len(some) == 16 * (2 + 4)
    expected = np.flatnonzero(whole.sequences != 1)
    np.testing.assert_array_equal(some.take(np.arange(len(some))), whole.take(expected))
    np.testing.assert_array_equal(some.groups, whole.groups[expected])
    np.testing.assert_array_equal(some.labels["noise"], whole.labels["noise"][expected])
    assert {some.sequence_names[s] for s in some.sequences} == {"i_dome", "v_wall"}
    assert np.shares_memory(some.shards[0], whole.shards[0]) or isinstance(some.shards[0], np.memmap)
    with pytest.raises(DoapError, match="1 of 2 sequences is not in the set: v_moon"):
        open_dataset(tmp_path / "hpatches", sequences=["v_wall", "v_moon"])


def test_selecting_keeps_frames_and_the_overlaps_inside() -> None:
    patches = np.arange(6, dtype=np.uint8).repeat(16).reshape(6, 4, 4)
    frames = np.arange(36, dtype=np.float32).reshape(6, 2, 3)
    made = PatchSet(
        [patches[:4], patches[4:]],
        groups=[0, 0, 1, 1, 2, 3],
        sequences=[0, 0, 1, 1, 1, 0],
        sequence_names=["a", "b"],
        overlaps=np.array([[0, 1], [1, 2], [0, 3]]),
        frames=frames,
    )
    some = select_sequences(made, ["b"])
    assert some.take([0, 1, 2])[:, 0, 0].tolist() == [2, 3, 4]
    assert some.overlaps.tolist() == [[1, 2]]
    assert some.frames is not None
    np.testing.assert_array_equal(some.frames, frames[2:5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "no such folder"),
        (
            lambda f: f.mkdir(),
            "not a patch set or frame set .* nor an official .*; make a set of photos with doap data build$",
        ),
        (lambda f: f.write_text("x"), "no such folder"),
        (lambda f: (f.mkdir(), (f / "set.json").write_text("{")), "not valid JSON"),
    ],
)
def test_other_folders_are_refused_in_one_line(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "x")
    with pytest.raises(DoapError, match=message) as caught:
        open_dataset(tmp_path / "x")
    assert "\n" not in str(caught.value)
