"""Download of an official data set: fetch, unpack and check it, then rename it to its final name.

A data set is the folder NAME of a root folder. Files are downloaded to downloads/NAME; a complete file there, from an
earlier run or copied manually, is not downloaded again.

No hash of the official data is published for the mirrors of the catalogue. The hash of the content is therefore
recorded the first time, in NAME.sha256 beside the folder, and compared each time after.
"""

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from doap.datasets.download.catalogue import DataSet, RemoteFile, is_plain_http
from doap.datasets.download.checking import Content, content_hash
from doap.datasets.download.fetching import RetryPolicy, fetch
from doap.datasets.download.unpacking import is_archive, unpack
from doap.errors import DoapError
from doap.files import atomic_folder, make_folder, remove_temporary_files, write_text
from doap.types import StepProgress, no_step_progress

TOLERANCE = 4  # limit of a file and of its unpacked content, relative to the size in the catalogue


@dataclass(frozen=True)
class DownloadResult:
    """A downloaded and checked data set.

    Attributes:
        folder: Its folder.
        counts: Counts of its content, as text.
        sha256: Hash of its content.
        record: File of the hash of the first download, which is the same; None if it cannot be written, or if the hash
            is in the catalogue.
        is_new: Whether it was downloaded by this call.
        is_recorded_now: Whether the record was written by this call.
        plain_urls: URLs of the files that this call downloaded over plain http.
    """

    folder: Path
    counts: str
    sha256: str
    record: Path | None
    is_new: bool
    is_recorded_now: bool
    plain_urls: tuple[str, ...] = ()


def download(
    data: DataSet,
    root: Path,
    url: str | None = None,
    keep_archive: bool = False,
    retry: RetryPolicy = RetryPolicy(),  # noqa: B008 it is frozen
    progress: StepProgress = no_step_progress,
) -> DownloadResult:
    """Download a data set to `root`/NAME, or check the one that is there.

    Args:
        data: Entry of the catalogue. Its companions are not downloaded.
        root: Folder of data sets.
        url: URL to try first: of the file or, for sets of several files, of their folder.
        keep_archive: Keep the downloaded files in downloads/NAME.
        retry: How long to wait for a server.
        progress: Callback, called as progress(step, bytes done, total or None if unknown).

    Raises:
        DoapError: If the download or the check fails, another process is downloading it, or the content is not that
            of the first download; `root`/NAME is unchanged then.
    """
    target, downloads = root / data.name, root / "downloads" / data.name
    if target.exists():
        return _result(data, target, *_check(data, target, target, progress))
    lock = make_folder(downloads) / ".lock"
    try:
        with FileLock(lock, timeout=0):
            try:
                result = _download(data, target, downloads, url, retry, progress)
                if not keep_archive:
                    shutil.rmtree(downloads)
            finally:
                lock.unlink(missing_ok=True)
                for folder in (downloads, downloads.parent):
                    with suppress(OSError):  # files to resume from, or of other data sets
                        folder.rmdir()
    except Timeout as error:
        raise DoapError(f"{target}: another process is downloading it; wait until it is there") from error
    return result


def _download(
    data: DataSet, target: Path, downloads: Path, url: str | None, retry: RetryPolicy, progress: StepProgress
) -> DownloadResult:
    """Download a data set that is not there; arguments as `download`."""
    urls = [_fetch_file(data, file, downloads / file.name, url, retry, progress) for file in data.files]
    with atomic_folder(target) as temporary:
        for file in data.files:
            _store(file, downloads / file.name, temporary, TOLERANCE * data.size, progress)
        try:
            checked = _check(data, temporary, target, progress)
        except DoapError as error:
            raise DoapError(f"{error}; to download it again, remove {downloads}") from error
    plain_urls = tuple(url for url in urls if url and is_plain_http(url))
    return replace(_result(data, target, *checked), is_new=True, plain_urls=plain_urls)


