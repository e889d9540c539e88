"""ASGI middleware that limits uploads, and headers that keep the browser on this server."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from doap.app.settings import AppSettings

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

FORM_BYTES = 4096  # of a multipart form around its file
REFUSED_BYTES, REFUSED_SECONDS = 32 << 20, 5.0  # that are received of an upload before it is refused
HEADERS = (
    # Scripts and styles of Gradio are inline in part; nothing is loaded from, or sent to, another host.
    (
        b"content-security-policy",
        b"default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
        b"style-src 'self' 'unsafe-inline'; form-action 'self'; frame-ancestors 'self'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


class Protection:
    """Limits of uploads: bytes, time, number at once and number of files kept; and headers of all responses.

    Args:
        app: The application behind it.
        settings: Limits.
        folder: Folder in which files of visitors are kept.
    """

    def __init__(self, app: Asgi, settings: AppSettings, folder: Path) -> None:
        self._app = app
        self._settings = settings
        self._folder = folder
        self._uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it in one line."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not (scope["method"] == "POST" and scope["path"].endswith("/upload")):
            await self._app(scope, receive, _with_headers(send))
            return
        refusal = self._refusal(scope)
        if refusal:
            await _receive_rest(receive)
            await _refuse(send, *refusal)
            return
        self._uploads += 1
        try:
            await self._receive_upload(scope, receive, send)
        finally:
            self._uploads -= 1

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the line with which an upload is refused; None if it is accepted."""
        limit = self._settings.max_request_bytes  # that of each file is checked as it is received
        length = dict(scope["headers"]).get(b"content-length", b"")
        if not length.isdigit():
            return 411, "an upload must state its length"
        if int(length) > limit + FORM_BYTES:
            return 413, f"the upload is larger than {limit:,} bytes; choose fewer or smaller files"
        if self._uploads >= self._settings.max_parallel_uploads:
            return 503, "too many uploads at once; try again in a moment"
        files = sum(1 for path in self._folder.rglob("*") if path.is_file())
        if files >= self._settings.max_files:
            return 503, "too many files are kept at the moment; try again later"
        return None

    async def _receive_upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on an upload; one that takes too long is broken off."""
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with asyncio.timeout(self._settings.upload_seconds):
                await self._app(scope, receive, _with_headers(watch))
        except TimeoutError:
            if not started:
                await _refuse(send, 408, "the upload took too long; try again")


def _with_headers(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
        await send(message)

    return add


async def _receive_rest(receive: Receive) -> None:
    """Receive a request, up to a limit: a connection closed before is reset, and the line of the refusal is lost."""
    left = REFUSED_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(REFUSED_SECONDS):
            while left > 0:
                message = await receive()
                if not message.get("more_body"):
                    return
                left -= len(message["body"])


async def _refuse(send: Send, status: int, line: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": line.encode()})
