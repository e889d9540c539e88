import json
import os
import re
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from doap import DoapError, PatchSet
from doap.datasets.sets import writer
from doap.datasets.sets.writer import write_patch_set


def some_set(groups: int = 40, size: int = 8) -> PatchSet:
    random = np.random.default_rng(0)
    ids = np.repeat(np.arange(groups), 3)
    random.shuffle(ids)
    patches = random.integers(0, 256, (len(ids), size, size), dtype=np.uint8)
    return PatchSet(
        [patches], ids, ids % 2, {"view": np.arange(len(ids)) % 5}, sequence_names=["north", "south"], extent=5.0
    )


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SHARD_BYTES", 50 * 64)


@pytest.mark.usefixtures("small_shards")
def test_round_trip_over_several_shards(tmp_path: Path) -> None:
    made = some_set()
    made.save(tmp_path / "set")
    opened = PatchSet.open(tmp_path / "set")
    assert [len(s) for s in opened.shards] == [50, 50, 20]
    assert all(isinstance(s, np.memmap) for s in opened.shards)
    order = np.random.default_rng(1).permutation(len(made))
    np.testing.assert_array_equal(opened.take(order), made.shards[0][order])
    np.testing.assert_array_equal(opened.groups, made.groups)
    np.testing.assert_array_equal(opened.sequences, made.sequences)
    np.testing.assert_array_equal(opened.labels["view"], made.labels["view"])
    assert (opened.sequence_names, opened.extent, opened.size) == (["north", "south"], 5.0, 8)
    PatchSet.verify(tmp_path / "set")


def test_members_are_the_groups() -> None:
    made = some_set()
    starts = made.members_start
    assert len(starts) == 41
    for g in range(40):
        members = made.members[starts[g] : starts[g + 1]]
        np.testing.assert_array_equal(members, np.flatnonzero(made.groups == g))


@pytest.mark.parametrize("index", [-1, 120])
def test_take_refuses_indices_outside(index: int) -> None:
    with pytest.raises(IndexError, match=r"0\.\.119"):
        some_set().take([0, index])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([np.zeros((2, 4, 5), np.uint8)], [0, 0]), "one size"),
        (([np.zeros((2, 4, 4), np.float32)], [0, 0]), "uint8"),
        (([np.zeros((2, 4, 4), np.uint8)], [0]), "groups has shape"),
        (([np.zeros((2, 4, 4), np.uint8)], [0, 0], [0, 1]), "group 0 is in more than one sequence"),
        (([np.zeros((2, 4, 4), np.uint8)], [0, 0], None, {"view": [1]}), "view has shape"),
        (([np.zeros((0, 4, 4), np.uint8)], []), "at least one patch"),
        (([np.zeros((1, 4, 4), np.uint8)], [0], [7], None, ["only"]), r"must be 0\.\.0 to be named"),
    ],
)
def test_wrong_contents_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DoapError, match=message):
        PatchSet(*arguments)


def flip_bit(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def edit(folder: Path, **values: object) -> None:
    file = folder / "set.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def claim(path: Path, header: bytes) -> None:
    """Replace the header of an array file by another text."""
    text = header.ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + path.read_bytes()[128:])


def write_labels(folder: Path, name: str, value: int) -> None:
    """Add labels to a saved set, all of one value."""
    manifest = json.loads((folder / "set.json").read_text())
    np.save(folder / f"label-{name}.npy", np.full(manifest["patches"], value))
    checksum = zlib.crc32((folder / f"label-{name}.npy").read_bytes())
    edit(folder, arrays={**manifest["arrays"], f"label-{name}": checksum}, photo_names=["one", "two"])


