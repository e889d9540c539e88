"""`doap data download` and `doap data list`, against a local server with small copies of the official sets."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from doap.cli.main import app
from doap.datasets.download.catalogue import CATALOGUE, RemoteFile
from doap.datasets.sets.patch_set import PatchSet
from support.command_line import Doap
from support.local_server import Site
from support.sets.hostile_archives import HOSTILE, tarred, zipped
from support.sets.small_official_sets import (
    make_hpatches,
    make_oxford,
    make_phototour,
    make_rome,
    make_sequences,
    make_tasks,
)

MADE: dict[str, tuple[Callable[[Path], Path], dict[str, int], str]] = {
    "phototour-liberty": (make_phototour, {"patches": 300, "pairs": 40}, "300 patches, 40 pairs"),
    "hpatches": (
        make_hpatches,
        {"i_ sequences": 1, "v_ sequences": 2},
        "1 i_ sequences, 2 v_ sequences, 144 patches",
    ),
    "hpatches-sequences": (make_sequences, {"images": 12}, "1 i_ sequences, 1 v_ sequences, 12 images"),
    "hpatches-tasks": (make_tasks, {"splits": 2}, "2 splits, 6 verification lists, 4 retrieval lists"),
    "romepatches": (make_rome, {"patches": 40}, "40 patches"),
    "oxford": (make_oxford, {"sequences": 8, "images": 48}, "8 sequences, 48 images"),
}


def files_of(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


Make = Callable[[str], Path]


@pytest.fixture
def made(site: Site, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that writes a small copy of a data set, serves it and enters it in the catalogue."""

    def make(name: str) -> Path:
        build, expected, _ = MADE[name]
        data = CATALOGUE[name]
        folder = build(tmp_path_factory.mktemp("made") / "content")
        contents = files_of(folder)
        if name in ("hpatches-tasks", "romepatches"):
            files = tuple(RemoteFile(file, (site.put(f"{name}/{file}", contents[file]),), False) for file in contents)
        elif name == "oxford":
            files = tuple(
                replace(file, urls=(site.put(file.name, tarred(files_of(folder / file.folder))),))
                for file in data.files
            )
        else:
            enclosed = {f"release/{path}": content for path, content in contents.items()}
            files = (replace(data.files[0], urls=(site.put(data.files[0].name, zipped(enclosed)),)),)
        monkeypatch.setitem(CATALOGUE, name, replace(data, files=files, expected=expected, size=10_000_000))
        return folder

    return make


@pytest.mark.parametrize("command", ["download", "list"])
def test_the_commands_have_help_with_an_example(command: str) -> None:
    shown = CliRunner().invoke(app, ["data", command, "--help"])
    assert shown.exit_code == 0
    assert f"Example: doap data {command}" in " ".join(shown.output.split())


@pytest.mark.parametrize("name", [name for name in MADE if name != "hpatches"])
def test_every_set_is_downloaded_and_checked(doap: Doap, made: Make, tmp_path: Path, name: str) -> None:
    folder = made(name)
    status, shown, errors = doap("data", "download", name, "-o", "sets")
    assert (status, errors) == (0, "")
    lines = shown.splitlines()
    assert lines[0] == f"{name} is now in sets/{name}: {MADE[name][2]}"
    stored = files_of(tmp_path / "sets")
    sha256 = stored.pop(f"{name}.sha256").decode().strip()
    assert lines[1] == f"  no hash is published for {name}; sha256:{sha256} is now in sets/{name}.sha256"
    assert lines[2].startswith("  it came over plain http, so that others on the way could change it: 127.0.0.1:")
    assert lines[2].count("127.0.0.1") == 1
    assert lines[3:] == [f"  terms: {CATALOGUE[name].terms}"]
    assert stored == {f"{name}/{path}": content for path, content in files_of(folder).items()}
    status, again, _ = doap("data", "download", name, "-o", "sets")
    assert status == 0
    assert again.splitlines() == [
        lines[0].replace("is now in", "is already in"),
        f"  its content is that of the first download: sha256:{sha256} in sets/{name}.sha256",
        lines[3],
    ]


