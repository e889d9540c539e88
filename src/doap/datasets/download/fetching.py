"""Download of one file over HTTP: several mirrors, resumed where it stopped, accepted only when complete.

Partial content is kept beside the target as .NAME.XXXXXXXX.part, one file per URL, together with .part.json: the
validator of the server (ETag or Last-Modified) and the total length. An attempt requests the rest of exactly this
version; if the server cannot provide it, or has a new version, the download starts over.

pooch (1.9) is not used because it deletes partial files, sends no Range requests and takes one URL per file.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from glob import escape
from http.client import HTTPException, HTTPMessage, HTTPResponse, InvalidURL
from io import FileIO
from pathlib import Path
from socket import gaierror
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)
from zlib import crc32

from doap.errors import DoapError
from doap.files import make_folder, write_text
from doap.parsing.json_files import read_json
from doap.types import StepProgress, no_step_progress

CHUNK = 1 << 20
TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})  # worth another attempt

_BytesProgress = Callable[[int, int | None], None]  # a StepProgress whose step is set


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait for a server.

    Args:
        timeout: Seconds without data after which an attempt ends.
        attempts: Number of consecutive attempts with less than CHUNK new bytes before the next mirror is tried.
        delay: Seconds before the second attempt; doubled for each further attempt.
    """

    timeout: float = 30.0
    attempts: int = 4
    delay: float = 1.0


class _MirrorError(Exception):
    """Error of a mirror; a transient error may disappear in another attempt."""

    def __init__(self, message: str, is_transient: bool = False) -> None:
        super().__init__(" ".join(message.split()))
        self.is_transient = is_transient


def fetch(
    urls: Sequence[str],
    target: Path,
    max_bytes: int,
    hint: str = "",
    retry: RetryPolicy = RetryPolicy(),  # noqa: B008 it is frozen
    find_error: Callable[[Path], str | None] = lambda _path: None,
    progress: StepProgress = no_step_progress,
) -> str:
    """Download one file from the first mirror that delivers it completely.

    Args:
        urls: Http or https URLs of the file, in the order to try.
        target: File to write, atomically.
        max_bytes: Larger files are refused.
        hint: Advice if no mirror delivers the file, appended to the error.
        retry: How long to wait for a server.
        find_error: Returns the error of a complete file, or None; on an error the next mirror is tried.
        progress: Callback, called as progress("fetching NAME", bytes done, total or None if unknown).

    Returns:
        The URL it was downloaded from.

    Raises:
        DoapError: If no mirror delivers the file, with the error of each, or if the disk is full.
    """
    make_folder(target.parent)
    failures = []
    for url in urls:
        partial_file = target.with_name(f".{target.name}.{crc32(url.encode()):08x}.part")
        try:
            _fetch_from(url, partial_file, max_bytes, retry, partial(progress, f"fetching {target.name}"))
            if message := find_error(partial_file):
                _discard(partial_file)
                raise _MirrorError(message)
        except _MirrorError as error:
            failures.append(f"{url}: {error}")
            continue
        partial_file.replace(target)
        for leftover in target.parent.glob(f".{escape(target.name)}.*.part*"):
            leftover.unlink()
        return url
    raise DoapError("; ".join([f"{target.name}: no mirror delivered it", *failures, *([hint] if hint else [])]))


def _fetch_from(url: str, partial_file: Path, max_bytes: int, retry: RetryPolicy, progress: _BytesProgress) -> None:
    """Repeat attempts until the file is complete, or too many in a row made no progress."""
    _refuse_other_schemes(url)
    largest, failed = _size(partial_file), 0
    while True:
        try:
            return _attempt(url, partial_file, max_bytes, retry.timeout, progress)
        except _MirrorError as error:
            # Compared with the largest size so far, so that a server that always starts over is given up.
            failed = 0 if _size(partial_file) >= largest + CHUNK else failed + 1
            largest = max(largest, _size(partial_file))
            if not error.is_transient:
                raise
            if failed >= retry.attempts:
                raise _MirrorError(f"{error}, given up after {retry.attempts} attempts") from error
            time.sleep(retry.delay * 2 ** max(failed - 1, 0))


def _attempt(url: str, partial_file: Path, max_bytes: int, timeout: float, progress: _BytesProgress) -> None:
    version, total = _read_state(partial_file)
    size = _size(partial_file)
    if size and size == total:
        return
    headers = {"User-Agent": "doap", "Accept-Encoding": "identity"}
    if version and size:
        headers |= {"Range": f"bytes={size}-", "If-Range": version}
    try:
        with _opener().open(Request(url, headers=headers), timeout=timeout) as response:
            _receive(response, partial_file, max_bytes, progress)
    except HTTPError as error:
        error.close()
        if error.code == 416:
            _discard(partial_file)
            raise _MirrorError("refuses to resume the download", is_transient=True) from error
        raise _MirrorError(f"HTTP {error.code} {error.msg}", error.code in TRANSIENT_STATUS) from error
    except URLError as error:
        if isinstance(error.reason, gaierror):
            raise _MirrorError("unknown host, or no network") from error
        raise _MirrorError(f"cannot be reached ({error.reason})", is_transient=True) from error
    except (InvalidURL, ValueError) as error:
        raise _MirrorError(f"not a valid URL ({error})") from error
    except TimeoutError as error:
        raise _MirrorError(f"sent no data for {timeout:g} s", is_transient=True) from error
    except (HTTPException, OSError) as error:
        raise _MirrorError(f"connection lost ({error or type(error).__name__})", is_transient=True) from error


