"""Parts of matches that were damaged between two runs."""

from pathlib import Path

import numpy as np
import pytest

from doap.errors import DoapError
from doap.folders.match_store import MatchCollection, MatchStore

PAIRS = [("a.png", "b.png"), ("a.png", "c.png")]


def store_with_part(output: Path) -> MatchStore:
    """Return a store in which an earlier run has left a part."""
    store = MatchStore(output)
    store.open({"ratio": 1}, force=False)
    store.save(PAIRS, [{"indices": np.arange(200).reshape(100, 2), "stamp": name} for _, name in PAIRS])
    return store


def test_a_part_is_continued(tmp_path: Path) -> None:
    store_with_part(tmp_path / "m.h5")
    store = MatchStore(tmp_path / "m.h5")
    store.open({"ratio": 1}, force=False)
    assert [store.stamp(pair) for pair in PAIRS] == ["b.png", "c.png"]
    store.finish()
    assert (tmp_path / "m.h5").exists()


def test_parts_of_other_settings_are_refused_and_replaced_by_force(tmp_path: Path) -> None:
    part = store_with_part(tmp_path / "m.h5").folder / "00000000.npz"
    message = r"m\.h5: an unfinished run made matches with ratio = 1, not 0\.9; choose another output, or --force"
    with pytest.raises(DoapError, match=message):
        MatchStore(tmp_path / "m.h5").open({"ratio": 0.9}, force=False)
    assert part.exists()
    MatchStore(tmp_path / "m.h5").open({"ratio": 0.9}, force=True)
    assert not part.exists()


def test_settings_without_a_part_hinder_no_other_run(tmp_path: Path) -> None:
    MatchStore(tmp_path / "m.h5").open({"ratio": 1}, force=False)
    store = MatchStore(tmp_path / "m.h5")
    store.open({"ratio": 0.9}, force=False)
    store.save(PAIRS[:1], [{"indices": np.zeros((1, 2), int), "stamp": "b.png"}])
    store.finish()
    assert MatchCollection(tmp_path / "m.h5").pairs == PAIRS[:1]


def test_force_keeps_matches_of_the_same_settings(tmp_path: Path) -> None:
    for pair in PAIRS:  # the first is stored in the file, the second in a part
        store = MatchStore(tmp_path / "m.h5")
        store.open({"ratio": 1}, force=True)
        store.save([pair], [{"indices": np.zeros((1, 2), int), "stamp": pair[1]}])
        if pair == PAIRS[0]:
            store.finish()
    for ratio, stamps in ((1, ["b.png", "c.png"]), (0.9, [None, None])):
        again = MatchStore(tmp_path / "m.h5")
        again.open({"ratio": ratio}, force=True)
        assert [again.stamp(pair) for pair in PAIRS] == stamps


def damage_part(store: MatchStore) -> Path:
    """Change a byte of the matches in the first part."""
    part = store.folder / "00000000.npz"
    content = bytearray(part.read_bytes())
    content[content.index(np.arange(200).tobytes()) + 5] ^= 1
    part.write_bytes(content)
    return part


def test_damage_within_a_part_is_one_line_once(tmp_path: Path) -> None:
    store = store_with_part(tmp_path / "m.h5")
    part = damage_part(store)
    with pytest.raises(DoapError, match=r"00000000\.npz: damaged and removed; run the command again"):
        store.finish()
    assert not (tmp_path / "m.h5").exists()
    assert not part.exists()


def test_pairs_of_a_damaged_part_are_matched_again(tmp_path: Path) -> None:
    store = store_with_part(tmp_path / "m.h5")
    other = ("b.png", "c.png")
    store.save([other], [{"indices": np.zeros((1, 2), int), "stamp": "other"}])
    damage_part(store)
    again = MatchStore(tmp_path / "m.h5")
    again.open({"ratio": 1}, force=False)
    assert [again.stamp(pair) for pair in (*PAIRS, other)] == [None, None, "other"]
    again.save(PAIRS, [{"indices": np.arange(200).reshape(100, 2), "stamp": name} for _, name in PAIRS])
    again.finish()
    assert MatchCollection(tmp_path / "m.h5").pairs == [*PAIRS, other]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"PK\x03\x04", b""])
def test_a_part_or_settings_that_cannot_be_read_are_ignored(tmp_path: Path, content: bytes) -> None:
    store = store_with_part(tmp_path / "m.h5")
    (part,) = store.folder.glob("0*.npz")
    part.write_bytes(content)
    again = MatchStore(tmp_path / "m.h5")
    again.open({"ratio": 1}, force=False)
    assert again.stamp(PAIRS[0]) is None
    (store.folder / "settings.json").write_bytes(b"\xff\xfe")
    MatchStore(tmp_path / "m.h5").open({"ratio": 1}, force=False)
