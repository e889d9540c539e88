import csv
from pathlib import Path

import numpy as np
import pytest

from doap import DoapError, PatchSet
from doap.datasets.build.cutting import cut_patches
from doap.datasets.build.splitting import choose_val, write_split
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.scenes import SetScene, find_scenes
from doap.datasets.sets.trimming import trim_frames
from support.sets.small_frame_set import FrameSetMaker, add_singles, add_static, small_frame_set


def described(data: FrameSet) -> set[tuple[object, ...]]:
    """Return every frame with its properties, independent of the numbering of photos and sequences."""
    photos = [photo.tobytes() for photo in data.encoded_photos]
    return {
        (frame.tobytes(), data.photo_names[p], photos[p], g, data.sequence_names[s], source)
        for frame, p, g, s, source in zip(
            data.frames, data.photos, data.groups, data.sequences, data.sources, strict=True
        )
    }


def test_both_parts_together_are_the_set(tmp_path: Path) -> None:
    whole = small_frame_set()
    write_split(whole, tmp_path / "split", 0.5, seed=0)
    parts = [FrameSet.open(tmp_path / "split" / name) for name in ("train", "val")]
    train, val = map(described, parts)
    assert train | val == described(whole)
    assert not train & val
    for part in parts:
        assert set(part.photos) == set(range(len(part.photo_names)))
        assert set(part.sequences) == set(range(len(part.sequence_names)))
        assert part.extent == 9.0
    together = np.concatenate([part.overlaps for part in parts])
    np.testing.assert_array_equal(np.unique(together, axis=0), np.unique(whole.overlaps, axis=0))


def test_no_folder_of_a_scene_and_no_group_is_in_both(tmp_path: Path) -> None:
    for seed in range(2):
        parts = write_split(small_frame_set(), tmp_path / str(seed), 0.3, seed)
        train, val = (part.data for part in parts.values())
        assert isinstance(train, FrameSet)
        assert isinstance(val, FrameSet)
        assert not set(train.groups) & set(val.groups)
        folders = [{Path(name).parent for name in part.photo_names if "many" not in name} for part in (train, val)]
        assert not folders[0] & folders[1]


def test_each_source_gives_its_fraction_and_the_table_lists_them(tmp_path: Path) -> None:
    write_split(small_frame_set(), tmp_path / "split", 0.25, seed=1)
    with (tmp_path / "split" / "split.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["scene"] for row in rows] == sorted(scene.name for scene in find_scenes(small_frame_set()))
    val = [row["source"] for row in rows if row["split"] == "val"]
    assert {source: val.count(source) for source in ("views", "static", "tracks")} == {
        "views": 4,  # of 14 photos and a folder
        "static": 1,
        "tracks": 1,
    }


def test_the_choice_depends_on_the_seed_and_not_on_the_order() -> None:
    scenes = [SetScene(f"scene {number}", ("views", "tracks")[number % 2], (number,)) for number in range(200)]
    val = choose_val(scenes, 0.125, 0)
    assert len(val) == 24
    assert choose_val(scenes[::-1], 0.125, 0) == val
    assert choose_val(scenes, 0.125, 1) != val
    assert choose_val(scenes, 0.2, 0) > val


@pytest.mark.parametrize(("val_fraction", "count"), [(0.001, 1), (0.5, 2), (0.999, 3)])
def test_neither_part_is_empty(val_fraction: float, count: int) -> None:
    assert len(choose_val([SetScene(name, "", (0,)) for name in "abcd"], val_fraction, 0)) == count


def test_a_patch_set_is_split_like_its_frame_set(tmp_path: Path) -> None:
    frames = small_frame_set()
    cut_patches(frames, tmp_path / "cut", size=16)
    whole = PatchSet.open(tmp_path / "cut")
    assert whole.frames is not None
    by_frames = write_split(frames, tmp_path / "frames", 0.3, seed=2)
    write_split(whole, tmp_path / "patches", 0.3, seed=2)
    for name, part in by_frames.items():
        patches = PatchSet.open(tmp_path / "patches" / name)
        assert sorted(patches.sequence_names) == sorted(part.data.sequence_names)
        assert sorted(patches.photo_names) == sorted(part.data.photo_names)
        inside = np.isin(whole.groups, part.data.groups)
        np.testing.assert_array_equal(patches.take(range(len(patches))), whole.take(np.flatnonzero(inside)))
        np.testing.assert_array_equal(patches.frames, whole.frames[inside])
        for label in ("source", "level"):
            np.testing.assert_array_equal(patches.labels[label], whole.labels[label][inside])
        photos = [whole.photo_names[photo] for photo in whole.labels["photo"][inside]]
        assert [patches.photo_names[photo] for photo in patches.labels["photo"]] == photos
        np.testing.assert_array_equal(patches.overlaps, part.data.overlaps)


def test_a_set_without_names_can_be_split(tmp_path: Path) -> None:
    patches = np.arange(8, dtype=np.uint8)[:, None, None] * np.ones((8, 8), np.uint8)
    parts = write_split(PatchSet([patches], np.arange(8), np.arange(8) // 2), tmp_path / "split", 0.25, 0)
    opened = [PatchSet.open(tmp_path / "split" / name) for name in parts]
    assert [len(part) for part in opened] == [6, 2]
    assert sorted(np.concatenate([part.take(range(len(part)))[:, 0, 0] for part in opened])) == list(range(8))


def test_what_cannot_be_split_or_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = FrameSetMaker()
    add_singles(maker, "few", 4)
    with pytest.raises(DoapError, match=r"all photos count as one scene, since a folder .* fewer than 11 photos"):
        write_split(maker.frame_set(), tmp_path / "one", 0.5, 0)
    add_static(maker, "static", 0)
    with pytest.raises(DoapError, match=r"has two scenes: .*few.* \(views\).*static.* \(static\).* fewer than 11"):
        write_split(maker.frame_set(), tmp_path / "two", 0.5, 0)
    with pytest.raises(DoapError, match="the set is one scene"):
        choose_val([SetScene("one", "", (0,))], 0.5, 0)
    (tmp_path / "there").mkdir()
    with pytest.raises(DoapError, match="there: exists already"):
        write_split(small_frame_set(), tmp_path / "there", 0.5, 0)
    monkeypatch.setattr(
        "doap.datasets.build.splitting._write_table", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(OSError, match="full"):
        write_split(small_frame_set(), tmp_path / "split", 0.5, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_trimming_a_whole_set_changes_nothing() -> None:
    whole = small_frame_set()
    trimmed = trim_frames(whole)
    for name in ("photos", "groups", "sequences", "sources", "frames", "overlaps"):
        np.testing.assert_array_equal(getattr(trimmed, name), getattr(whole, name))
    assert (trimmed.photo_names, trimmed.sequence_names) == (whole.photo_names, whole.sequence_names)
