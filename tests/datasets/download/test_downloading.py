"""A whole download: fetched from a local server, unpacked, checked, and there only then."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from doap.datasets.download.catalogue import CATALOGUE, DataSet, Part, find
from doap.datasets.download.downloading import download
from doap.datasets.download.fetching import Patience
from doap.errors import DoapError
from support.hostile_archives import HOSTILE, tarred, zipped
from support.local_server import Site, serving
from support.small_official_sets import make_hpatches, make_oxford, make_phototour, make_tasks

HASTY = Patience(timeout=0.2, attempts=2, pause=0)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def phototour(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return files_of(make_phototour(tmp_path_factory.mktemp("made") / "liberty"))


def files_of(folder: Path, prefix: str = "") -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {prefix + path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def liberty(*urls: str) -> DataSet:
    """The entry of the catalogue, for a small copy at these addresses."""
    data = find("phototour-liberty")
    part = replace(data.parts[0], mirrors=urls)
    return replace(data, parts=(part,), size=4_000_000, expected={"patches": 300, "pairs": 40})


@pytest.mark.parametrize("wrapped", ["", "liberty/", "a/b/"])
def test_a_set_comes_whole_whatever_folder_its_archive_wraps_around_it(
    site: Site, tmp_path: Path, phototour: dict[str, bytes], wrapped: str
) -> None:
    url = site.put("liberty.zip", zipped({wrapped + name: content for name, content in phototour.items()}))
    steps: list[str] = []
    found = download(liberty(url), tmp_path, patience=HASTY, progress=lambda step, *_: steps.append(step))
    assert files_of(tmp_path) == {f"phototour-liberty/{name}": content for name, content in phototour.items()}
    assert found.folder == tmp_path / "phototour-liberty"
    assert found.counts == "300 patches, 40 pairs"
    order = ["fetching liberty.zip", "unpacking liberty.zip", "checking phototour-liberty"]
    assert list(dict.fromkeys(steps)) == order
    assert [p.name for p in tmp_path.iterdir()] == ["phototour-liberty"]


def test_a_set_that_is_there_is_checked_without_a_server(
    site: Site, tmp_path: Path, phototour: dict[str, bytes]
) -> None:
    url = site.put("liberty.zip", zipped(phototour))
    first = download(liberty(url), tmp_path, patience=HASTY)
    again = download(liberty("http://127.0.0.1:1/x"), tmp_path, patience=HASTY)
    assert again == replace(first, fetched=False)
    (tmp_path / "phototour-liberty" / "patches0001.bmp").unlink()
    with pytest.raises(DoapError, match=r"phototour-liberty: not the whole of phototour-liberty \(1 sheets"):
        download(liberty(url), tmp_path, patience=HASTY)
    assert (tmp_path / "phototour-liberty").is_dir()


def test_archives_are_kept_on_demand_and_used_again(site: Site, tmp_path: Path, phototour: dict[str, bytes]) -> None:
    url = site.put("liberty.zip", zipped(phototour))
    download(liberty(url), tmp_path, keep_archive=True, patience=HASTY)
    kept = tmp_path / "downloads" / "phototour-liberty" / "liberty.zip"
    assert kept.read_bytes() == site.pages["/liberty.zip"].content
    (tmp_path / "phototour-liberty").rename(tmp_path / "elsewhere")
    assert download(liberty("http://127.0.0.1:1/x"), tmp_path, patience=HASTY).fetched
    assert len(site.asked) == 1


@pytest.mark.parametrize("own", ["own/liberty.zip", "own/"])
def test_an_address_of_ones_own_is_asked_first(
    site: Site, tmp_path: Path, phototour: dict[str, bytes], own: str
) -> None:
    site.put("own/liberty.zip", zipped(phototour))
    download(liberty(site.address + "other.zip"), tmp_path, url=site.address + own, patience=HASTY)
    assert site.asked == [("/own/liberty.zip", None)]


def test_a_mirror_with_a_page_or_half_an_archive_is_passed_over(
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
        download(liberty(*urls), tmp_path, patience=HASTY)
    line = str(error.value)
    assert "page.zip: sent a web page instead of the file; " in line
    assert "empty.zip: sent an empty file; " in line
    assert "half.zip: sent no zip or tar archive, or not all of it; " in line
    assert "lies.zip: sends more bytes than it announced" in line
    place = tmp_path / "downloads" / "phototour-liberty" / "liberty.zip"
    assert f"get it by hand from http://matthewalunbrown.com/patchdata/patchdata.html, put it at {place}" in line
    assert files_of(tmp_path) == {}
    good = site.put("good.zip", whole)
    assert download(liberty(*urls, good), tmp_path, patience=HASTY).fetched


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE if name not in ("zip cut", "words", "nothing", "zip many", "tar many")]
)
def test_hostile_archives_leave_only_themselves(site: Site, tmp_path: Path, name: str) -> None:
    content, _ = HOSTILE[name]
    root = tmp_path / "home" / "data"
    data = replace(liberty(site.put("liberty.zip", content)), size=250_000)
    with pytest.raises(DoapError) as error:
        download(data, root, patience=HASTY)
    assert "\n" not in str(error.value)
    archive = root / "downloads" / "phototour-liberty" / "liberty.zip"
    assert set(files_of(tmp_path)) <= {str(archive.relative_to(tmp_path))}
    assert [p.name for p in root.iterdir()] == ["downloads"]
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_the_wrong_content_is_not_put_in_place(site: Site, tmp_path: Path, phototour: dict[str, bytes]) -> None:
    data = liberty(site.put("liberty.zip", zipped(phototour)))
    with pytest.raises(DoapError, match=r"300 patches where there must be 450,092.*remove .*downloads"):
        download(replace(data, expected={"patches": 450_092}), tmp_path, patience=HASTY)
    with pytest.raises(DoapError, match=r"the content has sha256:[0-9a-f]{64}, but phototour-liberty has sha256:0{64}"):
        download(replace(data, sha256="0" * 64), tmp_path, patience=HASTY)
    assert not (tmp_path / "phototour-liberty").exists()
    right = download(data, tmp_path / "other", patience=HASTY).sha256
    assert download(replace(data, sha256=right), tmp_path, patience=HASTY).fetched


def test_sets_of_several_archives_and_of_plain_files(site: Site, tmp_path: Path) -> None:
    made = make_oxford(tmp_path / "made")
    for folder in made.iterdir():
        site.put(f"oxford/{folder.name}.tar.gz", tarred(files_of(folder)))
    data = find("oxford")
    found = download(data, tmp_path / "data", url=site.address + "oxford", patience=HASTY)
    assert found.counts == "8 sequences, 48 images"
    assert files_of(tmp_path / "data" / "oxford") == files_of(made)

    made = make_tasks(tmp_path / "lists")
    for name, content in files_of(made).items():
        site.put(f"tasks/{name}", content)
    parts = tuple(Part(name, (site.address + "tasks/" + name,), archive=False) for name in files_of(made))
    tasks = replace(find("hpatches-tasks"), parts=parts, expected={"splits": 2})
    assert download(tasks, tmp_path / "data", patience=HASTY).counts.startswith("2 splits, 6 verification lists")
    assert files_of(tmp_path / "data" / "hpatches-tasks") == files_of(made)


def test_a_stopped_download_goes_on(site: Site, tmp_path: Path, phototour: dict[str, bytes]) -> None:
    whole = zipped(phototour)
    url = site.put("liberty.zip", whole, cuts=[10_000, 0])
    with pytest.raises(DoapError, match="broke off after 10,000"):
        download(liberty(url), tmp_path, patience=HASTY)
    assert download(liberty(url), tmp_path, patience=HASTY).fetched
    assert site.asked[-1][1] == "bytes=10000-"


def test_folders_of_sequences_keep_their_names(site: Site, tmp_path: Path) -> None:
    made = make_hpatches(tmp_path / "made")
    url = site.put(
        "h.zip", zipped(files_of(made, "hpatches-release/") | {"__MACOSX/": b"", "__MACOSX/._x": b"", ".DS_Store": b""})
    )
    data = find("hpatches")
    small = replace(data, parts=(replace(data.parts[0], mirrors=(url,)),), expected={"v_ sequences": 2}, size=10**7)
    download(small, tmp_path / "data", patience=HASTY)
    assert files_of(tmp_path / "data" / "hpatches") == files_of(made)


def test_the_catalogue_holds_together() -> None:
    for name, data in CATALOGUE.items():
        assert data.name == name
        assert len({part.file for part in data.parts}) == len(data.parts)
        assert all(url.startswith(("https://", "http://")) for part in data.parts for url in part.mirrors)
        assert all(part.mirrors for part in data.parts)
        assert all(other in CATALOGUE for other in data.brings)
    assert {data.expected.get("patches") for data in CATALOGUE.values()} == {450_092, 468_159, 633_587, 20_000, None}
    assert len(find("hpatches-tasks").parts) == 31
    with pytest.raises(DoapError, match="tokyo: no data set of this name; there are phototour-liberty, "):
        find("tokyo")
