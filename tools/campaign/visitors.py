"""Attack the page of doap app: many visitors at once, hostile and slow uploads, visitors who leave."""

import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from campaign.findings import Finding, PartResult, Say
from campaign.fuzz.images import image_formats
from campaign.fuzz.mutations import apply_mutations, choose_mutations

MAX_BYTES = 3 << 30  # memory that the server may take
METHOD, KEYPOINTS = "orb", 100
ANSWER_SECONDS = 300.0
REPLAY = "python -m campaign page --seed {seed} --visitors {visitors}"


def attack_page(visitors: int, seconds: float, seed: int, say: Say) -> PartResult:
    """Attack a server of its own, and check that it answers a plain request afterwards.

    Args:
        visitors: Number of visitors at once.
        seconds: Time for uploads.
        seed: Seed of the damage.
        say: Shows a line of progress.
    """
    result = PartResult("page", "many visitors, hostile uploads and closed connections at the page of doap app")
    result.settings = {"visitors": visitors, "seconds": seconds, "seed": seed}
    replay = REPLAY.format(seed=seed, visitors=visitors)
    with _server() as server:
        attacks: dict[str, Callable[[], Counter[str]]] = {
            "uploads": lambda: _hostile_uploads(server.address, seconds, seed),
            "slow uploads": lambda: _slow_uploads(server.address, 30),
            "visitors who leave": lambda: _all_at_once(visitors, lambda n: _Visitor(server.address).leave(n)),
            "visitors at once": lambda: _all_at_once(visitors, lambda _: _Visitor(server.address).match()),
            "one visitor afterwards": lambda: Counter([_Visitor(server.address).match()]),
        }
        for name, attack in attacks.items():
            counts = attack()
            say(f"{name}: {dict(counts)}, {server.peak_bytes() >> 20} MiB")
            result.counts.append({"where": name, "cases": counts.total(), **counts})
            result.findings += [
                Finding(name, what, replay, count) for what, count in counts.items() if what.startswith("finding")
            ]
            if not server.lives():
                result.findings.append(Finding(name, "the server ended", replay))
                break
        if counts != Counter(["served"]):
            result.findings.append(Finding(name, f"a plain request is not served afterwards: {dict(counts)}", replay))
        if server.peak_bytes() > MAX_BYTES:
            result.findings.append(Finding("memory", f"the server took {server.peak_bytes() >> 20} MiB", replay))
    return result


class _Server:
    """`doap app` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.address = address
        self._process = process

    def lives(self) -> bool:
        """Return whether the process runs."""
        return self._process.poll() is None

    def peak_bytes(self) -> int:
        """Return the largest memory that the process has had."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return 0
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        return 1024 * int(peak[1]) if peak else 0


