"""Fetching against a server that stalls, lies, breaks off and changes its mind."""

import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from doap.datasets.download import fetching as module
from doap.datasets.download.fetching import Patience, fetch
from doap.errors import DoapError
from support.local_server import Site

CONTENT = random.Random(0).randbytes(300_000)
HASTY = Patience(timeout=0.2, attempts=3, pause=0)
LIMIT = 10 << 20


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "file.zip"


def refused(urls: list[str], target: Path, limit: int = LIMIT) -> str:
    """The one line by which a fetch is refused; nothing is at the target then."""
    with pytest.raises(DoapError) as error:
        fetch(urls, target, limit, patience=HASTY)
    assert "\n" not in str(error.value)
    assert not target.exists()
    return str(error.value)


def test_a_file_comes_whole_with_progress_and_leaves_no_parts(site: Site, target: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    url = site.put("file.zip", CONTENT)
    assert fetch([url], target, LIMIT, patience=HASTY, progress=lambda *now: seen.append(now)) == url
    assert target.read_bytes() == CONTENT
    assert [p.name for p in target.parent.iterdir()] == ["file.zip"]
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert sorted(seen) == seen


@pytest.mark.parametrize("marks", [{}, {"etag": None, "modified": "Tue, 01 Jan 2008 00:00:00 GMT"}])
@pytest.mark.parametrize("trouble", ["cuts", "stalls"])
def test_what_broke_off_or_stalled_is_gone_on_with(site: Site, target: Path, trouble: str, marks: dict) -> None:  # type: ignore[type-arg]
    url = site.put("file.zip", CONTENT, **{trouble: [100_000, 50_000]}, **marks)
    fetch([url], target, LIMIT, patience=HASTY)
    assert target.read_bytes() == CONTENT
    assert [wanted for _, wanted in site.asked] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_run_goes_on_where_an_earlier_one_was_stopped(site: Site, target: Path) -> None:
    url = site.put("file.zip", CONTENT, cuts=[200_000, 0, 0])
    assert "broke off after 200,000 of 300,000 bytes, given up after 3 attempts" in refused([url], target)
    fetch([url], target, LIMIT, patience=HASTY)
    assert target.read_bytes() == CONTENT
    assert site.asked[-1][1] == "bytes=200000-"


def test_a_part_that_was_whole_needs_no_server(site: Site, target: Path) -> None:
    url = site.put("file.zip", CONTENT)

    def stop(_path: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch([url], target, LIMIT, patience=HASTY, complaint=stop)
    fetch([url], target, LIMIT, patience=HASTY)
    assert target.read_bytes() == CONTENT
    assert len(site.asked) == 1


@pytest.mark.parametrize(
    "habit",
    [
        {"ranges": False},  # starts over by itself
        {"etag": None},  # no way to tell versions apart
        {"etag": 'W/"weak"'},
        {"content_range": "bytes 0-5/6"},
        {"content_range": "nonsense"},
    ],
    ids=str,
)
def test_where_going_on_is_unsafe_it_starts_over(site: Site, target: Path, habit: dict) -> None:  # type: ignore[type-arg]
    url = site.put("file.zip", CONTENT, cuts=[100_000], **habit)
    fetch([url], target, LIMIT, patience=HASTY)
    assert target.read_bytes() == CONTENT
    assert len(site.asked) <= 3


@pytest.mark.parametrize("obeys", [True, False])
def test_a_file_that_changed_between_attempts_is_never_mixed(site: Site, target: Path, obeys: bool) -> None:
    url = site.put("file.zip", CONTENT, cuts=[100_000, 0, 0])
    refused([url], target)
    changed = bytes(reversed(CONTENT))
    site.put("file.zip", changed, etag='"two"', obeys_if_range=obeys)
    fetch([url], target, LIMIT, patience=HASTY)
    assert target.read_bytes() == changed


def test_a_shorter_file_than_what_is_there_starts_over(site: Site, target: Path) -> None:
    url = site.put("file.zip", CONTENT, cuts=[100_000, 0, 0])
    refused([url], target)
    site.put("file.zip", CONTENT[:5000])
    fetch([url], target, LIMIT, patience=HASTY)
    assert target.read_bytes() == CONTENT[:5000]


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ({"announce": len(CONTENT) + 50, "ranges": False}, "broke off after 300,000 of 300,050 bytes"),
        ({"announce": LIMIT + 1}, "announces 10,485,761 bytes, over the limit of 10,485,760"),
        ({"silent": True}, "does not say how long the file is"),
        ({"stalls": [0, 0, 0, 0]}, "sent nothing for 0.2 s, given up after 3 attempts"),
        ({"cuts": [10, 10, 10, 10], "ranges": False}, "broke off after 10 of 300,000 bytes"),
        ({"statuses": [404]}, "HTTP 404"),
        ({"statuses": [500] * 5}, "HTTP 500 Internal Server Error, given up after 3 attempts"),
        ({"location": "file:///etc/passwd"}, "file:///etc/passwd"),
        ({"location": "ftp://127.0.0.1/x"}, "ftp is not fetched, only http and https"),
        ({"chunked": True, "cuts": [1000] * 4}, "broke off (IncompleteRead"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_servers_are_one_line(site: Site, target: Path, failures: dict, said: str) -> None:  # type: ignore[type-arg]
    url = site.put("file.zip", CONTENT, **failures)
    line = refused([url], target)
    assert said in line
    assert url in line


def test_more_bytes_than_announced_are_refused_and_not_kept(site: Site, target: Path) -> None:
    url = site.put("file.zip", CONTENT[:2000], announce=1000)
    assert "sends more bytes than it announced" in refused([url], target)
    assert list(target.parent.iterdir()) == []


def test_chunks_are_counted_against_the_limit(site: Site, target: Path) -> None:
    url = site.put("file.zip", CONTENT, chunked=True)
    assert "than the limit" in refused([url], target, limit=1000)
    fetch([url], target, LIMIT, patience=HASTY)
    assert target.read_bytes() == CONTENT


def test_passing_faults_pass(site: Site, target: Path) -> None:
    fetch([site.put("file.zip", CONTENT, statuses=[503, 500])], target, LIMIT, patience=HASTY)
    assert target.read_bytes() == CONTENT


def test_mirrors_are_asked_in_order_until_one_is_right(site: Site, target: Path) -> None:
    page = site.put("page.zip", b"<html>gone</html>")
    missing = site.address + "missing.zip"
    good = site.put("good.zip", CONTENT)

    def complaint(path: Path) -> str | None:
        return "a web page" if path.read_bytes().startswith(b"<") else None

    urls = ["file:///etc/passwd", missing, page, good]
    assert fetch(urls, target, LIMIT, patience=HASTY, complaint=complaint) == good
    assert [path for path, _ in site.asked] == ["/missing.zip", "/page.zip", "/good.zip"]
    assert [p.name for p in target.parent.iterdir()] == ["file.zip"]
    target.unlink()
    with pytest.raises(DoapError) as error:
        fetch(urls[:-1], target, LIMIT, "get it by hand", HASTY, complaint)
    line = str(error.value)
    assert line.startswith("file.zip: no mirror gave it; file:///etc/passwd: file is not fetched")
    assert f"{missing}: HTTP 404" in line
    assert f"{page}: a web page" in line
    assert line.endswith("; get it by hand")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://doap.invalid/x", "http://[broken/x", "http://a b/x"])
def test_addresses_without_a_server_are_one_line(target: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    assert url in refused([url], target)


def test_redirects_are_followed_but_not_out_of_https(site: Site, target: Path) -> None:
    site.put("there.zip", CONTENT, cuts=[1000])
    fetch([site.put("here.zip", b"", location="/there.zip")], target, LIMIT, patience=HASTY)
    assert target.read_bytes() == CONTENT
    assert ("/there.zip", "bytes=1000-") in site.asked
    request = module.Request("https://example.org/file.zip")
    with pytest.raises(Exception, match="redirects from https to http:"):
        module._Redirects().redirect_request(request, None, 302, "", None, "http://example.org/x")  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = site.put("file.zip", CONTENT)
    target.parent.mkdir()
    monkeypatch.setattr(module, "_opened", lambda *_: module.FileIO("/dev/full", "wb"))
    assert "No space left on device" in refused([url], target)
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=99))
    assert "300,000 bytes are to come, only 99 are free" in refused([url], target)
