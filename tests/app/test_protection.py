"""Limits of uploads, in front of an application that only counts."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from doap.app.protection import Message, Protection, Receive, Scope, Send
from doap.app.settings import AppSettings

SETTINGS = AppSettings(
    max_upload_bytes=1000, max_request_bytes=3000, max_files=3, max_parallel_uploads=2, upload_seconds=0.3
)


class Inner:
    """An application that reads the whole body and answers."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        self.calls += 1
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


class Visitor:
    """One request; its body comes in pieces with pauses."""

    def __init__(self, length: str | None, pauses: list[float], path: str = "/gradio_api/upload") -> None:
        headers = [] if length is None else [(b"content-length", length.encode())]
        self.scope: Scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        self._pauses: Iterator[float] = iter(pauses)
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        pause = next(self._pauses, None)
        if pause is not None:
            await asyncio.sleep(pause)
        return {"type": "http.request", "body": b"x", "more_body": pause is not None}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def answer(self) -> tuple[int, bytes]:
        start, body = self.sent
        return start["status"], body["body"]


def serve(protection: Protection, visitors: list[Visitor]) -> None:
    async def run() -> None:
        await asyncio.gather(*(protection(one.scope, one.receive, one.send) for one in visitors))

    # In a thread of its own: the browser of other tests has an event loop in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, run()).result()


@pytest.mark.parametrize(
    ("length", "status"), [(None, 411), ("many", 411), ("999999", 413), ("900", 200), ("2500", 200)]
)
def test_an_upload_states_an_acceptable_length(length: str | None, status: int, tmp_path: Path) -> None:
    inner, visitor = Inner(), Visitor(length, [])
    serve(Protection(inner, SETTINGS, tmp_path), [visitor])
    assert visitor.answer[0] == status
    assert inner.calls == (status == 200)
    assert len(visitor.answer[1].splitlines()) == 1


def test_further_uploads_at_once_are_refused_and_then_served(tmp_path: Path) -> None:
    inner = Inner()
    protection = Protection(inner, SETTINGS, tmp_path)
    visitors = [Visitor("10", [0.05]) for _ in range(5)]
    serve(protection, visitors)
    assert sorted(visitor.answer[0] for visitor in visitors) == [200, 200, 503, 503, 503]
    late = Visitor("10", [])
    serve(protection, [late])
    assert late.answer[0] == 200


def test_a_slow_upload_is_broken_off(tmp_path: Path) -> None:
    protection = Protection(Inner(), SETTINGS, tmp_path)
    slow = Visitor("10", [0.1] * 50)
    serve(protection, [slow])
    assert slow.answer == (408, b"the upload took too long; try again")
    serve(protection, [late := Visitor("10", [])])
    assert late.answer[0] == 200


def test_no_upload_is_accepted_while_too_many_files_are_kept(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "picture.png").touch()
    visitor = Visitor("10", [])
    serve(Protection(Inner(), SETTINGS, tmp_path), [visitor])
    assert visitor.answer[0] == 503


@pytest.mark.parametrize(("length", "left"), [("20", 0), ("999999", 0), ("999999999", 90)])
def test_a_refused_upload_is_received_so_that_its_line_arrives(
    tmp_path: Path, length: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is closed with unread data is reset, and the browser shows an error of the network."""
    monkeypatch.setattr("doap.app.protection.REFUSED_BYTES", 60 if left else 10_000)
    for number in range(3):
        (tmp_path / str(number)).touch()
    visitor = Visitor(length, [0.0] * (150 if left else 50))
    serve(Protection(Inner(), SETTINGS, tmp_path), [visitor])
    assert visitor.answer[0] in (413, 503)
    assert len(list(visitor._pauses)) == left


def test_responses_keep_the_browser_on_this_server(tmp_path: Path) -> None:
    visitor = Visitor(None, [], path="/config")
    serve(Protection(Inner(), SETTINGS, tmp_path), [visitor])
    headers: dict[bytes, Any] = dict(visitor.sent[0]["headers"])
    assert headers[b"content-security-policy"].startswith(b"default-src 'self'")
