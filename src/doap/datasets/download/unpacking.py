"""Unpacking archives from strangers: zip and tar, into a fresh folder and nowhere else.

Files and folders are written, one by one, under names that were checked; links, devices and encrypted members are
refused, and so are archives that unpack to more than they may. Rights, owners and times in the archive are ignored.
"""

import bz2
import gzip
import lzma
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, BinaryIO, cast

from doap.errors import DoapError
from doap.files import make_folder

CHUNK = 1 << 20
MAX_MEMBERS = 100_000
DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, EOFError, ValueError, OverflowError,
    RuntimeError,  # encrypted, or NotImplementedError, which is one: compressed in a way that zipfile does not know
)  # fmt: skip
STREAMS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


@dataclass(frozen=True)
class _Member:
    """A file or, without content, a folder in an archive; `read` is how much of the archive has been read so far."""

    name: str
    size: int
    content: IO[bytes] | None
    read: int


def unpack(
    archive: Path,
    folder: Path,
    max_bytes: int,
    max_members: int = MAX_MEMBERS,
    progress: Callable[[int, int | None], None] = lambda _done, _total: None,
) -> None:
    """Unpack a zip or a tar, plain or compressed by gzip, bzip2 or xz, into a folder.

    Args:
        archive: its kind is told by its content, not by its name.
        folder: must be new or empty; what was written stays there on a error, so give one that is thrown away.
        max_bytes: how much it may unpack to.
        max_members: how many files and folders it may hold.
        progress: called with the bytes of the archive that are done, and their number.

    Raises:
        DoapError: one line that names the archive and the error.
    """
    make_folder(folder)
    try:
        _unpack(archive, folder, max_bytes, max_members, progress)
    except DoapError as error:
        raise DoapError(f"{archive}: {error}") from error
    except DAMAGE as error:
        raise DoapError(f"{archive}: damaged, or no zip or tar archive ({_one_line(error)})") from error
    except OSError as error:
        if error.errno is None:  # how gzip and bz2 say that the data are wrong
            raise DoapError(f"{archive}: damaged ({_one_line(error)})") from error
        raise DoapError(f"{archive}: cannot be unpacked in {folder} ({error.strerror})") from error


def is_archive(path: Path) -> bool:
    """Whether a file begins (and a zip also ends) like an archive that `unpack` reads."""
    with path.open("rb") as file:
        start = file.read(512)
    return zipfile.is_zipfile(path) or start.startswith(tuple(STREAMS)) or start[257:262] == b"ustar"


def _unpack(
    archive: Path,
    folder: Path,
    max_bytes: int,
    max_members: int,
    progress: Callable[[int, int | None], None],
) -> None:
    whole = archive.stat().st_size
    members = _zip_members(archive) if zipfile.is_zipfile(archive) else _tar_members(archive, max_bytes)
    seen: set[str] = set()
    unpacked = 0
    for number, member in enumerate(members, 1):
        unpacked += member.size
        if number > max_members:
            raise DoapError(f"holds more than {max_members:,} files and folders, which is refused")
        if unpacked > max_bytes:
            raise DoapError(f"unpacks to more than {max_bytes:,} bytes, which is refused")
        place = _checked_place(member.name)
        if _is_litter(place):
            continue
        if member.content is None:
            (folder / place).mkdir(parents=True, exist_ok=True)
        else:
            # Where letters of both cases are the same, the second of two such files would overwrite the first.
            key = unicodedata.normalize("NFC", str(place)).casefold()
            if key in seen:
                raise DoapError(f"holds {member.name!r} twice, or under names that differ in case alone")
            seen.add(key)
            _write_out(member.content, folder / place, member.size)
        progress(min(member.read, whole), whole)


def _write_out(content: IO[bytes], path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        while block := content.read(min(CHUNK, size)):
            file.write(block)
            size -= len(block)
    if size:
        raise EOFError(f"{path.name} is {size:,} bytes short")


def _checked_place(name: str) -> PurePosixPath:
    """The place of a member below the folder; names that lead elsewhere are refused."""
    place = PurePosixPath(name.replace("\\", "/"))
    leads_out = place.is_absolute() or ".." in place.parts or bool(PureWindowsPath(name).drive)
    if leads_out or not name.isprintable():
        raise DoapError(
            f"holds a file named {name!r}, which would lead out of its folder, or is no proper name; that is refused"
        )
    return place


def _is_litter(place: PurePosixPath) -> bool:
    """What macOS leaves in archives."""
    return "__MACOSX" in place.parts or place.name == ".DS_Store" or place.name.startswith("._")


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as opened:
        read = 0
        for info in opened.infolist():
            read += info.compress_size
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DoapError(f"{info.filename!r} is a link or a device, which is refused")
            if info.flag_bits & 1:
                raise DoapError(f"{info.filename!r} is encrypted, which is refused")
            if info.is_dir():
                yield _Member(info.filename, 0, None, read)
            else:
                with opened.open(info) as content:
                    yield _Member(info.filename, info.file_size, content, read)


def _tar_members(archive: Path, max_bytes: int) -> Iterator[_Member]:
    with archive.open("rb") as raw:
        start = raw.read(6)
        raw.seek(0)
        decompress = next((stream for magic, stream in STREAMS.items() if start.startswith(magic)), None)
        bounded = _Bounded(decompress(raw) if decompress else raw, max_bytes)
        with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r:") as opened:
            for info in opened:
                if not (info.isreg() or info.isdir()):
                    raise DoapError(f"{info.name!r} is a link or a device, which is refused")
                yield _Member(info.name, info.size, opened.extractfile(info), raw.tell())
        # tarfile takes a damaged header for the end, and checksums stand at the end of compressed data: read all of it.
        while block := bounded.read(CHUNK):
            if block.strip(b"\0"):
                raise EOFError("a header in the middle cannot be read")


class _Bounded:
    """A tar's bytes, in small pieces and no more than there may be: a header can claim to be gigabytes long."""

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        self.stream = stream
        self.end = 2 * max_bytes + (64 << 20)  # headers and padding; what unpacks is counted by `unpack` itself

    def read(self, size: int) -> bytes:
        if not 0 <= size <= CHUNK:
            raise EOFError("a header of impossible length")
        if self.stream.tell() > self.end:
            raise DoapError("holds more than it may, which is refused")
        return self.stream.read(size)

    def seek(self, offset: int) -> int:
        if offset > self.end:
            raise DoapError("holds more than it may, which is refused")
        return self.stream.seek(offset)

    def tell(self) -> int:
        return self.stream.tell()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
