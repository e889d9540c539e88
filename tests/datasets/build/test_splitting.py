import csv
from pathlib import Path

import numpy as np
import pytest

from doap import DoapError, PatchSet
from doap.datasets.build.cutting import cut_patches
from doap.datasets.build.splitting import choose_val, trim_frames, write_split
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.scenes import SetScene, scenes_of
from support.small_frame_set import Maker, add_singles, small_frame_set


def described(data: FrameSet) -> set[tuple[object, ...]]:
    """Every frame with all that is known of it, whatever photos and sequences are numbered."""
    pictures = [picture.tobytes() for picture in data.pictures]
    return {
        (frame.tobytes(), data.photo_names[p], pictures[p], g, data.sequence_names[s], source)
        for frame, p, g, s, source in zip(
            data.frames, data.photos, data.groups, data.sequences, data.sources, strict=True
        )
    }


def test_both_halves_together_are_the_set(tmp_path: Path) -> None:
    whole = small_frame_set()
    write_split(whole, tmp_path / "split", 0.5, seed=0)
    halves = [FrameSet.open(tmp_path / "split" / name) for name in ("train", "aside")]
    train, aside = map(described, halves)
    assert train | aside == described(whole)
    assert not train & aside
    for half in halves:
        assert set(half.photos) == set(range(len(half.photo_names)))
        assert set(half.sequences) == set(range(len(half.sequence_names)))
        assert half.extent == 9.0
    together = np.concatenate([half.overlaps for half in halves])
    np.testing.assert_array_equal(np.unique(together, axis=0), np.unique(whole.overlaps, axis=0))


def test_no_folder_of_a_scene_and_no_group_is_in_both(tmp_path: Path) -> None:
    for seed in range(2):
        halves = write_split(small_frame_set(), tmp_path / str(seed), 0.3, seed)
        train, aside = (half.data for half in halves.values())
        assert isinstance(train, FrameSet)
        assert isinstance(aside, FrameSet)
        assert not set(train.groups) & set(aside.groups)
        folders = [{Path(name).parent for name in half.photo_names if "many" not in name} for half in (train, aside)]
        assert not folders[0] & folders[1]


def test_every_source_gives_its_share_and_the_table_tells(tmp_path: Path) -> None:
    write_split(small_frame_set(), tmp_path / "split", 0.25, seed=1)
    with (tmp_path / "split" / "split.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["scene"] for row in rows] == sorted(scene.name for scene in scenes_of(small_frame_set()))
    aside = [row["source"] for row in rows if row["half"] == "aside"]
    assert {source: aside.count(source) for source in ("views", "static", "tracks")} == {
        "views": 4,  # of 14 photos and a folder
        "static": 1,
        "tracks": 1,
    }


def test_the_choice_depends_on_the_seed_and_not_on_the_order() -> None:
    scenes = [SetScene(f"scene {number}", ("views", "tracks")[number % 2], (number,)) for number in range(200)]
    chosen = choose_val(scenes, 0.125, 0)
    assert len(chosen) == 24
    assert choose_val(scenes[::-1], 0.125, 0) == chosen
    assert choose_val(scenes, 0.125, 1) != chosen
    assert choose_val(scenes, 0.2, 0) > chosen


@pytest.mark.parametrize(("share", "aside"), [(0.001, 1), (0.5, 2), (0.999, 3)])
def test_neither_half_is_empty(share: float, aside: int) -> None:
    assert len(choose_val([SetScene(name, "", (0,)) for name in "abcd"], share, 0)) == aside


def test_a_patch_set_is_split_alike(tmp_path: Path) -> None:
    frames = small_frame_set()
    cut_patches(frames, tmp_path / "cut", size=16)
    whole = PatchSet.open(tmp_path / "cut")
    by_frames = write_split(frames, tmp_path / "frames", 0.3, seed=2)
    write_split(whole, tmp_path / "patches", 0.3, seed=2)
    for name, half in by_frames.items():
        found = PatchSet.open(tmp_path / "patches" / name)
        assert sorted(found.sequence_names) == sorted(half.data.sequence_names)
        assert sorted(found.photo_names) == sorted(half.data.photo_names)
        inside = np.isin(whole.groups, half.data.groups)
        np.testing.assert_array_equal(found.take(range(len(found))), whole.take(np.flatnonzero(inside)))
        np.testing.assert_array_equal(found.frames, whole.frames[inside])
        for label in ("source", "level"):
            np.testing.assert_array_equal(found.labels[label], whole.labels[label][inside])
        photos = [whole.photo_names[photo] for photo in whole.labels["photo"][inside]]
        assert [found.photo_names[photo] for photo in found.labels["photo"]] == photos
        np.testing.assert_array_equal(found.overlaps, half.data.overlaps)


def test_a_set_without_names_can_be_split(tmp_path: Path) -> None:
    patches = np.arange(8, dtype=np.uint8)[:, None, None] * np.ones((8, 8), np.uint8)
    halves = write_split(PatchSet([patches], np.arange(8), np.arange(8) // 2), tmp_path / "split", 0.25, 0)
    found = [PatchSet.open(tmp_path / "split" / name) for name in halves]
    assert [len(half) for half in found] == [6, 2]
    assert sorted(np.concatenate([half.take(range(len(half)))[:, 0, 0] for half in found])) == list(range(8))


def test_what_cannot_be_split_or_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker()
    add_singles(maker, "few", 4)
    with pytest.raises(DoapError, match="no two of 1 are of one kind"):
        write_split(maker.made(), tmp_path / "one", 0.5, 0)
    (tmp_path / "there").mkdir()
    with pytest.raises(DoapError, match="there: exists already"):
        write_split(small_frame_set(), tmp_path / "there", 0.5, 0)
    monkeypatch.setattr(
        "doap.datasets.build.splitting._write_table", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(OSError, match="full"):
        write_split(small_frame_set(), tmp_path / "split", 0.5, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_trimming_what_is_whole_changes_nothing() -> None:
    whole = small_frame_set()
    trimmed = trim_frames(whole)
    for name in ("photos", "groups", "sequences", "sources", "frames", "overlaps"):
        np.testing.assert_array_equal(getattr(trimmed, name), getattr(whole, name))
    assert (trimmed.photo_names, trimmed.sequence_names) == (whole.photo_names, whole.sequence_names)
