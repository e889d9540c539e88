"""A server with the part of Hugging Face's API that creates repositories, takes commits and serves files."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

COMMIT = "0" * 39 + "1"


@dataclass
class HubServer:
    """The server: its address, its files by repository and name, and the requests.

    Attributes:
        address: URL for HF_ENDPOINT.
        repositories: Files by repository.
        requests: Method, path and JSON of each request.
    """

    address: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        lines = [json.loads(line) for line in body.splitlines()]
        self.hub.requests.append(("POST", self.path, lines))
        if self.path == "/api/repos/create":
            content = lines[0]
            name = "/".join(filter(None, (content.get("organization") or "user", content["name"])))
            self.hub.repositories.setdefault(name, {})
            return self._answer({"url": f"{self.hub.address}/{name}", "id": name})
        if self.path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        repository, action = self._repository()
        if action.startswith("preupload"):
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in lines[0]["files"]
            ]
            return self._answer({"files": files})
        if action.startswith("commit"):
            for line in lines:
                if line["key"] == "file":
                    value = line["value"]
                    self.hub.repositories[repository][value["path"]] = base64.b64decode(value["content"])
            address = f"{self.hub.address}/{repository}/commit/{COMMIT}"
            return self._answer({"success": True, "commitUrl": address, "commitOid": COMMIT})
        return self.send_error(404)

    def do_GET(self) -> None:
        self.hub.requests.append((self.command, self.path, None))
        if self.path.startswith("/api/models/"):
            repository, action = self._repository()
            if repository not in self.hub.repositories:
                return self._answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            files = self.hub.repositories[repository]
            if action.startswith("tree"):
                entries = [
                    {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for name, content in files.items()
                ]
                return self._answer(entries)
            siblings = [{"rfilename": name} for name in files]
            return self._answer({"id": repository, "sha": COMMIT, "siblings": siblings, "private": False})
        repository, _, file = unquote(self.path).strip("/").partition("/resolve/")
        file_content = self.hub.repositories.get(repository, {}).get(file.partition("/")[2])
        if file_content is None:
            return self._answer({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        etag = f'"{hashlib.sha1(file_content).hexdigest()}"'
        return self._send(file_content, 200, {"ETag": etag, "X-Repo-Commit": COMMIT})

    def do_HEAD(self) -> None:
        self.do_GET()

    def _repository(self) -> tuple[str, str]:
        """Return the repository and the rest of a path /api/models/OWNER/NAME/…."""
        owner, name, *rest = unquote(self.path.partition("?")[0]).removeprefix("/api/models/").split("/")
        return f"{owner}/{name}", "/".join(rest)

    def _answer(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(content).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving_hub() -> Iterator[HubServer]:
    """Run the server in a thread."""
    hub = HubServer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