def complete_content(data: DataSet, folder: Path) -> Content:
    """Return the counted content of a folder; a DoapError if it is not the complete data set."""
    content = data.inspect(folder)
    differences = [
        f"{content.counts.get(name, 0):,} {name} instead of {count:,}"
        for name, count in data.expected.items()
        if content.counts.get(name) != count
    ]
    if differences:
        raise DoapError(", ".join(differences))
    return content


def _fetch_file(
    data: DataSet, file: RemoteFile, target: Path, url: str | None, retry: RetryPolicy, progress: StepProgress
) -> str | None:
    """Download a file and return its URL; None if it is there already."""
    if target.exists():
        return None
    urls = file.urls
    if url is not None:
        is_file = len(data.files) == 1 and not url.endswith("/")
        urls = (url if is_file else f"{url.rstrip('/')}/{file.name}", *urls)
    return fetch(
        urls,
        target,
        TOLERANCE * data.size,
        hint=f"download it manually from {data.page}, put it at {target}, and run this again",
        retry=retry,
        find_error=partial(_find_error, file),
        progress=progress,
    )


def _find_error(remote: RemoteFile, path: Path) -> str | None:
    """Return the error of a downloaded file, or None.

    For a missing file, servers often send a web page with a success status.
    """
    with path.open("rb") as file:
        start = file.read(512).lstrip()
    if start.startswith(b"<"):
        return "sent a web page instead of the file"
    if not start:
        return "sent an empty file"
    return "sent no complete zip or tar archive" if remote.is_archive and not is_archive(path) else None


def _store(file: RemoteFile, source: Path, folder: Path, max_bytes: int, progress: StepProgress) -> None:
    """Copy or unpack a downloaded file into a folder; enclosing folders of an archive are removed."""
    if not file.is_archive:
        shutil.copyfile(source, folder / file.name)
        return
    unpacked = folder / f".{file.name}"
    try:
        unpack(source, unpacked, max_bytes, progress=partial(progress, f"unpacking {file.name}"))
    except DoapError as error:
        raise DoapError(f"{error}; remove it to download it again, from another mirror with --url") from error
    content = unpacked
    while len(entries := list(content.iterdir())) == 1 and entries[0].is_dir():
        content = entries[0]
    target = folder / file.folder
    target.mkdir(exist_ok=True)
    for path in content.iterdir():
        path.replace(target / path.name)
    shutil.rmtree(unpacked)


def _check(data: DataSet, folder: Path, target: Path, progress: StepProgress) -> tuple[str, str]:
    """Count, decode and hash the content of `folder`, which is `target` or will be renamed to it.

    Returns:
        The counts as text, and the hash, which is that of the catalogue or of the first download.
    """
    try:
        content = complete_content(data, folder)
        sha256 = content_hash(content, partial(progress, f"checking {data.name}"))
    except DoapError as error:
        raise DoapError(f"{target}: not a complete {data.name} ({error})") from error
    if data.sha256 not in (None, sha256):
        raise DoapError(f"{target}: the content has sha256:{sha256}, but {data.name} has sha256:{data.sha256}")
    first = _read_record(_record(target))
    if data.sha256 is None and first not in (None, sha256):
        raise DoapError(
            f"{target}: the content has sha256:{sha256}, but that of the first download had sha256:{first}; if the "
            f"official data were changed, remove {_record(target)}"
        )
    return str(content), sha256


def _result(data: DataSet, target: Path, counts: str, sha256: str) -> DownloadResult:
    """Return the result of a checked data set; record its hash if there is no other."""
    record = _record(target)
    is_recorded_now = data.sha256 is None and not record.exists()
    if is_recorded_now:
        try:
            remove_temporary_files(record.parent, record.name)  # of a killed download; another one writes the same
            write_text(record, f"{sha256}\n")
        except OSError:  # data of others, in a folder that is not writable
            is_recorded_now = False
    has_record = data.sha256 is None and record.exists()
    return DownloadResult(target, counts, sha256, record if has_record else None, False, is_recorded_now)


def _record(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _read_record(record: Path) -> str | None:
    try:
        text = record.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except ValueError:
        text = ""
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise DoapError(f"{record}: not a SHA-256; remove it to record the hash again")
    return text
