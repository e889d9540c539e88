"""Download of an official data set: fetch, unpack and check it, then rename it to its final name.

A data set is the folder NAME of a root folder. Files are downloaded to downloads/NAME; a complete file there, from an
earlier run or copied manually, is not downloaded again.
"""

import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from doap.datasets.download.catalogue import DataSet, RemoteFile
from doap.datasets.download.checking import Content, content_hash
from doap.datasets.download.fetching import RetryPolicy, fetch
from doap.datasets.download.unpacking import is_archive, unpack
from doap.errors import DoapError
from doap.files import atomic_folder
from doap.types import StepProgress, no_step_progress

TOLERANCE = 4  # limit of a file and of its unpacked content, relative to the size in the catalogue


@dataclass(frozen=True)
class DownloadResult:
    """A downloaded and checked data set.

    Attributes:
        folder: Its folder.
        counts: Counts of its content, as text.
        sha256: Hash of its content.
        is_new: Whether it was downloaded by this call.
    """

    folder: Path
    counts: str
    sha256: str
    is_new: bool


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
        DoapError: If the download or the check fails; `root`/NAME is unchanged then.
    """
    target, downloads = root / data.name, root / "downloads" / data.name
    if target.exists():
        return _check(data, target, target, False, progress)
    for file in data.files:
        _fetch_file(data, file, downloads / file.name, url, retry, progress)
    with atomic_folder(target) as temporary:
        for file in data.files:
            _store(file, downloads / file.name, temporary, TOLERANCE * data.size, progress)
        try:
            result = _check(data, temporary, target, True, progress)
        except DoapError as error:
            raise DoapError(f"{error}; to download it again, remove {downloads}") from error
    if not keep_archive:
        shutil.rmtree(downloads)
        with suppress(OSError):  # files of other data sets
            downloads.parent.rmdir()
    return result


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
) -> None:
    if target.exists():
        return
    urls = file.urls
    if url is not None:
        is_file = len(data.files) == 1 and not url.endswith("/")
        urls = (url if is_file else f"{url.rstrip('/')}/{file.name}", *urls)
    fetch(
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


def _check(data: DataSet, folder: Path, target: Path, is_new: bool, progress: StepProgress) -> DownloadResult:
    """Count, decode and hash the content of `folder`, which is `target` or will be renamed to it."""
    try:
        content = complete_content(data, folder)
        sha256 = content_hash(content, partial(progress, f"checking {data.name}"))
    except DoapError as error:
        raise DoapError(f"{target}: not a complete {data.name} ({error})") from error
    if data.sha256 not in (None, sha256):
        raise DoapError(f"{target}: the content has sha256:{sha256}, but {data.name} has sha256:{data.sha256}")
    return DownloadResult(target, str(content), sha256, is_new)
