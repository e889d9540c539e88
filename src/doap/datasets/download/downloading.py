"""Getting an official data set: fetched, unpacked, checked, and only then there.

Below the root, a data set is the folder of its name. Files on their way lie in downloads/NAME/; a file that is whole
there already, put by hand or kept from before, is not fetched again.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from doap.datasets.download.catalogue import DataSet, Part
from doap.datasets.download.checking import Content, content_hash
from doap.datasets.download.fetching import Patience, fetch
from doap.datasets.download.unpacking import is_archive, unpack
from doap.errors import DoapError
from doap.files import atomic_folder

# How much more than the catalogue says a file, and what it unpacks to, may be.
TOLERANCE = 4

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Found:
    """A data set that is in place: where, how many of what, the hash of its content, and whether it came just now."""

    folder: Path
    counts: str
    sha256: str
    fetched: bool


def download(
    data: DataSet,
    root: Path,
    url: str | None = None,
    keep_archive: bool = False,
    patience: Patience = Patience(),  # noqa: B008 it is frozen
    progress: Progress = lambda _step, _done, _total: None,
) -> Found:
    """Bring a data set to `root`/NAME, or check the one that is there.

    Args:
        data: from the catalogue. What it `brings` is not fetched here.
        root: the folder of data sets.
        url: an address of one's own to ask first: of the file or, for sets of several files, of their folder.
        keep_archive: leave the files that were fetched in downloads/NAME.
        patience: with the servers.
        progress: called with what is being done, the bytes of it that are done, and how many there are.

    Raises:
        DoapError: one line; nothing is at `root`/NAME then that was not there before.
    """
    target, downloads = root / data.name, root / "downloads" / data.name
    if target.exists():
        return _check(data, target, target, False, progress)
    for part in data.parts:
        _fetch_part(data, part, downloads / part.file, url, patience, progress)
    with atomic_folder(target) as temporary:
        for part in data.parts:
            _place(part, downloads / part.file, temporary, TOLERANCE * data.size, progress)
        try:
            found = _check(data, temporary, target, True, progress)
        except DoapError as error:
            raise DoapError(f"{error}; to fetch it anew, remove {downloads}") from error
    if not keep_archive:
        shutil.rmtree(downloads)
        with suppress(OSError):  # other sets are on their way
            downloads.parent.rmdir()
    return found


def complete_content(data: DataSet, folder: Path) -> Content:
    """What a folder holds, counted; a DoapError where it is not all that the data set must hold."""
    content = data.inspect(folder)
    wrong = [
        f"{content.counts.get(what, 0):,} {what} where there must be {count:,}"
        for what, count in data.expected.items()
        if content.counts.get(what) != count
    ]
    if wrong:
        raise DoapError(", ".join(wrong))
    return content


def _fetch_part(
    data: DataSet, part: Part, target: Path, url: str | None, patience: Patience, progress: Progress
) -> None:
    if target.exists():
        return
    own = (
        []
        if url is None
        else [url if len(data.parts) == 1 and not url.endswith("/") else f"{url.rstrip('/')}/{part.file}"]
    )
    fetch(
        [*own, *part.mirrors],
        target,
        TOLERANCE * data.size,
        advice=f"get it by hand from {data.page}, put it at {target}, and run this again",
        patience=patience,
        complaint=partial(_complaint, part),
        progress=partial(progress, f"fetching {part.file}"),
    )


def _complaint(part: Part, path: Path) -> str | None:
    """A server that lost a file often answers with a page that says so, and calls that success."""
    with path.open("rb") as file:
        start = file.read(512).lstrip()
    if start.startswith(b"<"):
        return "sent a web page instead of the file"
    if not start:
        return "sent an empty file"
    return "sent no zip or tar archive, or not all of it" if part.archive and not is_archive(path) else None


def _place(part: Part, source: Path, folder: Path, max_bytes: int, progress: Progress) -> None:
    """Put a part where it belongs; a folder that an archive wraps around its content is taken off."""
    if not part.archive:
        shutil.copyfile(source, folder / part.file)
        return
    stage = folder / f".{part.file}"
    try:
        unpack(source, stage, max_bytes, progress=partial(progress, f"unpacking {part.file}"))
    except DoapError as error:
        raise DoapError(f"{error}; to fetch it anew, remove it, and to ask another mirror first give --url") from error
    content = stage
    while len(inside := list(content.iterdir())) == 1 and inside[0].is_dir():
        content = inside[0]
    home = folder / part.folder
    home.mkdir(exist_ok=True)
    for path in content.iterdir():
        path.replace(home / path.name)
    shutil.rmtree(stage)


def _check(data: DataSet, folder: Path, target: Path, fetched: bool, progress: Progress) -> Found:
    """Count, decode and hash everything in `folder`, which is, or is about to become, `target`."""
    try:
        content = complete_content(data, folder)
        sha256 = content_hash(content, partial(progress, f"checking {data.name}"))
    except DoapError as error:
        raise DoapError(f"{target}: not the whole of {data.name} ({error})") from error
    if data.sha256 not in (None, sha256):
        raise DoapError(f"{target}: the content has sha256:{sha256}, but {data.name} has sha256:{data.sha256}")
    return Found(target, str(content), sha256, fetched)
