"""A web server on this machine that behaves as badly as it is told to."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Page:
    """A file on the server, and what goes wrong with it.

    `cuts` and `stalls` hold, for each request in turn, how many bytes are sent before the connection breaks or
    nothing more comes; None where all goes well. `statuses` are given out first, one a request.
    """

    content: bytes
    ranges: bool = True
    etag: str | None = '"one"'
    modified: str | None = None
    announce: int | None = None
    chunked: bool = False
    silent: bool = False
    location: str | None = None
    statuses: list[int] = field(default_factory=list)
    cuts: list[int | None] = field(default_factory=list)
    stalls: list[int | None] = field(default_factory=list)
    content_range: str | None = None
    obeys_if_range: bool = True


@dataclass
class Site:
    """The server: its address, its pages, and the range that each request asked for."""

    address: str
    pages: dict[str, Page] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def put(self, path: str, content: bytes, **failures: object) -> str:
        self.pages[path] = Page(content, **failures)  # type: ignore[arg-type]
        return self.address + path


@contextmanager
def serving() -> Iterator[Site]:
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.close_connection = True
            wanted = self.headers.get("Range")
            site.asked.append((self.path, wanted))
            page = site.pages.get(self.path)
            if page is None:
                return self.send_error(404)
            if page.statuses:
                return self.send_error(page.statuses.pop(0))
            if page.location:
                self.send_response(302)
                self.send_header("Location", page.location)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            return self._send(page, wanted)

        def _send(self, page: Page, wanted: str | None) -> None:
            content, start = page.content, 0
            same = not page.obeys_if_range or self.headers.get("If-Range") in (page.etag, page.modified)
            if wanted and page.ranges and same:
                start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])  # type: ignore[index]
                if start >= len(content):
                    return self.send_error(416)
                self.send_response(206)
                place = page.content_range or f"bytes {start}-{len(content) - 1}/{len(content)}"
                self.send_header("Content-Range", place)
            else:
                self.send_response(200)
            body = content[start:]
            if page.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            elif not page.silent:
                self.send_header("Content-Length", str(len(body) if page.announce is None else page.announce))
            for name, value in (("ETag", page.etag), ("Last-Modified", page.modified), ("Connection", "close")):
                if value:
                    self.send_header(name, value)
            self.end_headers()
            cut = page.cuts.pop(0) if page.cuts else None
            stall = page.stalls.pop(0) if page.stalls else None
            with suppress(ConnectionError):  # whoever has seen enough hangs up
                self.wfile.write(body[: stall if cut is None else cut])
            if stall is not None:
                released.wait(20)
            return None

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site = Site(f"http://127.0.0.1:{server.server_port}/")
    site.pages = _Slashed()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Slashed(dict[str, Page]):
    """Pages are put as "file", asked for as "/file"."""

    def __setitem__(self, path: str, page: Page) -> None:
        super().__setitem__("/" + path.lstrip("/"), page)
