"""Unpacking of valid archives, and refusal of hostile ones without a trace outside the folder."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from doap.datasets.download.unpacking import is_archive, unpack
from doap.errors import DoapError
from support.sets.hostile_archives import GOOD, HOSTILE, tar_file, tar_of, tarred, zipped

KINDS = {
    "zip": zipped(GOOD),
    "stored": zipped(GOOD, zipfile.ZIP_STORED),
    "tar": tarred(GOOD, "w:"),
    "tar.gz": tarred(GOOD, "w:gz"),
    "tar.bz2": tarred(GOOD, "w:bz2"),
    "tar.xz": tarred(GOOD, "w:xz"),
}


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_detected_and_unpacked(tmp_path: Path, kind: str) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(KINDS[kind])
    assert is_archive(archive)
    calls: list[tuple[int, int]] = []
    unpack(archive, tmp_path / "out", 10_000, progress=lambda done, total: calls.append((done, total)))
    assert {p for p in everything_below(tmp_path / "out") if "." in p} == {"top/one.txt", "top/deep/two.txt"}
    assert (tmp_path / "out/top/deep/two.txt").read_bytes() == b"two" * 1000
    assert all(done <= total == len(KINDS[kind]) for done, total in calls)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_one_line_and_write_nothing_elsewhere(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    home = tmp_path / "home" / "data"
    home.mkdir(parents=True)
    archive = home / "archive"
    archive.write_bytes(content)
    with pytest.raises(DoapError) as error:
        unpack(archive, home / "out", max_bytes=1_000_000, max_members=50)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{archive}: ")
    assert "\n" not in str(error.value)
    outside = {p for p in everything_below(tmp_path) if not p.startswith("home/data/out")}
    assert outside == {"home", "home/data", "home/data/archive"}
    assert not any(p.is_symlink() for p in tmp_path.rglob("*"))
    assert sum(p.stat().st_size for p in (home / "out").rglob("*") if p.is_file()) <= 1_000_000
    assert not Path("/tmp/doap-escaped").exists()


def test_permissions_in_the_archive_are_ignored(tmp_path: Path) -> None:
    info = tar_file("run.sh", 2)
    info.mode, info.uid = 0o6777, 0
    (tmp_path / "a.tar").write_bytes(tar_of([(info, b"ls")], "w:"))
    unpack(tmp_path / "a.tar", tmp_path / "out", 100)
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o7111 == 0


def test_a_long_chain_of_headers_is_one_line(tmp_path: Path) -> None:
    link = io.BytesIO()
    with tarfile.open(fileobj=link, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tar_file("a" * 200))
    head = link.getvalue()[:1024]  # an extended header, without the member it describes
    (tmp_path / "a.tar").write_bytes(head * 3000)
    with pytest.raises(DoapError, match="damaged"):
        unpack(tmp_path / "a.tar", tmp_path / "out", 10_000_000)


def test_words_are_no_archive(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html>not found</html>")
    assert not is_archive(tmp_path / "page.html")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"x" * 300: b"1"}))
    with pytest.raises(DoapError, match=r"cannot be unpacked in .* \(File name too long\)"):
        unpack(tmp_path / "a.zip", tmp_path / "out", 100)
