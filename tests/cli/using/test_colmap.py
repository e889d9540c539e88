"""`doap colmap` as a user runs it."""

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bridges.colmap.conftest import stay_in_process, write_photos
from doap.bridges.colmap import reconstruction
from doap.bridges.colmap.project import find_new_images
from doap.bridges.colmap.statistics import ModelStatistics
from support.command_line import Doap

DESCRIBE = ("--model", "doap-tiny-128", "--max-keypoints", "300", "--min-response", "0")
MODEL = (*DESCRIBE, "--ratio", "1", "--max-error", "0.00375", "--device", "cpu", "--workers", "1")


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    stay_in_process(monkeypatch)


def images(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM images ORDER BY image_id")]


def test_a_project_is_made_and_continued(doap: Doap) -> None:
    write_photos(Path("my photos"))
    Path("my photos/words.jpg").write_text("words")
    status, shown, errors = doap("colmap", "my photos", "-o", "p", *MODEL)
    assert status == 0, errors
    assert "words.jpg: not an image in a known format" in shown
    assert "no keypoint: blank.png\n" in shown
    assert "4 images of 4 cameras with 900 keypoints in p/database.db\n" in shown
    assert "6 pairs matched; 3 have verified matches, " in shown
    assert "next: colmap gui --database_path p/database.db --image_path 'my photos', or" in shown
    assert images(Path("p/database.db")) == ["a/left.png", "b/right.png", "blank.png", "crop.png"]
    status, shown, _ = doap("colmap", "my photos", "-o", "p", "--pairs", "sequential", *MODEL)
    assert "4 images of 4 cameras with 900 keypoints in p/database.db, 4 of them described by an earlier run" in shown
    assert "6 pairs matched, 6 of them by an earlier run; 3 have verified matches" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name the project to write with -o, or a database of COLMAP with --database"),
        (("-o", "p", "--database", "d.db"), "name the project to write with -o, or a database"),
        (("-o", "p", "--pairs", "most"), "--pairs most: neither exhaustive, retrieval, sequential nor a file"),
        (("-o", "p", "--camera-model", "LENS"), "camera model LENS: unknown; choose one of SIMPLE_PINHOLE"),
        (("-o", "p", "--camera-params", "a,b"), "--camera-params a,b: must be numbers separated by commas"),
        (("-o", "p", "--camera-params", "1,2"), "camera model SIMPLE_RADIAL has 4 parameters, not 2"),
        (("--database", "d.db", "--camera-model", "PINHOLE"), "--camera-model: has no effect on a database, whose cam"),
        (("-o", "p", "--neighbours", "3"), "--neighbours: has no effect on other pairs than those of retrieval"),
        (("-o", "p", "--pairs", "retrieval", "--quadratic"), "--quadratic: has no effect on other pairs than those of"),
        (("--database", "d.db"), "d.db: no such database; doap colmap IMAGES -o PROJECT makes one"),
        (("-o", "file"), "file: cannot create this folder"),
        (("-o", "p", "--model", "doap-99"), "doap-99"),
    ],
)
def test_mistakes_are_one_line(doap: Doap, options: tuple[str, ...], message: str) -> None:
    write_photos(Path("photos"))
    Path("file").touch()
    status, _, errors = doap("colmap", "photos", *options)
    assert status == 1
    assert errors.count("\n") == 1
    assert message in errors
    assert not Path("p").exists()


