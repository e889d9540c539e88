"""Local web server with configurable failures."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Page:
    """A file on the server, and its failures.

    `cuts` and `stalls` hold, per request, the number of bytes sent before the connection is closed or stalls; None for
    no failure. `statuses` are returned first, one per request.
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
    """The server: its address, its pages, and the path and Range header of each request."""

    address: str
    pages: dict[str, Page] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    def put(self, path: str, content: bytes, **failures: Any) -> str:
        """Add a page, with the failures of `Page`, and return its URL."""
        self.pages[path] = Page(content, **failures)
        return self.address + path


@contextmanager
def serving() -> Iterator[Site]:
    """Run the server in a thread."""
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.close_connection = True
            requested = self.headers.get("Range")
            site.requests.append((self.path, requested))
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
            return self._send(page, requested)

        def _send(self, page: Page, requested: str | None) -> None:
            content, start = page.content, 0
            is_same = not page.obeys_if_range or self.headers.get("If-Range") in (page.etag, page.modified)
            if requested and page.ranges and is_same:
                start = int(requested.removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    return self.send_error(416)
                self.send_response(206)
                content_range = page.content_range or f"bytes {start}-{len(content) - 1}/{len(content)}"
                self.send_header("Content-Range", content_range)
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
            with suppress(ConnectionError):  # the client may close the connection
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
    """Pages are added as "file" and requested as "/file"."""

    def __setitem__(self, path: str, page: Page) -> None:
        super().__setitem__("/" + path.lstrip("/"), page)