@contextmanager
def _server() -> Iterator[_Server]:
    code = "from doap.cli.main import main; main()"
    command = [sys.executable, "-c", code, "app", "--port", "0", "--no-browser", "--device", "cpu"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        url = re.search(r"http://\S+", process.stdout.readline())
        assert url, "the server printed no address"
        threading.Thread(target=process.stdout.read, daemon=True).start()
        _wait_until_open(url[0])
        try:
            yield _Server(process, url[0])
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_open(address: str) -> None:
    for _ in range(300):
        try:
            httpx.get(f"{address}/config", timeout=20)
            return
        except httpx.TransportError:
            time.sleep(0.2)
    raise RuntimeError("the server does not answer")


class _Visitor:
    """A client of the page, without a browser."""

    def __init__(self, address: str) -> None:
        self._base = f"{address}/gradio_api"
        # The server closes idle connections after seconds; a browser then opens another, this client would fail.
        self._client = httpx.Client(timeout=ANSWER_SECONDS, limits=httpx.Limits(max_keepalive_connections=0))
        self._session = "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=12))
        self._config = self._client.get(f"{address}/config").json()

    def match(self) -> str:
        """Match an example; return what happened."""
        try:
            answer = self._join()
            if answer.status_code == 503:
                return _one_line("refused", answer.text)
            answer.raise_for_status()
            return self._await_result()
        except httpx.HTTPError as error:
            return f"finding: {type(error).__name__}"

    def leave(self, number: int) -> str:
        """Ask for work, and close the connection before, while or after it starts."""
        try:
            answer = self._join()
            if answer.status_code == 503:
                return _one_line("refused", answer.text)
            with self._client.stream(
                "GET", f"{self._base}/queue/data", params={"session_hash": self._session}
            ) as stream:
                lines = stream.iter_lines()
                for _ in range(number % 4):
                    next(lines, None)
            return "left"
        except httpx.HTTPError as error:
            return f"finding: {type(error).__name__}"

    def upload(self, name: str, content: bytes) -> httpx.Response:
        """Upload a file."""
        return self._client.post(f"{self._base}/upload", files={"files": (name, content)})

    def match_upload(self, path: str) -> str:
        """Match an uploaded file with an example."""
        try:
            answer = self._join({"path": path, "meta": {"_type": "gradio.FileData"}})
            if answer.status_code == 503:
                return _one_line("refused", answer.text)
            return self._await_result()
        except httpx.HTTPError as error:
            return f"finding: {type(error).__name__}"

    def _join(self, first: Any = None) -> httpx.Response:
        """Ask for a match in the queue."""
        pictures = {part["id"]: part["props"]["value"] for part in self._config["components"] if _is_picture(part)}
        run = next(one for one in self._config["dependencies"] if one["inputs"][:2] == list(pictures))
        values = [
            first or pictures[run["inputs"][0]],
            pictures[run["inputs"][1]],
            [METHOD],
            KEYPOINTS,
            1.0,
            "fundamental",
            1.5,
            False,
            "verified",
        ]
        body = {"data": values, "fn_index": run["id"], "session_hash": self._session, "event_data": None}
        return self._client.post(f"{self._base}/queue/join", json=body)

    def _await_result(self) -> str:
        with self._client.stream("GET", f"{self._base}/queue/data", params={"session_hash": self._session}) as stream:
            for line in stream.iter_lines():
                if not line.startswith("data:"):
                    continue
                message = json.loads(line[5:])
                if message["msg"] == "process_completed":
                    if message["success"]:
                        return "served"
                    return _one_line("one line", str(message["output"].get("error")))
        return "finding: the connection ended without an answer"


def _is_picture(part: dict[str, Any]) -> bool:
    return part["props"].get("elem_id") in ("match-first", "match-second")


def _one_line(kind: str, text: str) -> str:
    """Return the kind of an answer, or a finding if it is not one line, or speaks of a bug."""
    if not text or len(text.splitlines()) != 1 or "unexpected" in text or "Traceback" in text:
        return f"finding: {text[:200]!r}"
    return kind


def _all_at_once(count: int, act: Callable[[int], str]) -> Counter[str]:
    """Let visitors act at the same time."""
    with ThreadPoolExecutor(count) as pool:
        return Counter(pool.map(act, range(count)))


def _hostile_uploads(address: str, seconds: float, seed: int) -> Counter[str]:
    """Upload damaged pictures and match them, as long as there is time."""
    with tempfile.TemporaryDirectory() as folder:
        originals = [one.make(Path(folder)).read_bytes() for one in image_formats()]
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    for number in itertools.count():
        if time.monotonic() > end:
            break
        original = originals[number % len(originals)]
        content = apply_mutations(original, choose_mutations(f"{seed}-{number}", original, is_text=False))
        try:
            counts[_match_upload(_Visitor(address), content)] += 1
        except httpx.HTTPError as error:
            counts[f"finding: {type(error).__name__}"] += 1
    large = _Visitor(address).upload("large.png", bytes(21_000_000))
    counts["refused" if large.status_code in (413, 503) else "finding: a large file is accepted"] += 1
    return counts


def _match_upload(visitor: _Visitor, content: bytes) -> str:
    answer = visitor.upload("picture.png", content)
    if answer.status_code != 200:
        return _one_line("refused", answer.text)
    return visitor.match_upload(answer.json()[0])


def _slow_uploads(address: str, count: int) -> Counter[str]:
    """Open uploads that send their first bytes and no more; the page must answer others meanwhile."""
    target = urlsplit(address)
    head = (
        f"POST /gradio_api/upload HTTP/1.1\r\nHost: {target.netloc}\r\nContent-Length: 1000000\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    )
    sockets = []
    for _ in range(count):
        connection = socket.create_connection((str(target.hostname), int(target.port or 80)), 20)
        connection.sendall(head.encode())
        sockets.append(connection)
    counts = Counter([_Visitor(address).match()])
    for connection in sockets:
        connection.close()
    return counts