def _receive(response: HTTPResponse, partial_file: Path, max_bytes: int, progress: _BytesProgress) -> None:
    """Append a response to the partial file, or restart it, and check the announced length."""
    start, total = _content_range(response, partial_file)
    if total is None and not response.chunked:
        raise _MirrorError("does not announce the length of the file, so that its completeness cannot be checked")
    if (total or 0) > max_bytes:
        raise _MirrorError(f"announces {total:,} bytes, over the limit of {max_bytes:,}")
    free = shutil.disk_usage(partial_file.parent).free
    if total is not None and total - start > free:
        raise DoapError(f"{partial_file.parent}: needs {total - start:,} more bytes, only {free:,} are free")
    with _open(partial_file, start) as file:
        if start == 0:
            _write_state(partial_file, response, total)
        done = start
        progress(done, total)
        while block := _next_block(response, total, done):
            done += len(block)
            if done > (max_bytes if total is None else total):
                _discard(partial_file)
                raise _MirrorError("sends more bytes than it announced, or than the limit")
            _write(file, block, partial_file)
            progress(done, total)
    if total is not None and done < total:
        raise _MirrorError(f"connection lost after {done:,} of {total:,} bytes", is_transient=True)


def _content_range(response: HTTPResponse, partial_file: Path) -> tuple[int, int | None]:
    """Return the offset of a response in the file, and the length of the file, None if unknown.

    A response that does not continue the partial file discards it.
    """
    if response.status == 200:
        return 0, response.length
    if response.status != 206:
        raise _MirrorError(f"HTTP {response.status} {response.reason}")
    size, (version, total) = _size(partial_file), _read_state(partial_file)
    match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", response.headers.get("Content-Range", ""))
    first, last, length = map(int, match.groups()) if match else (-1, -1, -1)
    continues = first == size and first <= last < length and response.length in (None, last - first + 1)
    if not continues or length != total or _version(response.headers) != version:
        _discard(partial_file)
        raise _MirrorError("the file has changed, or the response is not the requested range", is_transient=True)
    return size, total


def _next_block(response: HTTPResponse, total: int | None, done: int) -> bytes:
    """Return received data, at most one chunk. The last byte is read together with any excess data."""
    if total is None:
        return response.read1(CHUNK)
    if total - done == 1:
        return response.peek(2)[:2]  # read1 would stop at the announced length and hide excess data
    return response.read1(min(CHUNK, max(total - done - 1, 0)))


def _open(partial_file: Path, start: int) -> FileIO:
    try:
        file = FileIO(partial_file, "ab" if start else "wb")
    except OSError as error:
        raise DoapError(f"{partial_file}: cannot be written ({error.strerror})") from error
    return file


def _write(file: FileIO, block: bytes, partial_file: Path) -> None:
    try:
        while block:
            block = block[file.write(block) :]
    except OSError as error:
        raise DoapError(
            f"{partial_file}: cannot be written ({error.strerror}); free some disk space and run this again to resume"
        ) from error


def _version(headers: HTTPMessage) -> str | None:
    """Return the validator of this version of a file. Weak ETags do not guarantee identical bytes."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _write_state(partial_file: Path, response: HTTPResponse, total: int | None) -> None:
    state = {"version": _version(response.headers), "total": total}
    write_text(partial_file.with_suffix(".part.json"), json.dumps(state))


def _read_state(partial_file: Path) -> tuple[str | None, int | None]:
    try:
        state = read_json(partial_file.with_suffix(".part.json"))
        version, total = state["version"], state["total"]
    except (OSError, ValueError, KeyError, TypeError):
        return None, None
    is_valid = isinstance(version, str) and isinstance(total, int)
    return (version, total) if is_valid else (None, None)


def _size(partial_file: Path) -> int:
    return partial_file.stat().st_size if partial_file.exists() else 0


def _discard(partial_file: Path) -> None:
    partial_file.unlink(missing_ok=True)
    partial_file.with_suffix(".part.json").unlink(missing_ok=True)


def _refuse_other_schemes(url: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise _MirrorError(f"{url.partition(':')[0]} is not supported, only http and https")


class _Redirects(HTTPRedirectHandler):
    """Handler that follows redirects to http and https only, and never from https to http."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        _refuse_other_schemes(newurl)
        if req.type == "https" and newurl.lower().startswith("http:"):
            raise _MirrorError(f"redirects from https to {newurl}, which is refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> OpenerDirector:
    """Return an opener for http and https only; the default one of urllib also opens files and ftp."""
    opener = OpenerDirector()
    handlers = (ProxyHandler, HTTPHandler, HTTPSHandler, _Redirects, HTTPErrorProcessor, HTTPDefaultErrorHandler)
    for handler in handlers:
        opener.add_handler(handler())
    return opener