def test_faiss_is_needed_before_images_are_described(doap: Doap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    write_photos(Path("photos"))
    status, _, errors = doap("colmap", "photos", "-o", "p", "--pairs", "retrieval", *MODEL)
    assert (status, errors) == (1, "doap: faiss is not installed; run: pip install 'doap[scale]'\n")


def test_reconstruction_needs_colmap_before_images_are_described(doap: Doap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("doap.bridges.colmap.reconstruction.find_spec", lambda _: None)
    write_photos(Path("photos"))
    status, _, errors = doap("colmap", "photos", "-o", "p", "--reconstruct", *MODEL)
    assert (status, errors.count("\n")) == (1, 1)
    assert "neither pycolmap nor the colmap program is installed" in errors
    assert not Path("p").exists()


def test_a_folder_of_others_is_refused_before_images_are_described(doap: Doap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.bridges.colmap.reconstruction.choose_engine", lambda: "colmap")
    write_photos(Path("photos"))
    Path("p/sparse").mkdir(parents=True)
    Path("p/sparse/notes.txt").touch()
    status, _, errors = doap("colmap", "photos", "-o", "p", "--reconstruct", *MODEL)
    assert (status, errors) == (
        1,
        "doap: p/sparse: holds something else than models (notes.txt); choose another folder\n",
    )
    assert not Path("p/features").exists()


def test_models_are_replaced_by_force_only_which_is_said_first(doap: Doap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.bridges.colmap.reconstruction.choose_engine", lambda: "colmap")
    words = ("colmap", "photos", "-o", "p", *MODEL)
    write_photos(Path("photos"))
    Path("photos/words.jpg").write_text("words")  # is no new image, however often it cannot be read
    assert doap(*words, "--pairs", "sequential", "--neighbours", "1")[0] == 0
    Path("p/sparse/0").mkdir(parents=True)
    status, shown, errors = doap(*words, "--pairs", "sequential", "--neighbours", "1", "--reconstruct")
    assert (status, errors) == (0, "")
    assert shown.endswith("p/sparse: holds models of an earlier run; --force replaces them\n")
    status, _, errors = doap(*words, "--reconstruct")
    assert (status, errors) == (1, "doap: p/sparse: holds models of earlier matches; --force replaces the models\n")
    shutil.copy("photos/crop.png", "photos/new.png")
    before = Path("p/database.db").read_bytes()
    status, _, errors = doap(*words, "--reconstruct")
    assert (status, errors) == (
        1,
        "doap: p/sparse: holds models without 1 new image, such as new.png; --force replaces the models, "
        "without --reconstruct they are kept\n",
    )
    assert Path("p/database.db").read_bytes() == before
    assert not Path("p/features/new.png.npz").exists()
    assert find_new_images(Path("p/database.db"), Path("photos"), added=False) == []  # as with --database


def test_a_removed_image_stays_in_the_database_and_is_counted(doap: Doap, monkeypatch: pytest.MonkeyPatch) -> None:
    def map_all(_database: Path, _images: Path, folder: Path, *_: object) -> None:
        (folder / "0").mkdir()

    monkeypatch.setattr(reconstruction, "choose_engine", lambda _=None: "colmap")
    monkeypatch.setattr(reconstruction, "engine_version", lambda _: "3.8")
    monkeypatch.setattr(reconstruction, "_map_with_program", map_all)
    monkeypatch.setattr(reconstruction, "read_statistics", lambda _: ModelStatistics(4, 50, 150, 3.0, 37.5, 0.5))
    write_photos(Path("photos"))
    assert doap("colmap", "photos", "-o", "p", *MODEL)[0] == 0
    Path("photos/crop.png").unlink()
    status, shown, errors = doap("colmap", "photos", "-o", "p", "--reconstruct", *MODEL)
    assert status == 0, errors
    assert "3 images of 3 cameras" in shown
    assert "p/sparse/0: 4 of 4 images, 50 points" in shown


def test_a_scene_that_cannot_be_reconstructed_keeps_its_database(doap: Doap) -> None:
    if shutil.which("colmap") is None:
        pytest.skip("the colmap program is not installed")
    write_photos(Path("photos"))
    for name in ("b/right.png", "blank.png"):
        (Path("photos") / name).unlink()
    status, shown, errors = doap("colmap", "photos", "-o", "p", "--reconstruct", *MODEL)
    assert (status, errors.count("\n")) == (1, 1)
    assert "1 pair matched; 1 has verified matches" in shown
    assert "no pair of images to start from" in errors
    assert not Path("p/sparse").exists()