def test_other_content_than_that_of_the_first_download_is_refused(
    doap: Doap, made: Make, tmp_path: Path, site: Site
) -> None:
    folder = made("phototour-liberty")
    _, shown, _ = doap("data", "download", "phototour-liberty", "-o", "sets")
    first = shown.split("sha256:")[1].split()[0]
    (tmp_path / "sets" / "phototour-liberty").rename(tmp_path / "old")
    Image.new("L", (1024, 1024)).save(folder / "patches0001.bmp")
    site.put("liberty.zip", zipped(files_of(folder)))
    status, _, errors = doap("data", "download", "phototour-liberty", "-o", "sets")
    assert (status, errors.count("\n")) == (1, 1)
    assert f"but that of the first download had sha256:{first}; if the official data were changed, remove" in errors
    assert not (tmp_path / "sets" / "phototour-liberty").exists()
    (tmp_path / "sets" / "phototour-liberty.sha256").write_text("words")
    assert "not a SHA-256; remove it" in doap("data", "download", "phototour-liberty", "-o", "sets")[2]
    (tmp_path / "sets" / "phototour-liberty.sha256").unlink()
    status, shown, _ = doap("data", "download", "phototour-liberty", "-o", "sets")
    assert status == 0
    assert first not in shown


def test_a_folder_that_is_not_writable_is_checked(
    doap: Doap, made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:  # permissions do not restrict root
        raise PermissionError

    (tmp_path / "sets").mkdir()
    made("hpatches-sequences").rename(tmp_path / "sets" / "hpatches-sequences")
    monkeypatch.setattr("doap.datasets.download.downloading.write_text", refuse)
    status, shown, _ = doap("data", "download", "hpatches-sequences", "-o", "sets")
    assert status == 0
    assert "no hash is published for hpatches-sequences; this copy has sha256:" in shown


def test_plain_http_is_listed(doap: Doap) -> None:
    shown = doap("data", "list", "nowhere")[1]
    assert (
        "over plain http from all mirrors: romepatches; over plain http from some mirrors: phototour-liberty, "
        "phototour-notredame, phototour-yosemite\n" in shown
    )


def test_hpatches_comes_with_its_task_lists_and_sets_are_listed(
    doap: Doap, made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("hpatches")
    made("hpatches-tasks")
    monkeypatch.setenv("DOAP_DATA", str(tmp_path / "shelf"))
    status, shown, _ = doap("data", "download", "hpatches")
    assert status == 0
    for name in ("hpatches", "hpatches-tasks"):
        assert f"{name} is now in {tmp_path / 'shelf' / name}: {MADE[name][2]}" in shown
    PatchSet([np.zeros((2, 8, 8), np.uint8)], [0, 0]).save(tmp_path / "shelf" / "own" / "set")
    (tmp_path / "shelf" / "hpatches" / "i_one" / "ref.png").unlink()
    status, shown, _ = doap("data", "list")
    assert status == 0
    for name in CATALOGUE:
        assert f"│ {name} " in shown
    assert f"hpatches-tasks is in {tmp_path / 'shelf' / 'hpatches-tasks'}: 2 splits" in shown
    assert f"hpatches is in {tmp_path / 'shelf' / 'hpatches'}, but not complete: i_one/ref.png: missing" in shown
    assert f"patch set in {tmp_path / 'shelf' / 'own' / 'set'}" in shown
    status, shown, _ = doap("data", "list", "nowhere")
    assert "no sets in nowhere; get one with doap data download NAME -o nowhere" in shown


def test_a_known_hash_is_compared(doap: Doap, made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made("hpatches-sequences")
    _, shown, _ = doap("data", "download", "hpatches-sequences", "-o", "one", "--keep-archive")
    sha256 = shown.split("sha256:")[1].split()[0]
    assert Path("one/downloads/hpatches-sequences/hpatches-sequences-release.zip").exists()
    data = CATALOGUE["hpatches-sequences"]
    monkeypatch.setitem(CATALOGUE, data.name, replace(data, sha256=sha256))
    assert f"its content is correct: sha256:{sha256}" in doap("data", "download", data.name, "-o", "two")[1]
    monkeypatch.setitem(CATALOGUE, data.name, replace(data, sha256="f" * 64))
    status, _, errors = doap("data", "download", data.name, "-o", "three")
    assert (status, errors.count("\n")) == (1, 1)
    assert f"the content has sha256:{sha256}, but hpatches-sequences has sha256:ffff" in errors
    assert not Path("three/hpatches-sequences").exists()


def test_one_set_that_fails_does_not_stop_the_others(doap: Doap, made: Make, site: Site) -> None:
    made("phototour-liberty")
    made("hpatches-sequences")
    del site.pages["/liberty.zip"]
    status, shown, errors = doap("data", "download", "phototour-liberty", "hpatches-sequences", "-o", "sets")
    assert (status, errors.count("\n")) == (1, 1)
    assert "hpatches-sequences is now in" in shown
    assert "liberty.zip: no mirror delivered it; http://127.0.0.1:" in errors
    assert (
        "HTTP 404 Not Found; download it manually from http://matthewalunbrown.com/patchdata/patchdata.html, put it "
        in errors
    )
    status, shown, _ = doap(
        "data", "download", "phototour-liberty", "-o", "sets", "--url", site.put("own.zip", b"<html>no</html>")
    )
    assert status == 1


def test_a_file_copied_by_hand_is_used(doap: Doap, made: Make, site: Site) -> None:
    made("phototour-liberty")
    by_hand = Path("data/downloads/phototour-liberty/liberty.zip")
    by_hand.parent.mkdir(parents=True)
    by_hand.write_bytes(site.pages["/liberty.zip"].content)
    status, shown, _ = doap("data", "download", "phototour-liberty")
    assert (status, site.requests) == (0, [])
    assert "phototour-liberty is now in data/phototour-liberty" in shown


@pytest.mark.parametrize(
    "name", ["zip leads out", "zip link", "tar link and through it", "tar device", "zip encrypted"]
)
def test_hostile_archives_are_one_line_and_leave_nothing(
    doap: Doap, made: Make, site: Site, tmp_path: Path, name: str
) -> None:
    made("phototour-liberty")
    site.put("liberty.zip", HOSTILE[name][0])
    status, _, errors = doap("data", "download", "phototour-liberty", "-o", "sets/deep")
    assert (status, errors.count("\n")) == (1, 1)
    assert HOSTILE[name][1] in errors
    assert "remove it to download it again" in errors
    assert list(files_of(tmp_path)) == ["sets/deep/downloads/phototour-liberty/liberty.zip"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tokyo",), "tokyo: unknown data set; choose one of phototour-liberty, "),
        (("oxford", "hpatches", "--url", "http://127.0.0.1:1/x"), "--url is for one NAME at a time"),
    ],
)
def test_wrong_arguments_are_one_line(doap: Doap, arguments: tuple[str, ...], message: str) -> None:
    status, _, errors = doap("data", "download", *arguments)
    assert (status, errors.count("\n")) == (1, 1)
    assert message in errors


def test_too_large_an_archive_is_not_fetched(doap: Doap, made: Make, site: Site) -> None:
    made("phototour-liberty")
    data = CATALOGUE["phototour-liberty"]
    site.pages["/liberty.zip"].announce = 5 * data.size
    status, _, errors = doap("data", "download", "phototour-liberty")
    assert (status, errors.count("\n")) == (1, 1)
    assert "announces 50,000,000 bytes, over the limit of 40,000,000" in errors
