"""Downloads from a server that stalls, closes connections, announces wrong lengths and changes files."""

import random
import shutil
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import Request

import pytest

from doap.datasets.download import fetching as module
from doap.datasets.download.fetching import RetryPolicy, fetch
from doap.errors import DoapError
from support.local_server import Site

CONTENT = random.Random(0).randbytes(300_000)
QUICK = RetryPolicy(timeout=0.2, attempts=3, delay=0)
LIMIT = 10 << 20


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "file.zip"


def refused(urls: list[str], target: Path, limit: int = LIMIT) -> str:
    """Return the error of a failing download, which must be one line and leave no target."""
    with pytest.raises(DoapError) as error:
        fetch(urls, target, limit, retry=QUICK)
    assert "\n" not in str(error.value)
    assert not target.exists()
    return str(error.value)


def test_a_complete_download_reports_progress_and_leaves_no_partial_files(site: Site, target: Path) -> None:
    calls: list[tuple[int, int | None]] = []

    def progress(step: str, done: int, total: int | None) -> None:
        assert step == "fetching file.zip"
        calls.append((done, total))

    url = site.put("file.zip", CONTENT)
    assert fetch([url], target, LIMIT, retry=QUICK, progress=progress) == url
    assert target.read_bytes() == CONTENT
    assert [p.name for p in target.parent.iterdir()] == ["file.zip"]
    assert calls[0] == (0, len(CONTENT))
    assert calls[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


@pytest.mark.parametrize("validators", [{}, {"etag": None, "modified": "Tue, 01 Jan 2008 00:00:00 GMT"}])
@pytest.mark.parametrize("failure", ["cuts", "stalls"])
def test_a_lost_or_stalled_connection_is_resumed(
    site: Site, target: Path, failure: str, validators: dict[str, str | None]
) -> None:
    url = site.put("file.zip", CONTENT, **{failure: [100_000, 50_000]}, **validators)
    fetch([url], target, LIMIT, retry=QUICK)
    assert target.read_bytes() == CONTENT
    assert [requested for _, requested in site.requests] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_run_resumes_an_earlier_one(site: Site, target: Path) -> None:
    url = site.put("file.zip", CONTENT, cuts=[200_000, 0, 0])
    assert "connection lost after 200,000 of 300,000 bytes, given up after 3 attempts" in refused([url], target)
    fetch([url], target, LIMIT, retry=QUICK)
    assert target.read_bytes() == CONTENT
    assert site.requests[-1][1] == "bytes=200000-"


def test_a_complete_partial_file_needs_no_server(site: Site, target: Path) -> None:
    url = site.put("file.zip", CONTENT)

    def stop(_path: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch([url], target, LIMIT, retry=QUICK, find_error=stop)
    fetch([url], target, LIMIT, retry=QUICK)
    assert target.read_bytes() == CONTENT
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    "behaviour",
    [
        {"ranges": False},  # always starts over
        {"etag": None},  # versions cannot be distinguished
        {"etag": 'W/"weak"'},
        {"content_range": "bytes 0-5/6"},
        {"content_range": "nonsense"},
    ],
    ids=str,
)
def test_a_download_that_cannot_be_resumed_safely_starts_over(
    site: Site, target: Path, behaviour: dict[str, str | bool | None]
) -> None:
    url = site.put("file.zip", CONTENT, cuts=[100_000], **behaviour)
    fetch([url], target, LIMIT, retry=QUICK)
    assert target.read_bytes() == CONTENT
    assert len(site.requests) <= 3


@pytest.mark.parametrize("obeys", [True, False])
def test_a_file_that_changed_between_attempts_is_never_mixed(site: Site, target: Path, obeys: bool) -> None:
    url = site.put("file.zip", CONTENT, cuts=[100_000, 0, 0])
    refused([url], target)
    changed = bytes(reversed(CONTENT))
    site.put("file.zip", changed, etag='"two"', obeys_if_range=obeys)
    fetch([url], target, LIMIT, retry=QUICK)
    assert target.read_bytes() == changed


def test_a_file_shorter_than_the_partial_file_starts_over(site: Site, target: Path) -> None:
    url = site.put("file.zip", CONTENT, cuts=[100_000, 0, 0])
    refused([url], target)
    site.put("file.zip", CONTENT[:5000])
    fetch([url], target, LIMIT, retry=QUICK)
    assert target.read_bytes() == CONTENT[:5000]


@pytest.mark.parametrize(
    ("failures", "message"),
    [
        ({"announce": len(CONTENT) + 50, "ranges": False}, "connection lost after 300,000 of 300,050 bytes"),
        ({"announce": LIMIT + 1}, "announces 10,485,761 bytes, over the limit of 10,485,760"),
        ({"silent": True}, "does not announce the length of the file"),
        ({"stalls": [0, 0, 0, 0]}, "sent no data for 0.2 s, given up after 3 attempts"),
        ({"cuts": [10, 10, 10, 10], "ranges": False}, "connection lost after 10 of 300,000 bytes"),
        ({"statuses": [404]}, "HTTP 404"),
        ({"statuses": [500] * 5}, "HTTP 500 Internal Server Error, given up after 3 attempts"),
        ({"location": "file:///etc/passwd"}, "file:///etc/passwd"),
        ({"location": "ftp://127.0.0.1/x"}, "ftp is not supported, only http and https"),
        ({"chunked": True, "cuts": [1000] * 4}, "connection lost (IncompleteRead"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_servers_are_one_line(site: Site, target: Path, failures: dict[str, Any], message: str) -> None:
    url = site.put("file.zip", CONTENT, **failures)
    line = refused([url], target)
    assert message in line
    assert url in line


def test_more_bytes_than_announced_are_refused_and_not_kept(site: Site, target: Path) -> None:
    url = site.put("file.zip", CONTENT[:2000], announce=1000)
    assert "sends more bytes than it announced" in refused([url], target)
    assert list(target.parent.iterdir()) == []


def test_chunks_are_counted_against_the_limit(site: Site, target: Path) -> None:
    url = site.put("file.zip", CONTENT, chunked=True)
    assert "than the limit" in refused([url], target, limit=1000)
    fetch([url], target, LIMIT, retry=QUICK)
    assert target.read_bytes() == CONTENT


def test_transient_errors_are_retried(site: Site, target: Path) -> None:
    fetch([site.put("file.zip", CONTENT, statuses=[503, 500])], target, LIMIT, retry=QUICK)
    assert target.read_bytes() == CONTENT


def test_mirrors_are_tried_in_order(site: Site, target: Path) -> None:
    page = site.put("page.zip", b"<html>gone</html>")
    missing = site.address + "missing.zip"
    good = site.put("good.zip", CONTENT)

    def find_error(path: Path) -> str | None:
        return "a web page" if path.read_bytes().startswith(b"<") else None

    urls = ["file:///etc/passwd", missing, page, good]
    assert fetch(urls, target, LIMIT, retry=QUICK, find_error=find_error) == good
    assert [path for path, _ in site.requests] == ["/missing.zip", "/page.zip", "/good.zip"]
    assert [p.name for p in target.parent.iterdir()] == ["file.zip"]
    target.unlink()
    with pytest.raises(DoapError) as error:
        fetch(urls[:-1], target, LIMIT, "get it by hand", QUICK, find_error)
    line = str(error.value)
    assert line.startswith("file.zip: no mirror delivered it; file:///etc/passwd: file is not supported")
    assert f"{missing}: HTTP 404" in line
    assert f"{page}: a web page" in line
    assert line.endswith("; get it by hand")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://doap.invalid/x", "http://[broken/x", "http://a b/x"])
def test_addresses_without_a_server_are_one_line(target: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    assert url in refused([url], target)


def test_redirects_are_followed_but_not_out_of_https(site: Site, target: Path) -> None:
    site.put("there.zip", CONTENT, cuts=[1000])
    fetch([site.put("here.zip", b"", location="/there.zip")], target, LIMIT, retry=QUICK)
    assert target.read_bytes() == CONTENT
    assert ("/there.zip", "bytes=1000-") in site.requests
    request = Request("https://example.org/file.zip")
    with pytest.raises(Exception, match="redirects from https to http:"):
        module._Redirects().redirect_request(request, None, 302, "", None, "http://example.org/x")  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = site.put("file.zip", CONTENT)
    target.parent.mkdir()
    monkeypatch.setattr(module, "_open", lambda *_: FileIO("/dev/full", "wb"))
    assert "No space left on device" in refused([url], target)
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=99))
    assert "needs 300,000 more bytes, only 99 are free" in refused([url], target)