HUGE = b"{'descr': '<i8', 'fortran_order': False, 'shape': (100000000000,), }"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped pixel": (lambda f: flip_bit(f / "patches-00001.npy", -5), r"patches-00001\.npy: checksum"),
    "truncated shard": (lambda f: os.truncate(f / "patches-00000.npy", 900), r"patches-00000\.npy: shorter"),
    "empty shard": (lambda f: os.truncate(f / "patches-00000.npy", 0), r"patches-00000\.npy: "),
    "missing shard": (lambda f: (f / "patches-00002.npy").unlink(), r"patches-00002\.npy: cannot be read"),
    "other shard shape": (
        lambda f: np.save(f / "patches-00000.npy", np.zeros((50, 4, 4), np.uint8)),
        r"patches-00000\.npy: holds uint8 \(50, 4, 4\)",
    ),
    "other shard type": (
        lambda f: np.save(f / "patches-00000.npy", np.zeros((50, 8, 8), np.int8)),
        r"patches-00000\.npy: holds int8",
    ),
    "flipped id": (lambda f: flip_bit(f / "groups.npy", -8), r"groups\.npy: checksum"),
    "missing ids": (lambda f: (f / "sequences.npy").unlink(), r"sequences\.npy: cannot be read"),
    "text as ids": (lambda f: (f / "groups.npy").write_text("hello"), r"groups\.npy: not an array"),
    "pickled ids": (
        lambda f: np.save(f / "groups.npy", np.array([{}], dtype=object), allow_pickle=True),
        r"groups\.npy: not an array",
    ),
    "broken manifest": (lambda f: (f / "set.json").write_text("{"), r"set\.json: not valid JSON"),
    "foreign manifest": (lambda f: edit(f, format="other"), r"set\.json: format is not"),
    "a frame set": (
        lambda f: edit(f, format="doap frame set 1"),
        "set: is a frame set, not a patch set; build it without --frames",
    ),
    "manifest without shards": (lambda f: edit(f, shards=None), r"set\.json: an entry is missing"),
    "manifest that leaves the folder": (
        lambda f: edit(f, shards=[{"file": "../../etc/passwd", "patches": 1}]),
        r"set\.json: an entry is missing or of the wrong type",
    ),
    "no manifest": (lambda f: (f / "set.json").unlink(), "not a patch set"),
    "ids of 745 GB": (lambda f: claim(f / "groups.npy", HUGE), r"groups\.npy: shorter .*: 960 of 800,000,000,000"),
    "shard of 745 GB": (lambda f: claim(f / "patches-00000.npy", HUGE), r"patches-00000\.npy: shorter than its header"),
    "deep header": (lambda f: claim(f / "groups.npy", b"{'descr': " + b"(" * 90), r"groups\.npy: not an array file"),
    "header of no dictionary": (lambda f: claim(f / "groups.npy", b"{[]: 1}"), r"groups\.npy: not an array file"),
    "shape of text": (
        lambda f: claim(f / "patches-00000.npy", HUGE.replace(b"100000000000", b"'many'")),
        r"patches-00000\.npy: not an array file",
    ),
    "negative shape": (
        lambda f: claim(f / "groups.npy", HUGE.replace(b"100000000000", b"-1")),
        r"groups\.npy: not an array of numbers",
    ),
    "an archive as ids": (
        lambda f: np.savez((f / "groups.npy").open("wb"), a=np.zeros(3)),
        r"groups\.npy: not an array file",
    ),
    "extent that is no number": (lambda f: edit(f, extent=float("nan")), r"set\.json: the extent must be"),
    "photo outside": (lambda f: write_labels(f, "photo", 2), r"label photo must be 0\.\.1, not 2\.\.2"),
    "negative source": (lambda f: write_labels(f, "source", -1), r"label source must be 0\.\.2, not -1\.\.-1"),
}


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_set_is_named_in_one_line(tmp_path: Path, damage: str) -> None:
    some_set().save(tmp_path / "set")
    apply, message = DAMAGES[damage]
    apply(tmp_path / "set")
    with pytest.raises(DoapError, match=message) as caught:
        PatchSet.open(tmp_path / "set")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("entry", ["sequence_names", "photo_names"])
@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../outside", "a/../../outside", "..", "", "two\nlines", "\x1b[31m", "caf\udce9", None, 3]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, entry: str, name: object) -> None:
    some_set().save(tmp_path / "set")
    edit(tmp_path / "set", **{entry: ["north", name]})
    with pytest.raises(DoapError, match=rf"set\.json: {entry}: .* is not a name or a relative path") as caught:
        PatchSet.open(tmp_path / "set")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["photos/a.jpg", "..two dots", "caf\u00e9", r"caf\xe9.jpg", "with: colon", "."])
def test_relative_paths_are_names(tmp_path: Path, name: str) -> None:
    some_set().save(tmp_path / "set")
    edit(tmp_path / "set", sequence_names=["north", name], photo_names=[name])
    assert PatchSet.open(tmp_path / "set").sequence_names == ["north", name]


