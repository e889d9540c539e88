import json
from pathlib import Path

import numpy as np
import pytest

from doap import DoapError
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.sets import frame_set as frameset
from doap.datasets.sets.frame_set import FrameSet, encode
from doap.images.frames import detect_dog


@pytest.fixture
def made(photo: np.ndarray) -> FrameSet:
    pictures = [("north", photo[:200, :300]), ("flat", np.full((50, 50), 7, np.uint8)), ("south", photo[250:, 100:])]
    return frame_set_from_photos(pictures, lambda image: detect_dog(image, 60))


def test_every_frame_is_a_group_and_every_photo_a_sequence(made: FrameSet, photo: np.ndarray) -> None:
    assert made.photo_names == made.sequence_names == ["north", "south"]
    assert np.unique(made.groups).size == len(made)
    np.testing.assert_array_equal(made.photos, made.sequences)
    np.testing.assert_array_equal(made.frames[made.photos == 0], detect_dog(photo[:200, :300], 60))
    np.testing.assert_array_equal(made.picture(1), photo[250:, 100:])
    assert "frames in 2 photos" in repr(made)


def test_no_frame_at_all_is_refused() -> None:
    with pytest.raises(DoapError, match="no keypoint found"):
        frame_set_from_photos([("flat", np.full((50, 50), 7, np.uint8))], lambda image: detect_dog(image, 60))


@pytest.mark.parametrize("shard_bytes", [1, 1 << 25])
def test_round_trip(made: FrameSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_bytes: int) -> None:
    monkeypatch.setattr(frameset, "SHARD_BYTES", shard_bytes)
    made.save(tmp_path / "set")
    found = FrameSet.open(tmp_path / "set")
    assert len(list((tmp_path / "set").glob("photos-*.npy"))) == (2 if shard_bytes == 1 else 1)
    for name in ("frames", "photos", "groups", "sequences", "sources", "overlaps"):
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
    assert (found.extent, found.photo_names, found.sequence_names) == (12.0, made.photo_names, made.sequence_names)
    for number in range(2):
        np.testing.assert_array_equal(found.picture(number), made.picture(number))
    FrameSet.verify(tmp_path / "set")
    with pytest.raises(DoapError, match="exists already"):
        made.save(tmp_path / "set")


def test_a_split_by_scene_is_exact(made: FrameSet) -> None:
    chosen = made.sequences == 1
    one, rest = made.part(chosen), made.part(~chosen)
    assert len(one) + len(rest) == len(made)
    assert set(one.photos) == {1}
    assert set(rest.photos) == {0}
    assert not set(one.groups) & set(rest.groups)
    assert len(one.overlaps) + len(rest.overlaps) == len(made.overlaps)
    assert np.isin(one.overlaps, one.groups).all()


def test_lossy_pictures_stay_close(photo: np.ndarray) -> None:
    small = FrameSet(
        [encode(photo, 95)], ["p"], np.zeros(1, int), np.eye(2, 3, dtype=np.float32)[None], np.zeros(1, int),
        np.zeros(1, int), np.zeros(1, int),
    )  # fmt: skip
    assert np.abs(small.picture(0).astype(int) - photo).mean() < 1.5
    assert len(small.pictures[0]) < photo.size / 2


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 255
    path.write_bytes(content)


def change(path: Path, **entries: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


FAULTS = {
    "no manifest": ("set.json", Path.unlink, "not a frame set"),
    "cut manifest": ("set.json", truncate, "not valid JSON"),
    "a patch set": ("set.json", lambda p: change(p, format="doap patch set 1"), "format is not 'doap frame set 1'"),
    "no shards": ("set.json", lambda p: change(p, shards=[]), "an entry is missing"),
    "path outside": ("set.json", lambda p: change(p, shards=[{"file": "../x", "bytes": 1}]), "an entry is missing"),
    "no frames": ("frames.npy", Path.unlink, "frames.npy: cannot be read"),
    "flipped frame": ("frames.npy", flip_byte, "frames.npy: checksum differs"),
    "flipped group": ("groups.npy", flip_byte, "groups.npy: checksum differs"),
    "flipped photo": ("photos-00000.npy", flip_byte, "photos-00000.npy: checksum differs"),
    "cut photo": ("photos-00000.npy", truncate, "photos-00000.npy: shorter"),
    "no photo": ("photos-00000.npy", Path.unlink, "photos-00000.npy: cannot be read"),
}


@pytest.mark.parametrize("error", FAULTS)
def test_a_damaged_set_is_named_in_one_line(made: FrameSet, tmp_path: Path, error: str) -> None:
    made.save(tmp_path / "set")
    file, damage, said = FAULTS[error]
    damage(tmp_path / "set" / file)
    with pytest.raises(DoapError, match=said) as told:
        FrameSet.open(tmp_path / "set")
    assert "\n" not in str(told.value)
    assert str(tmp_path) in str(told.value)


def test_wrong_arrays_are_refused(made: FrameSet) -> None:
    arguments = (made.pictures, made.photo_names, made.photos, made.frames, made.groups, made.sequences, made.sources)
    bad = {
        2: (made.photos + 5, "photos must be"),
        3: (made.frames[:-1], "frames must be"),
        5: (np.arange(len(made)), None),
        6: (made.sources - 1, "sources must be"),
        1: (["one"], "1 names for 2 photos"),
    }
    for place, (value, said) in bad.items():
        changed = [*arguments[:place], value, *arguments[place + 1 :]]
        if said is None:
            FrameSet(*changed)
            continue
        with pytest.raises(DoapError, match=said):
            FrameSet(*changed)
    endless = made.frames.copy()
    endless[3, 0, 0] = np.inf
    with pytest.raises(DoapError, match="finite"):
        FrameSet(*arguments[:3], endless, *arguments[4:])


def test_a_picture_that_cannot_be_decoded_is_named(made: FrameSet) -> None:
    made.pictures[1] = np.frombuffer(b"no picture at all", np.uint8)
    with pytest.raises(DoapError, match="south: cannot be decoded"):
        made.picture(1)
