"""Fetching a file over HTTP: mirrors in turn, gone on with where it stopped, never accepted unless whole.

What has come of a file lies beside its target as .NAME.XXXXXXXX.part, one for each address, with what is needed to go
on safely (.part.json: the server's mark of this version, and the whole length). An attempt asks for the rest of that
very version; a server that cannot give it, or has another version by now, starts over.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

CHUNK = 1 << 20
PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

BytesDone = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Patience:
    """How long a server is waited for.

    Args:
        timeout: seconds without a byte after which an attempt ends.
        attempts: how many in a row may bring next to nothing before the next mirror is asked.
        pause: seconds before the second attempt; doubled with each further one.
    """

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 1.0


class _MirrorError(Exception):
    """What a mirror did wrong; `passing` if another attempt may go better."""

    def __init__(self, what: str, passing: bool = False) -> None:
        super().__init__(" ".join(what.split()))
        self.passing = passing


def fetch(
    urls: Sequence[str],
    target: Path,
    max_bytes: int,
    advice: str = "",
    patience: Patience = Patience(),  # noqa: B008 it is frozen
    complaint: Callable[[Path], str | None] = lambda _path: None,
    progress: BytesDone = lambda _done, _total: None,
) -> str:
    """Fetch one file from the first mirror that gives it whole.

    Args:
        urls: where it is, in the order to ask; http or https.
        target: the file to make; it appears whole or not at all.
        max_bytes: a file that is longer, or says so, is refused.
        advice: what to do when no mirror gives it; ends the error's line.
        patience: how long to wait.
        complaint: says what is wrong with a file that came whole, if anything: then the next mirror is asked.
        progress: called with the bytes that are there and the whole length, where the server says it.

    Returns:
        The address it came from.

    Raises:
        DoapError: one line with what each mirror said; or that the disk is full.
    """
    make_folder(target.parent)
    failures = []
    for url in urls:
        part = target.with_name(f".{target.name}.{crc32(url.encode()):08x}.part")
        try:
            _fetch_from(url, part, max_bytes, patience, progress)
            if wrong := complaint(part):
                _discard(part)
                raise _MirrorError(wrong)
        except _MirrorError as error:
            failures.append(f"{url}: {error}")
            continue
        part.replace(target)
        for left in target.parent.glob(f".{escape(target.name)}.*.part*"):
            left.unlink()
        return url
    raise DoapError("; ".join([f"{target.name}: no mirror gave it", *failures, *([advice] if advice else [])]))


def _fetch_from(url: str, part: Path, max_bytes: int, patience: Patience, progress: BytesDone) -> None:
    """Attempt until the file is whole; attempts that bring next to nothing are counted."""
    _refuse_other_schemes(url)
    furthest, fruitless = _size(part), 0
    while True:
        try:
            return _attempt(url, part, max_bytes, patience.timeout, progress)
        except _MirrorError as error:
            # Measured against the furthest ever, so that a server that starts over and over again comes to an end.
            fruitless = 0 if _size(part) >= furthest + CHUNK else fruitless + 1
            furthest = max(furthest, _size(part))
            if not error.passing:
                raise
            if fruitless >= patience.attempts:
                raise _MirrorError(f"{error}, given up after {patience.attempts} attempts") from error
            time.sleep(patience.pause * 2 ** max(fruitless - 1, 0))


def _attempt(url: str, part: Path, max_bytes: int, timeout: float, progress: BytesDone) -> None:
    version, total = _read_state(part)
    have = _size(part)
    if have and have == total:
        return
    headers = {"User-Agent": "doap", "Accept-Encoding": "identity"}
    if version and have:
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    try:
        with _opener().open(Request(url, headers=headers), timeout=timeout) as response:
            _receive(response, part, max_bytes, progress)
    except HTTPError as error:
        error.close()
        if error.code == 416:
            _discard(part)
            raise _MirrorError("would not go on from where it stopped", passing=True) from error
        raise _MirrorError(f"HTTP {error.code} {error.msg}", error.code in PASSING_STATUS) from error
    except URLError as error:
        if isinstance(error.reason, gaierror):
            raise _MirrorError("no such host, or no network") from error
        raise _MirrorError(f"cannot be reached ({error.reason})", passing=True) from error
    except (InvalidURL, ValueError) as error:
        raise _MirrorError(f"not an address ({error})") from error
    except TimeoutError as error:
        raise _MirrorError(f"sent nothing for {timeout:g} s", passing=True) from error
    except (HTTPException, OSError) as error:
        raise _MirrorError(f"broke off ({error or type(error).__name__})", passing=True) from error


def _receive(response: HTTPResponse, part: Path, max_bytes: int, progress: BytesDone) -> None:
    """Append an answer to the part, or start it over, and hold the server to the length it announced."""
    start, total = _place_of(response, part)
    if total is None and not response.chunked:
        raise _MirrorError("does not say how long the file is, so nobody could tell whether it is whole")
    if (total or 0) > max_bytes:
        raise _MirrorError(f"announces {total:,} bytes, over the limit of {max_bytes:,}")
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - start > free:
        raise DoapError(f"{part.parent}: {total - start:,} bytes are to come, only {free:,} are free; make room first")
    with _opened(part, start) as file:
        if start == 0:
            _write_state(part, response, total)
        done = start
        progress(done, total)
        while block := _next_block(response, total, done):
            done += len(block)
            if done > (max_bytes if total is None else total):
                _discard(part)
                raise _MirrorError("sends more bytes than it announced, or than the limit")
            _write(file, block, part)
            progress(done, total)
    if total is not None and done < total:
        raise _MirrorError(f"broke off after {done:,} of {total:,} bytes", passing=True)


def _place_of(response: HTTPResponse, part: Path) -> tuple[int, int | None]:
    """Where in the file an answer begins, and how long the file is; an answer that does not fit starts it over."""
    if response.status == 200:
        return 0, response.length
    if response.status != 206:
        raise _MirrorError(f"HTTP {response.status} {response.reason}")
    have, (version, total) = _size(part), _read_state(part)
    match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", response.headers.get("Content-Range", ""))
    first, last, whole = map(int, match.groups()) if match else (-1, -1, -1)
    fits = first == have and first <= last < whole and response.length in (None, last - first + 1)
    if not fits or whole != total or _version(response.headers) != version:
        _discard(part)
        raise _MirrorError("the file changed, or another piece came than was asked for", passing=True)
    return have, total


def _next_block(response: HTTPResponse, total: int | None, done: int) -> bytes:
    """What has arrived, at most one chunk. The last byte comes with whatever follows it, which should be nothing."""
    if total is None:
        return response.read1(CHUNK)
    if total - done == 1:
        return response.peek(2)[:2]  # reading would stop at the announced length and hide that more was sent
    return response.read1(min(CHUNK, max(total - done - 1, 0)))


def _opened(part: Path, start: int) -> FileIO:
    try:
        file = FileIO(part, "ab" if start else "wb")
    except OSError as error:
        raise DoapError(f"{part}: cannot be written ({error.strerror})") from error
    return file


def _write(file: FileIO, block: bytes, part: Path) -> None:
    try:
        while block:
            block = block[file.write(block) :]
    except OSError as error:
        raise DoapError(
            f"{part}: cannot be written ({error.strerror}); make room, then run this again: it goes on from here"
        ) from error


def _version(headers: HTTPMessage) -> str | None:
    """The mark by which a server knows this version of a file; weak ones do not promise the same bytes."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _write_state(part: Path, response: HTTPResponse, total: int | None) -> None:
    state = {"version": _version(response.headers), "total": total}
    write_text(part.with_suffix(".part.json"), json.dumps(state))


def _read_state(part: Path) -> tuple[str | None, int | None]:
    try:
        state = json.loads(part.with_suffix(".part.json").read_text(encoding="utf-8"))
        version, total = state["version"], state["total"]
    except (OSError, ValueError, KeyError, TypeError):
        return None, None
    known = isinstance(version, str) and isinstance(total, int)
    return (version, total) if known else (None, None)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    part.with_suffix(".part.json").unlink(missing_ok=True)


def _refuse_other_schemes(url: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise _MirrorError(f"{url.partition(':')[0]} is not fetched, only http and https")


class _Redirects(HTTPRedirectHandler):
    """Follow redirects to http and https alone, and never from https to http."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        _refuse_other_schemes(newurl)
        if req.type == "https" and newurl.lower().startswith("http:"):
            raise _MirrorError(f"redirects from https to {newurl}, which is refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> OpenerDirector:
    """An opener that knows http and https, unlike urllib's own, which also opens files and ftp."""
    opener = OpenerDirector()
    handlers = (ProxyHandler, HTTPHandler, HTTPSHandler, _Redirects, HTTPErrorProcessor, HTTPDefaultErrorHandler)
    for handler in handlers:
        opener.add_handler(handler())
    return opener
