"""Complete downloads from a local server: fetched, unpacked, checked and put in place."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from doap.datasets.download.catalogue import CATALOGUE, DataSet, RemoteFile, find_dataset
from doap.datasets.download.downloading import download
from doap.datasets.download.fetching import RetryPolicy
from doap.errors import DoapError
from support.local_server import Site, serving
from support.sets.hostile_archives import HOSTILE, tarred, zipped
from support.sets.small_official_sets import make_hpatches, make_oxford, make_phototour, make_tasks

QUICK = RetryPolicy(timeout=0.2, attempts=2, delay=0)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as site:
        yield site


@pytest.fixture(scope="module")
def phototour(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return files_of(make_phototour(tmp_path_factory.mktemp("made") / "liberty"))


def files_of(folder: Path, prefix: str = "") -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {prefix + path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def liberty(*urls: str) -> DataSet:
    """Return the entry of the catalogue for a small copy at these URLs."""
    data = find_dataset("phototour-liberty")
    file = replace(data.files[0], urls=urls)
    return replace(data, files=(file,), size=4_000_000, expected={"patches": 300, "pairs": 40})


@pytest.mark.parametrize("enclosing", ["", "liberty/", "a/b/"])
def test_a_set_is_complete_whatever_folder_encloses_it_in_the_archive(
    site: Site, tmp_path: Path, phototour: dict[str, bytes], enclosing: str
) -> None:
    url = site.put("liberty.zip", zipped({enclosing + name: content for name, content in phototour.items()}))
    steps: list[str] = []
    (tmp_path / ".doap-tmp-phototour-liberty.sha256-12345678.sha256").touch()  # of a killed download
    result = download(liberty(url), tmp_path, retry=QUICK, progress=lambda step, *_: steps.append(step))
    assert files_of(tmp_path) == {
        **{f"phototour-liberty/{name}": content for name, content in phototour.items()},
        "phototour-liberty.sha256": f"{result.sha256}\n".encode(),
    }
    assert result.folder == tmp_path / "phototour-liberty"
    assert result.counts == "300 patches, 40 pairs"
    order = ["fetching liberty.zip", "unpacking liberty.zip", "checking phototour-liberty"]
    assert list(dict.fromkeys(steps)) == order
    assert {p.name for p in tmp_path.iterdir()} == {"phototour-liberty", "phototour-liberty.sha256"}
    assert result.plain_urls == (url,)


def test_a_set_that_is_there_is_checked_without_a_server(
    site: Site, tmp_path: Path, phototour: dict[str, bytes]
) -> None:
    url = site.put("liberty.zip", zipped(phototour))
    first = download(liberty(url), tmp_path, retry=QUICK)
    again = download(liberty("http://127.0.0.1:1/x"), tmp_path, retry=QUICK)
    assert again == replace(first, is_new=False, is_recorded_now=False, plain_urls=())
    (tmp_path / "phototour-liberty" / "patches0001.bmp").unlink()
    with pytest.raises(DoapError, match=r"phototour-liberty: not a complete phototour-liberty \(1 sheet "):
        download(liberty(url), tmp_path, retry=QUICK)
    assert (tmp_path / "phototour-liberty").is_dir()


def test_archives_are_kept_on_demand_and_used_again(site: Site, tmp_path: Path, phototour: dict[str, bytes]) -> None:
    url = site.put("liberty.zip", zipped(phototour))
    download(liberty(url), tmp_path, keep_archive=True, retry=QUICK)
    archive = tmp_path / "downloads" / "phototour-liberty" / "liberty.zip"
    assert archive.read_bytes() == site.pages["/liberty.zip"].content
    (tmp_path / "phototour-liberty").rename(tmp_path / "elsewhere")
    assert download(liberty("http://127.0.0.1:1/x"), tmp_path, retry=QUICK).is_new
    assert len(site.requests) == 1


@pytest.mark.parametrize("own", ["own/liberty.zip", "own/"])
def test_the_given_url_is_tried_first(site: Site, tmp_path: Path, phototour: dict[str, bytes], own: str) -> None:
    site.put("own/liberty.zip", zipped(phototour))
    download(liberty(site.address + "other.zip"), tmp_path, url=site.address + own, retry=QUICK)
    assert site.requests == [("/own/liberty.zip", None)]


def test_a_mirror_with_a_web_page_or_half_an_archive_is_skipped(
    site: Site, tmp_path: Path, phototour: dict[str, bytes]
) -> None:
    whole = zipped(phototour)
    urls = [
        site.put("page.zip", b"\n<!DOCTYPE html><title>Not found</title>"),
        site.put("empty.zip", b""),
        site.put("half.zip", whole[: len(whole) // 2]),
        site.put("lies.zip", whole, announce=len(whole) // 2),
    ]
    with pytest.raises(DoapError) as error:
        download(liberty(*urls), tmp_path, retry=QUICK)
    line = str(error.value)
    assert "page.zip: sent a web page instead of the file; " in line
    assert "empty.zip: sent an empty file; " in line
    assert "half.zip: sent no complete zip or tar archive; " in line
    assert "lies.zip: sends more bytes than it announced" in line
    path = tmp_path / "downloads" / "phototour-liberty" / "liberty.zip"
    assert f"download it manually from http://matthewalunbrown.com/patchdata/patchdata.html, put it at {path}" in line
    assert files_of(tmp_path) == {}
    good = site.put("good.zip", whole)
    assert download(liberty(*urls, good), tmp_path, retry=QUICK).is_new


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE if name not in ("zip cut", "words", "nothing", "zip many", "tar many")]
)
def test_hostile_archives_leave_only_themselves(site: Site, tmp_path: Path, name: str) -> None:
    content, _ = HOSTILE[name]
    root = tmp_path / "home" / "data"
    data = replace(liberty(site.put("liberty.zip", content)), size=250_000)
    with pytest.raises(DoapError) as error:
        download(data, root, retry=QUICK)
    assert "\n" not in str(error.value)
    archive = root / "downloads" / "phototour-liberty" / "liberty.zip"
    assert set(files_of(tmp_path)) <= {str(archive.relative_to(tmp_path))}
    assert {p.name for p in root.iterdir()} <= {"downloads"}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_the_wrong_content_is_not_put_in_place(site: Site, tmp_path: Path, phototour: dict[str, bytes]) -> None:
    data = liberty(site.put("liberty.zip", zipped(phototour)))
    with pytest.raises(DoapError, match=r"300 patches instead of 450,092.*remove .*downloads"):
        download(replace(data, expected={"patches": 450_092}), tmp_path, retry=QUICK)
    with pytest.raises(DoapError, match=r"the content has sha256:[0-9a-f]{64}, but phototour-liberty has sha256:0{64}"):
        download(replace(data, sha256="0" * 64), tmp_path, retry=QUICK)
    assert not (tmp_path / "phototour-liberty").exists()
    sha256 = download(data, tmp_path / "other", retry=QUICK).sha256
    assert download(replace(data, sha256=sha256), tmp_path, retry=QUICK).is_new
    assert not (tmp_path / "phototour-liberty.sha256").exists()  # the hash of the catalogue counts


def test_a_set_that_changed_since_the_first_download_is_refused(
    site: Site, tmp_path: Path, phototour: dict[str, bytes]
) -> None:
    data = liberty(site.put("liberty.zip", zipped(phototour)))
    download(data, tmp_path, retry=QUICK)
    sheet = tmp_path / "phototour-liberty" / "patches0000.bmp"
    content = bytearray(sheet.read_bytes())
    content[-1] ^= 1
    sheet.write_bytes(content)
    with pytest.raises(DoapError, match=r"that of the first download had sha256:[0-9a-f]{64}; .*liberty\.sha256"):
        download(data, tmp_path, retry=QUICK)


def test_sets_of_several_archives_and_of_plain_files(site: Site, tmp_path: Path) -> None:
    made = make_oxford(tmp_path / "made")
    for folder in made.iterdir():
        site.put(f"oxford/{folder.name}.tar.gz", tarred(files_of(folder)))
    data = find_dataset("oxford")
    result = download(data, tmp_path / "data", url=site.address + "oxford", retry=QUICK)
    assert result.counts == "8 sequences, 48 images"
    assert files_of(tmp_path / "data" / "oxford") == files_of(made)

    made = make_tasks(tmp_path / "lists")
    for name, content in files_of(made).items():
        site.put(f"tasks/{name}", content)
    files = tuple(RemoteFile(name, (site.address + "tasks/" + name,), is_archive=False) for name in files_of(made))
    tasks = replace(find_dataset("hpatches-tasks"), files=files, expected={"splits": 2})
    assert download(tasks, tmp_path / "data", retry=QUICK).counts.startswith("2 splits, 6 verification lists")
    assert files_of(tmp_path / "data" / "hpatches-tasks") == files_of(made)


def test_an_interrupted_download_is_resumed(site: Site, tmp_path: Path, phototour: dict[str, bytes]) -> None:
    whole = zipped(phototour)
    url = site.put("liberty.zip", whole, cuts=[10_000, 0])
    with pytest.raises(DoapError, match="connection lost after 10,000"):
        download(liberty(url), tmp_path, retry=QUICK)
    assert download(liberty(url), tmp_path, retry=QUICK).is_new
    assert site.requests[-1][1] == "bytes=10000-"


def test_folders_of_sequences_keep_their_names(site: Site, tmp_path: Path) -> None:
    made = make_hpatches(tmp_path / "made")
    url = site.put(
        "h.zip", zipped(files_of(made, "hpatches-release/") | {"__MACOSX/": b"", "__MACOSX/._x": b"", ".DS_Store": b""})
    )
    data = find_dataset("hpatches")
    small = replace(data, files=(replace(data.files[0], urls=(url,)),), expected={"v_ sequences": 2}, size=10**7)
    download(small, tmp_path / "data", retry=QUICK)
    assert files_of(tmp_path / "data" / "hpatches") == files_of(made)


def test_the_catalogue_is_consistent() -> None:
    for name, data in CATALOGUE.items():
        assert data.name == name
        assert len({file.name for file in data.files}) == len(data.files)
        assert all(url.startswith(("https://", "http://")) for file in data.files for url in file.urls)
        assert all(file.urls for file in data.files)
        assert all(other in CATALOGUE for other in data.companions)
    assert {data.expected.get("patches") for data in CATALOGUE.values()} == {450_092, 468_159, 633_587, 20_000, None}
    assert len(find_dataset("hpatches-tasks").files) == 31
    with pytest.raises(DoapError, match="tokyo: unknown data set; choose one of phototour-liberty, "):
        find_dataset("tokyo")


def test_two_downloads_of_a_set_do_not_mix(site: Site, tmp_path: Path, phototour: dict[str, bytes]) -> None:
    content = zipped(phototour)
    url = site.put("liberty.zip", content)
    attempts: list[str] = []

    def start_another(step: str, *_: object) -> None:
        if not attempts and step.startswith("fetching"):
            with pytest.raises(DoapError, match="phototour-liberty: another process is downloading it"):
                download(liberty(url), tmp_path, retry=QUICK)
            attempts.append(step)

    download(liberty(url), tmp_path, keep_archive=True, retry=QUICK, progress=start_another)
    assert attempts
    assert files_of(tmp_path / "downloads") == {"phototour-liberty/liberty.zip": content}