def test_a_set_that_could_not_be_opened_is_not_written(tmp_path: Path) -> None:
    made = PatchSet([np.zeros((2, 8, 8), np.uint8)], [0, 1], sequence_names=["../outside"])
    with pytest.raises(DoapError, match="is not a name"):
        made.save(tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_no_set(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="not a patch set"):
        PatchSet.open(tmp_path / "nowhere")


def test_verify_reads_what_opening_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.datasets.sets.patch_set.BLOCKS_CHECKED_ON_OPEN", 2)
    patches = np.zeros((5 << 10, 32, 32), np.uint8)
    PatchSet([patches], np.arange(len(patches))).save(tmp_path / "set")
    flip_bit(tmp_path / "set" / "patches-00000.npy", 2 << 20)
    PatchSet.open(tmp_path / "set")  # only the first and the last of its 6 blocks are read
    with pytest.raises(DoapError, match="near byte 2,097,152"):
        PatchSet.verify(tmp_path / "set")


def test_verify_reads_every_file(tmp_path: Path) -> None:
    some_set().save(tmp_path / "set")
    PatchSet.verify(tmp_path / "set")
    files = sorted((tmp_path / "set").glob("*.npy"))
    assert {file.name for file in files} >= {"groups.npy", "sequences.npy", "patches-00000.npy", "checksums.npy"}
    for file in files:
        content = file.read_bytes()
        flip_bit(file, len(content) - 1)
        with pytest.raises(DoapError, match=re.escape(str(file))):
            PatchSet.verify(tmp_path / "set")
        file.write_bytes(content)


def test_saving_over_a_set_is_refused(tmp_path: Path) -> None:
    some_set().save(tmp_path / "set")
    with pytest.raises(DoapError, match="exists already"):
        some_set().save(tmp_path / "set")


def test_a_writer_that_fails_or_gets_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), write_patch_set(tmp_path / "set", 8) as out:
        out.append(np.zeros((4, 8, 8), np.uint8), [0] * 4, [0] * 4)
        raise RuntimeError
    with pytest.raises(DoapError, match="none was appended"), write_patch_set(tmp_path / "set", 8):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_writer_refuses_what_does_not_fit(tmp_path: Path) -> None:
    patches = np.zeros((2, 8, 8), np.uint8)
    with pytest.raises(DoapError, match="expected uint8"), write_patch_set(tmp_path / "a", 9) as out:
        out.append(patches, [0, 0], [0, 0])
    with pytest.raises(DoapError, match="1 values for 2 patches"), write_patch_set(tmp_path / "b", 8) as out:
        out.append(patches, [0], [0, 0])
    with pytest.raises(DoapError, match="labels differ"), write_patch_set(tmp_path / "c", 8) as out:
        out.append(patches, [0, 0], [0, 0], view=[0, 1])
        out.append(patches, [1, 1], [0, 0])


@pytest.mark.slow
def test_a_killed_build_leaves_no_set(tmp_path: Path) -> None:
    script = f"""
import numpy as np, os, signal, pathlib
from doap.datasets.sets.writer import write_patch_set
with write_patch_set(pathlib.Path({str(tmp_path / "set")!r}), 32) as out:
    for _ in range(20):
        out.append(np.zeros((8192, 32, 32), np.uint8), np.zeros(8192), np.zeros(8192))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "set").exists()


def test_a_million_patches_open_without_being_read(tmp_path: Path) -> None:
    count, batch = 1_000_000, 100_000
    with write_patch_set(tmp_path / "set", 32) as out:
        for start in range(0, count, batch):
            ids = np.arange(start, start + batch) // 4
            out.append(np.full((batch, 32, 32), start // batch, np.uint8), ids, ids * 0)
    script = f"""
import resource
from doap import PatchSet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
patches = PatchSet.open({str(tmp_path / "set")!r})
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert patches.take([0, 999_999])[:, 0, 0].tolist() == [0, 9]
print(len(patches), (after - before) / 1024)
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    length, mebibytes = shown.split()
    assert int(length) == count
    # The pixels are 977 MiB; the ids of a million patches, sorted by group, are tens of MiB.
    assert float(mebibytes) < 100
