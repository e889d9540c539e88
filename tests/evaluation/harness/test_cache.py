"""The cache of descriptors: damaged files, full disks and folders that can only be read."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from doap.errors import DoapError
from doap.evaluation.harness.cache import DescriptorCache
from doap.types import Descriptors

ROWS = np.random.default_rng(0).normal(size=(10, 25)).astype(np.float32)


@pytest.fixture
def cache(tmp_path: Path) -> DescriptorCache:
    return DescriptorCache(tmp_path / "cache")


def make(cache: DescriptorCache, key: str) -> Descriptors:
    return cache.make(key, ROWS.shape, ROWS.dtype, iter([ROWS[:7], ROWS[7:]]))


def test_an_array_is_read_as_it_was_made(cache: DescriptorCache) -> None:
    for array in (make(cache, "key"), cache.get("key"), DescriptorCache(cache.folder).get("key")):
        assert array is not None
        np.testing.assert_array_equal(array, ROWS)
        assert not array.flags.writeable


def test_any_flipped_bit_is_noticed(cache: DescriptorCache) -> None:
    make(cache, "key")
    file = cache.folder / "key.npy"
    content = file.read_bytes()
    for position in (*range(0, len(content), 37), len(content) - 1):
        file.write_bytes(content[:position] + bytes([content[position] ^ 16]) + content[position + 1 :])
        assert DescriptorCache(cache.folder).get("key") is None, position
    file.write_bytes(content)
    assert DescriptorCache(cache.folder).get("key") is not None


@pytest.mark.parametrize("length", [0, 3, 4, 130, -1])
def test_a_shortened_file_is_noticed(cache: DescriptorCache, length: int) -> None:
    make(cache, "key")
    file = cache.folder / "key.npy"
    file.write_bytes(file.read_bytes()[:length])
    assert DescriptorCache(cache.folder).get("key") is None


def test_files_without_a_checksum_are_not_used(cache: DescriptorCache) -> None:
    """Earlier versions wrote none."""
    cache.folder.mkdir()
    np.save(cache.folder / "key.npy", ROWS)
    assert cache.get("key") is None


def test_a_killed_run_leaves_nothing_half_made(cache: DescriptorCache) -> None:
    def die() -> Iterator[Descriptors]:
        yield ROWS[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.make("key", ROWS.shape, ROWS.dtype, die())
    assert list(cache.folder.iterdir()) == []


def test_the_least_recently_used_is_deleted_when_there_are_too_many(
    cache: DescriptorCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doap.evaluation.harness.cache.MAX_BYTES", 2500)  # two arrays of 1,132 bytes
    for age, key in enumerate("abc"):
        make(cache, key)
        if key != "c":
            os.utime(cache.folder / f"{key}.npy", (age, age))
    assert [key for key in "abc" if cache.get(key) is not None] == ["b", "c"]


def test_the_folder_is_measured_once_for_many_arrays_and_never_exceeds_the_limit(
    cache: DescriptorCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = Mock(wraps=os.scandir)
    monkeypatch.setattr(os, "scandir", measure)
    monkeypatch.setattr("doap.evaluation.harness.cache.MAX_BYTES", 226_400)  # 200 arrays of 1,132 bytes
    monkeypatch.setattr("doap.evaluation.harness.cache.ROOM", 0.2)
    for number in range(400):
        make(cache, str(number))
        assert sum(1 for _ in cache.folder.iterdir()) <= 200
    assert measure.call_count == 10  # for the first array, then after each 41
    assert cache.get("399") is not None
    assert cache.get("0") is None


def test_a_folder_that_cannot_be_listed_can_be_used(cache: DescriptorCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "scandir", Mock(side_effect=PermissionError))
    np.testing.assert_array_equal(make(cache, "a"), ROWS)
    np.testing.assert_array_equal(cache.get("a"), ROWS)


def test_the_newest_stays_if_the_clock_was_set_back(cache: DescriptorCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.evaluation.harness.cache.MAX_BYTES", 1200)
    make(cache, "a")
    os.utime(cache.folder / "a.npy", (4e9, 4e9))
    np.testing.assert_array_equal(make(cache, "b"), ROWS)
    assert [key for key in "ab" if cache.get(key) is not None] == ["b"]


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "in place"])
def test_a_file_that_is_damaged_after_it_was_read_is_noticed(cache: DescriptorCache, replaced: bool) -> None:
    make(cache, "key")
    assert cache.get("key") is not None
    file = cache.folder / "key.npy"
    content = bytearray(file.read_bytes())
    content[-20] ^= 16
    if replaced:
        (cache.folder / "other").write_bytes(content)
        (cache.folder / "other").replace(file)
    else:
        file.write_bytes(content)
    assert cache.get("key") is None


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DoapError, match=str(tmp_path / "cache")):
        make(DescriptorCache(tmp_path / "cache"), "key")


SMALL_DISK = """
from pathlib import Path
import subprocess
import numpy as np
from doap.errors import DoapError
from doap.evaluation.harness.cache import DescriptorCache

folder, rows = Path("{folder}"), np.ones((1024, 128), np.float32)
cache = DescriptorCache(folder)
cache.make("fits", rows.shape, rows.dtype, iter([rows]))
requested = []
try:
    cache.make("large", (2048, 128), rows.dtype, (requested.append(i) or rows for i in range(2)))
except DoapError as error:
    print(error)
print("described", len(requested), [file.name for file in folder.iterdir()])
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
print("read", DescriptorCache(folder).get("fits").sum())
try:
    cache.make("other", rows.shape, rows.dtype, iter([rows]))
except DoapError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system in a namespace of Linux")
def test_a_full_and_a_read_only_disk(tmp_path: Path) -> None:
    """On a real file system of 1 MiB: writing to a mapped sparse file would kill the process by SIGBUS."""
    namespace = [shutil.which("unshare") or "unshare", "--user", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=1m tmpfs {tmp_path}"
    try:
        subprocess.run([*namespace, "sh", "-c", mount], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    script = tmp_path.with_name(f"{tmp_path.name}.py")
    script.write_text(SMALL_DISK.format(folder=tmp_path))
    command = [*namespace, "sh", "-c", f"{mount} && exec {sys.executable} {script}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    full, described, read, read_only = done.stdout.splitlines()
    assert full.startswith(f"{tmp_path}/large.npy: cannot be written (No space left on device)")
    assert described == "described 0 ['fits.npy']"
    assert read == f"read {1024.0 * 128}"
    assert read_only.startswith(f"{tmp_path}/other.npy: cannot be written (Read-only file system)")
