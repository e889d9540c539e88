"""Safe unpacking of untrusted zip and tar archives into a new folder.

Files and folders are written one by one under checked names. Links, devices, encrypted members and archives that unpack
to more than a limit are refused. Permissions, owners and times in the archive are ignored.
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
from doap.types import Progress, no_progress

CHUNK = 1 << 20
MAX_MEMBERS = 100_000
DAMAGE_ERRORS = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, EOFError, ValueError, OverflowError,
    RuntimeError,  # encrypted, or its subclass NotImplementedError: unknown compression
)  # fmt: skip
STREAMS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


@dataclass(frozen=True)
class _Member:
    """A file in an archive, or a folder if it has no content; `read` is the number of archive bytes read so far."""

    name: str
    size: int
    content: IO[bytes] | None
    read: int


def unpack(
    archive: Path,
    folder: Path,
    max_bytes: int,
    max_members: int = MAX_MEMBERS,
    progress: Progress = no_progress,
) -> None:
    """Unpack a zip or tar archive, the latter optionally compressed by gzip, bzip2 or xz, into a folder.

    Args:
        archive: Archive; its format is detected from its content, not its name.
        folder: New or empty folder; after an error it holds the members unpacked so far, so use a temporary one.
        max_bytes: Limit of the unpacked size.
        max_members: Limit of the number of files and folders.
        progress: Callback, called as progress(archive bytes done, total).

    Raises:
        DoapError: If the archive is damaged or refused; names the archive and the error.
    """
    make_folder(folder)
    try:
        _unpack(archive, folder, max_bytes, max_members, progress)
    except DoapError as error:
        raise DoapError(f"{archive}: {error}") from error
    except DAMAGE_ERRORS as error:
        raise DoapError(f"{archive}: damaged, or not a zip or tar archive ({_one_line(error)})") from error
    except OSError as error:
        if error.errno is None:  # damaged data, as reported by gzip and bz2
            raise DoapError(f"{archive}: damaged ({_one_line(error)})") from error
        raise DoapError(f"{archive}: cannot be unpacked in {folder} ({error.strerror})") from error


def is_archive(path: Path) -> bool:
    """Return whether a file starts (a zip also: ends) like an archive that `unpack` reads."""
    with path.open("rb") as file:
        start = file.read(512)
    return zipfile.is_zipfile(path) or start.startswith(tuple(STREAMS)) or start[257:262] == b"ustar"


def _unpack(
    archive: Path,
    folder: Path,
    max_bytes: int,
    max_members: int,
    progress: Progress,
) -> None:
    total = archive.stat().st_size
    members = _zip_members(archive) if zipfile.is_zipfile(archive) else _tar_members(archive, max_bytes)
    names: set[str] = set()
    unpacked = 0
    for number, member in enumerate(members, 1):
        unpacked += member.size
        if number > max_members:
            raise DoapError(f"holds more than {max_members:,} files and folders, which is refused")
        if unpacked > max_bytes:
            raise DoapError(f"unpacks to more than {max_bytes:,} bytes, which is refused")
        path = _check_name(member.name)
        if _is_metadata(path):
            continue
        if member.content is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            # On a case-insensitive file system the second of two such files would overwrite the first.
            key = unicodedata.normalize("NFC", str(path)).casefold()
            if key in names:
                raise DoapError(f"holds {member.name!r} twice, or under names that differ only in case")
            names.add(key)
            _write_out(member.content, folder / path, member.size)
        progress(min(member.read, total), total)


def _write_out(content: IO[bytes], path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        while block := content.read(min(CHUNK, size)):
            file.write(block)
            size -= len(block)
    if size:
        raise EOFError(f"{path.name} is {size:,} bytes short")


def _check_name(name: str) -> PurePosixPath:
    """Return the relative path of a member; names that lead outside the folder are refused."""
    path = PurePosixPath(name.replace("\\", "/"))
    is_outside = path.is_absolute() or ".." in path.parts or bool(PureWindowsPath(name).drive)
    if is_outside or not name or not name.isprintable():
        raise DoapError(f"holds {name!r}, whose name is not valid or leads outside the folder, which is refused")
    return path


def _is_metadata(path: PurePosixPath) -> bool:
    """Return whether a member is metadata of macOS."""
    return "__MACOSX" in path.parts or path.name == ".DS_Store" or path.name.startswith("._")


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
            if info.filename.endswith("/"):  # not is_dir(), which fails for an empty name
                yield _Member(info.filename, 0, None, read)
            else:
                with opened.open(info) as content:
                    yield _Member(info.filename, info.file_size, content, read)


def _tar_members(archive: Path, max_bytes: int) -> Iterator[_Member]:
    with archive.open("rb") as raw:
        start = raw.read(6)
        raw.seek(0)
        decompress = next((stream for magic, stream in STREAMS.items() if start.startswith(magic)), None)
        bounded = _BoundedStream(decompress(raw) if decompress else raw, max_bytes)
        with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r:") as opened:
            for info in opened:
                if not (info.isreg() or info.isdir()):
                    raise DoapError(f"{info.name!r} is a link or a device, which is refused")
                yield _Member(info.name, info.size, opened.extractfile(info), raw.tell())
        # tarfile takes a damaged header for the end, and compressed data end with a checksum: read to the end.
        while block := bounded.read(CHUNK):
            if block.strip(b"\0"):
                raise EOFError("a header in the middle cannot be read")


class _BoundedStream:
    """Stream that limits the reads of tarfile, since a header can claim a length of gigabytes."""

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        self.stream = stream
        self.end = 2 * max_bytes + (64 << 20)  # allows for headers and padding; `unpack` checks the exact size

    def read(self, size: int) -> bytes:
        if not 0 <= size <= CHUNK:
            raise EOFError("a header with an impossible length")
        if self.stream.tell() > self.end:
            raise DoapError("unpacks to more than the limit, which is refused")
        return self.stream.read(size)

    def seek(self, offset: int) -> int:
        if offset > self.end:
            raise DoapError("unpacks to more than the limit, which is refused")
        return self.stream.seek(offset)

    def tell(self) -> int:
        return self.stream.tell()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
