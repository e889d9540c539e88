import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from doap import DoapError
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.sets import frame_set as frameset
from doap.datasets.sets.frame_set import SOURCES, FrameSet, encode
from doap.images.frames import detect_dog
from doap.types import Grey


@pytest.fixture
def made(photo: Grey) -> FrameSet:
    photos = [("north", photo[:200, :300]), ("flat", np.full((50, 50), 7, np.uint8)), ("south", photo[250:, 100:])]
    return frame_set_from_photos(photos, lambda image: detect_dog(image, 60))


def test_every_frame_is_a_group_and_every_photo_a_sequence(made: FrameSet, photo: Grey) -> None:
    assert made.photo_names == made.sequence_names == ["north", "south"]
    assert np.unique(made.groups).size == len(made)
    np.testing.assert_array_equal(made.photos, made.sequences)
    np.testing.assert_array_equal(made.frames[made.photos == 0], detect_dog(photo[:200, :300], 60))
    np.testing.assert_array_equal(made.read_photo(1), photo[250:, 100:])
    assert "frames in 2 photos" in repr(made)


def test_no_frame_at_all_is_refused() -> None:
    with pytest.raises(DoapError, match="no keypoint found"):
        frame_set_from_photos([("flat", np.full((50, 50), 7, np.uint8))], lambda image: detect_dog(image, 60))


@pytest.mark.parametrize("shard_bytes", [1, 1 << 25])
def test_round_trip(made: FrameSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_bytes: int) -> None:
    monkeypatch.setattr(frameset, "SHARD_BYTES", shard_bytes)
    made.save(tmp_path / "set")
    opened = FrameSet.open(tmp_path / "set")
    assert len(list((tmp_path / "set").glob("photos-*.npy"))) == (2 if shard_bytes == 1 else 1)
    for name in ("frames", "photos", "groups", "sequences", "sources", "overlaps"):
        np.testing.assert_array_equal(getattr(opened, name), getattr(made, name))
    assert (opened.extent, opened.photo_names, opened.sequence_names) == (12.0, made.photo_names, made.sequence_names)
    for number in range(2):
        np.testing.assert_array_equal(opened.read_photo(number), made.read_photo(number))
    FrameSet.verify(tmp_path / "set")
    with pytest.raises(DoapError, match="exists already"):
        made.save(tmp_path / "set")


def test_a_split_by_scene_is_exact(made: FrameSet) -> None:
    mask = made.sequences == 1
    one, rest = made.select(mask), made.select(~mask)
    assert len(one) + len(rest) == len(made)
    assert set(one.photos) == {1}
    assert set(rest.photos) == {0}
    assert not set(one.groups) & set(rest.groups)
    assert len(one.overlaps) + len(rest.overlaps) == len(made.overlaps)
    assert np.isin(one.overlaps, one.groups).all()


def test_lossy_photos_stay_close(photo: Grey) -> None:
    small = FrameSet(
        [encode(photo, 95)], ["p"], np.zeros(1, int), np.eye(2, 3, dtype=np.float32)[None], np.zeros(1, int),
        np.zeros(1, int), np.zeros(1, int),
    )  # fmt: skip
    assert np.abs(small.read_photo(0).astype(int) - photo).mean() < 1.5
    assert len(small.encoded_photos[0]) < photo.size / 2


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 255
    path.write_bytes(content)


def change(path: Path, **entries: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


DAMAGES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no manifest": ("set.json", Path.unlink, "not a frame set"),
    "cut manifest": ("set.json", truncate, "not valid JSON"),
    "foreign manifest": ("set.json", lambda p: change(p, format="other"), "format is not 'doap frame set 1'"),
    "a patch set": (
        "set.json",
        lambda p: change(p, format="doap patch set 1"),
        "is a patch set, not a frame set; build it with --frames",
    ),
    "no shards": ("set.json", lambda p: change(p, shards=[]), "an entry is missing"),
    "path outside": ("set.json", lambda p: change(p, shards=[{"file": "../x", "bytes": 1}]), "an entry is missing"),
    "name outside": ("set.json", lambda p: change(p, sequence_names=["../x"]), "sequence_names: '../x' is not a"),
    "photo outside": ("set.json", lambda p: change(p, photo_names=["/etc/x"]), "photo_names: '/etc/x' is not a name"),
    "no extent": ("set.json", lambda p: change(p, extent=0.0), "extent"),
    "an archive": ("groups.npy", lambda p: np.savez(p.open("wb"), a=np.zeros(3)), "groups.npy: not an array file"),
    "no frames": ("frames.npy", Path.unlink, "frames.npy: cannot be read"),
    "flipped frame": ("frames.npy", flip_byte, "frames.npy: checksum differs"),
    "flipped group": ("groups.npy", flip_byte, "groups.npy: checksum differs"),
    "flipped photo": ("photos-00000.npy", flip_byte, "photos-00000.npy: checksum differs"),
    "cut photo": ("photos-00000.npy", truncate, "photos-00000.npy: shorter"),
    "no photo": ("photos-00000.npy", Path.unlink, "photos-00000.npy: cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_set_is_named_in_one_line(made: FrameSet, tmp_path: Path, damage: str) -> None:
    made.save(tmp_path / "set")
    file, apply, message = DAMAGES[damage]
    apply(tmp_path / "set" / file)
    with pytest.raises(DoapError, match=message) as caught:
        FrameSet.open(tmp_path / "set")
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_wrong_arrays_are_refused(made: FrameSet) -> None:
    names = ("encoded_photos", "photo_names", "photos", "frames", "groups", "sequences", "sources")
    arguments: dict[str, Any] = {name: getattr(made, name) for name in names}
    infinite = made.frames.copy()
    infinite[3, 0, 0] = np.inf
    wrong: list[tuple[str, Any, str]] = [
        ("photos", made.photos + 5, "photos must be"),
        ("frames", made.frames[:-1], "frames must be"),
        ("frames", infinite, "finite"),
        ("sources", made.sources - 1, "sources must be"),
        ("photo_names", ["one"], "1 names for 2 photos"),
    ]
    FrameSet(**arguments | {"sequences": np.arange(len(made))})
    for name, value, message in wrong:
        with pytest.raises(DoapError, match=message):
            FrameSet(**arguments | {name: value})


def test_sources_are_stored_by_index(made: FrameSet, tmp_path: Path) -> None:
    """Sets written when "static" was called "fixed" hold the same indices."""
    made.sources[:3] = 0, 1, 2
    made.save(tmp_path / "set")
    assert np.load(tmp_path / "set" / "sources.npy")[:3].tolist() == [0, 1, 2]
    opened = FrameSet.open(tmp_path / "set")
    assert [SOURCES[source] for source in opened.sources[:3]] == ["views", "static", "tracks"]
    assert "fixed" not in (tmp_path / "set" / "set.json").read_text()


def test_a_photo_that_cannot_be_decoded_is_named(made: FrameSet) -> None:
    made.encoded_photos[1] = np.frombuffer(b"not an image", np.uint8)
    with pytest.raises(DoapError, match=r"south: not an image .* build the set again"):
        made.read_photo(1)
