"""Projects: the same content however often a run is interrupted, nothing of others replaced, pixels as COLMAP's."""

import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import skimage
from PIL import Image

from bridges.colmap.conftest import MAX_ERROR, SETTINGS, Colmap, write_photos
from bridges.colmap.test_database import TABLES, TABLES_4_2, blob, make, rows
from doap.bridges.colmap import CameraSettings, PairSettings, ProjectSettings, build_project, import_into_database
from doap.bridges.colmap.database import pair_id
from doap.bridges.colmap.pairs import sequential_pairs
from doap.bridges.colmap.two_view import UNCALIBRATED
from doap.errors import DoapError
from doap.features import match
from doap.folders import DescribeSettings, FeatureCollection, MatchSettings

pytestmark = pytest.mark.usefixtures("in_process")

TINY = ProjectSettings(DescribeSettings("doap-tiny-128", max_keypoints=60), match=MatchSettings(), max_error=MAX_ERROR)


def dump(path: Path) -> list[str]:
    """Return the content of a database as SQL."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def copy_project(project: Path, target: Path) -> Path:
    """Copy a project with its photos and their times."""
    return Path(shutil.copytree(project, target))


def interrupt_at(step: str, count: int) -> Callable[[str, int, int | None], None]:
    """Return a progress callback that raises at an item of a step."""

    def progress(name: str, done: int, _: int | None) -> None:
        if (name, done) == (step, count):
            raise KeyboardInterrupt

    return progress


def test_images_matches_and_geometry_are_ours(project: Path) -> None:
    database, features = project / "database.db", FeatureCollection(project / "features")
    names = {name: number for number, name in rows(database, "images", "image_id, name")}
    assert names == {"a/left.png": 1, "b/right.png": 2, "blank.png": 3, "crop.png": 4}
    assert rows(database, "keypoints", "rows, cols")[2] == (0, 6)
    first, second = features["a/left.png"], features["b/right.png"]
    expected = match(first, second)
    stored = {pair: row for pair, *row in rows(database, "two_view_geometries", "pair_id, data, config")}
    data, config = stored[pair_id(1, 2)]
    assert config == UNCALIBRATED
    np.testing.assert_array_equal(blob(data, np.uint32).reshape(-1, 2), expected.indices[expected.inliers])
    raw = dict(rows(database, "matches", "pair_id, data"))
    np.testing.assert_array_equal(blob(raw[pair_id(1, 2)], np.uint32).reshape(-1, 2), expected.indices)
    assert len(stored) == len(raw) == 6
    left, crop = (blob(data, np.float32).reshape(-1, 6) for (data,) in rows(database, "keypoints", "data")[::3])
    np.testing.assert_array_equal(left[:, :2], first.keypoints + np.float32(0.5))
    assert len(left) == len(crop) == 300


def test_the_geometry_is_in_coordinates_of_colmap(project: Path, tmp_path: Path, colmap: Colmap) -> None:
    """COLMAP verifies the same matches itself: the same ones agree, and with our fundamental matrix."""
    copy = tmp_path / "copy.db"
    shutil.copy(project / "database.db", copy)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("DELETE FROM two_view_geometries")
        connection.execute("DELETE FROM matches")
        connection.commit()
    ((raw,),) = rows(project / "database.db", f"matches WHERE pair_id = {pair_id(1, 2)}", "data")
    lines = "\n".join(f"{a} {b}" for a, b in blob(raw, np.uint32).reshape(-1, 2))
    (tmp_path / "matches.txt").write_text(f"a/left.png b/right.png\n{lines}\n\n")
    colmap(
        "matches_importer",
        database_path=copy,
        match_list_path=tmp_path / "matches.txt",
        match_type="raw",
        SiftMatching__use_gpu=0,
        SiftMatching__max_error=1.5,  # pixels, as ours
    )
    verified = []
    for path in (copy, project / "database.db"):
        ((data, f),) = rows(path, f"two_view_geometries WHERE pair_id = {pair_id(1, 2)}", "data, F")
        verified.append(({tuple(row) for row in blob(data, np.uint32).reshape(-1, 2).tolist()}, blob(f).reshape(3, 3)))
    (theirs, _), (ours, fundamental) = verified
    assert len(ours & theirs) > 0.9 * max(len(ours), len(theirs))
    keypoints = [blob(data, np.float32).reshape(-1, 6)[:, :2] for (data,) in rows(copy, "keypoints", "data")[:2]]
    pairs = np.array(sorted(ours & theirs))
    a, b = (np.column_stack([points[pairs[:, side]], np.ones(len(pairs))]) for side, points in enumerate(keypoints))
    lines_in_second = a @ fundamental.T
    distances = np.abs((b * lines_in_second).sum(1)) / np.hypot(*lines_in_second.T[:2])
    assert np.median(distances) < 0.5


def test_nothing_is_done_twice(project: Path, tmp_path: Path) -> None:
    copy = copy_project(project, tmp_path / "p")
    before = dump(copy / "database.db")
    summary = build_project(copy / "photos", copy, SETTINGS)
    assert (summary.images, summary.described, summary.matched, len(summary.verified)) == (4, 0, 0, 6)
    assert (summary.keypoints, summary.cameras) == (900, 4)
    assert dump(copy / "database.db") == before


@pytest.mark.parametrize(("step", "count"), [("describing", 2), ("importing", 0), ("matching", 0), ("matching", 3)])
def test_an_interrupted_run_continues(project: Path, tmp_path: Path, step: str, count: int) -> None:
    copy = copy_project(project, tmp_path / "p")
    (copy / "database.db").unlink()
    if step == "describing":
        shutil.rmtree(copy / "features")
    with pytest.raises(KeyboardInterrupt):
        build_project(copy / "photos", copy, SETTINGS, progress=interrupt_at(step, count))
    build_project(copy / "photos", copy, SETTINGS)
    assert dump(copy / "database.db") == dump(project / "database.db")


def test_new_and_changed_images_are_added(project: Path, tmp_path: Path) -> None:
    copy = copy_project(project, tmp_path / "p")
    camera = skimage.data.camera()[:300, :300]
    Image.fromarray(camera).save(copy / "photos" / "b/right.png")
    Image.fromarray(camera[30:, 20:]).save(copy / "photos" / "aa.png")
    old = dict(rows(copy / "database.db", "keypoints", "image_id, data"))
    with pytest.raises(DoapError, match=r"right\.png: has 300x300 pixels, but a camera of 400x300 pixels"):
        build_project(copy / "photos", copy, SETTINGS)
    Image.fromarray(camera).resize((400, 300)).save(copy / "photos" / "b/right.png")
    summary = build_project(copy / "photos", copy, SETTINGS)
    assert (summary.images, summary.described, summary.matched, len(summary.verified)) == (5, 1, 7, 10)
    new = dict(rows(copy / "database.db", "keypoints", "image_id, data"))
    assert [number for number in new if new[number] != old.get(number)] == [2, 5]
    assert (5, "aa.png") in rows(copy / "database.db", "images", "image_id, name")


def test_other_settings_are_refused_and_replaced_by_force(project: Path, tmp_path: Path) -> None:
    copy = copy_project(project, tmp_path / "p")
    before = dump(copy / "database.db")
    for settings, difference in [
        (replace(SETTINGS, match=MatchSettings(ratio=0.8)), r"ratio = None, not 0\.8"),
        (replace(SETTINGS, cameras=CameraSettings("RADIAL")), "camera_model = SIMPLE_RADIAL, not RADIAL"),
        (replace(SETTINGS, describe=DescribeSettings("doap-tiny-256b")), "features and matches of doap-tiny-128"),
    ]:
        with pytest.raises(DoapError, match=rf"database\.db: holds .*{difference}.*--force"):
            build_project(copy / "photos", copy, settings)
    assert dump(copy / "database.db") == before
    build_project(copy / "photos", copy, replace(SETTINGS, cameras=CameraSettings("RADIAL")), force=True)
    assert {model for (model,) in rows(copy / "database.db", "cameras", "model")} == {3}


def test_a_database_of_others_is_kept(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    database = make(tmp_path / "database.db", TABLES_4_2)
    before = database.read_bytes()
    with pytest.raises(DoapError, match=r"database\.db: written by another program; --database adds to it, --force"):
        build_project(tmp_path / "photos", tmp_path, TINY)
    assert database.read_bytes() == before
    assert not (tmp_path / "features").exists()
    (tmp_path / "database.db-wal").write_bytes(b"left behind")
    build_project(tmp_path / "photos", tmp_path, TINY, force=True)
    assert len(rows(database, "images")) == 4


def test_images_of_a_database_are_described(tmp_path: Path, colmap: Colmap) -> None:
    """COLMAP imports and describes images; we replace its features only if we are told to."""
    photos, database = write_photos(tmp_path / "photos"), tmp_path / "theirs.db"
    small = {"SiftExtraction__use_gpu": 0, "SiftExtraction__max_image_size": 150}
    colmap("feature_extractor", database_path=database, image_path=photos, **small)
    colmap("exhaustive_matcher", database_path=database, SiftMatching__use_gpu=0)
    before = {table: rows(database, table) for table in TABLES}
    with pytest.raises(DoapError, match=r"theirs\.db: 4 images have keypoints of another program; --force replaces"):
        import_into_database(database, photos, TINY)
    assert {table: rows(database, table) for table in TABLES} == before
    summary = import_into_database(database, photos, TINY, force=True)
    assert (summary.images, summary.matched) == (4, 6)
    assert rows(database, "cameras") == before["cameras"]
    assert rows(database, "images") == before["images"]
    assert {count for (count,) in rows(database, "keypoints", "rows")} == {60, 0}
    assert {count for (count,) in rows(database, "descriptors", "rows")} == {0}
    after = dump(database)
    assert import_into_database(database, photos, TINY, force=True).matched == 0
    assert dump(database) == after
    colmap("database_cleaner", database_path=database, type="features")
    assert import_into_database(database, photos, TINY).matched == 6


def test_a_database_without_features_is_filled(tmp_path: Path) -> None:
    photos, database = write_photos(tmp_path / "photos"), make(tmp_path / "d.db", TABLES_4_2)
    make(
        database,
        "INSERT INTO cameras VALUES (3, 0, 400, 300, NULL, 0);"
        "INSERT INTO images VALUES (9, 'a/left.png', 3), (5, 'b/right.png', 3), (7, 'gone.png', 3);",
    )
    summary = import_into_database(database, photos, TINY)
    assert (summary.images, summary.failures) == (2, [f"gone.png: in the database, but not in {photos}"])
    assert [pair for (pair,) in rows(database, "matches", "pair_id")] == [pair_id(5, 9)]
    first, second = (FeatureCollection(tmp_path / "d-features")[name] for name in ("b/right.png", "a/left.png"))
    ((data,),) = rows(database, "matches", "data")
    np.testing.assert_array_equal(blob(data, np.uint32).reshape(-1, 2), match(first, second).indices)
    make(database, "UPDATE cameras SET width = 399")
    with pytest.raises(DoapError, match="has 400x300 pixels, but a camera of 399x300 pixels in the database"):
        import_into_database(database, photos, TINY)
    with pytest.raises(DoapError, match=r"holds no image of .*d\.db, such as b/right\.png"):
        import_into_database(database, photos / "a", TINY)


def test_pixels_are_those_that_colmap_reads(tmp_path: Path, colmap: Colmap) -> None:
    """An image that EXIF turns: camera and keypoints are those of the stored pixels."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "masks").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = skimage.data.camera()[100:300, 100:400]
    Image.fromarray(photo).save(tmp_path / "photos/a.jpg", exif=exif, quality=98)
    mask = np.zeros((200, 300), np.uint8)
    mask[:, 150:] = 255
    Image.fromarray(mask).save(tmp_path / "masks/a.jpg.png")
    Image.fromarray(photo).save(tmp_path / "photos/b.png")
    settings = ProjectSettings(DescribeSettings("doap-tiny-128", max_keypoints=None))
    build_project(tmp_path / "photos", tmp_path, settings, masks=tmp_path / "masks")
    colmap(
        "feature_extractor",
        database_path=tmp_path / "theirs.db",
        image_path=tmp_path / "photos",
        SiftExtraction__use_gpu=0,
    )
    sizes = [rows(tmp_path / name, "cameras", "width, height") for name in ("database.db", "theirs.db")]
    assert sizes[0] == sizes[1] == [(300, 200)] * 2
    ours, theirs = (
        blob(rows(tmp_path / name, "keypoints", "data")[0][0], np.float32).reshape(-1, 6)
        for name in ("database.db", "theirs.db")
    )
    assert ours[:, 0].min() > 149
    distances = np.linalg.norm(ours[:, None, :2] - theirs[:, :2], axis=2)
    nearest = distances.argmin(1)
    close = distances.min(1) < 1
    assert close.mean() > 0.5
    scales = [np.hypot(*keypoints[:, [2, 4]].T) for keypoints in (ours, theirs)]
    assert 0.8 < np.median(scales[0][close] / scales[1][nearest][close]) < 1.25
    angles = [np.arctan2(keypoints[:, 4], keypoints[:, 2]) for keypoints in (ours, theirs)]
    turns = np.abs(np.exp(1j * angles[0][close]) - np.exp(1j * angles[1][nearest][close]))
    assert np.median(turns) < 0.1


def test_images_share_cameras(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(skimage.data.camera()[:100, :120]).save(tmp_path / "photos" / name)
    Image.fromarray(skimage.data.camera()[:110, :120]).save(tmp_path / "photos/b/4.png")
    expected = {"single": [1, 1, 1, 2], "per-folder": [1, 1, 2, 3], "per-image": [1, 2, 3, 4], "auto": [1, 2, 3, 4]}
    for mode, numbers in expected.items():
        settings = replace(TINY, cameras=CameraSettings(mode=mode), pairs=PairSettings("sequential", 1))  # type: ignore[arg-type]
        build_project(tmp_path / "photos", tmp_path / mode, settings)
        assert [number for (number,) in rows(tmp_path / mode / "database.db", "images", "camera_id")] == numbers


def test_binary_descriptors_and_listed_pairs(project: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("crop.png a/left.png\n")
    settings = ProjectSettings(
        DescribeSettings("doap-tiny-256b", max_keypoints=300),
        PairSettings(tmp_path / "pairs.txt"),
        MatchSettings(),
        max_error=MAX_ERROR,
    )
    summary = build_project(project / "photos", tmp_path, settings)
    assert [pair for (pair,) in rows(tmp_path / "database.db", "matches", "pair_id")] == [pair_id(1, 4)]
    assert summary.verified[0] > 100
    (tmp_path / "pairs.txt").write_text("crop.png other.png\n")
    with pytest.raises(DoapError, match=r"pairs\.txt, line 1: no features of other\.png"):
        build_project(project / "photos", tmp_path / "new", settings)
    assert not (tmp_path / "new" / "features").exists()
    with pytest.raises(DoapError, match=r"pairs pairs\.txt: unknown; .* or the Path of a file"):
        PairSettings("pairs.txt")  # type: ignore[arg-type]


def test_similar_images_are_paired(project: Path, tmp_path: Path) -> None:
    copy = copy_project(project, tmp_path / "p")
    (copy / "database.db").unlink()
    build_project(copy / "photos", copy, replace(SETTINGS, pairs=PairSettings("retrieval", 1)))
    pairs = {pair for (pair,) in rows(copy / "database.db", "matches", "pair_id")}
    assert pair_id(1, 4) in pairs
    assert len(pairs) == 2  # the image without keypoints is in none


def test_images_that_are_no_longer_given_are_not_retrieved(project: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, pairs=PairSettings("retrieval", 1))
    matched = []
    for has_more in (False, True):
        copy = copy_project(project, tmp_path / str(has_more))
        if has_more:  # the most similar image of another
            more = Path(shutil.copy(copy / "photos" / "a" / "left.png", copy / "photos" / "more.png"))
            build_project(copy / "photos", copy, SETTINGS)
            more.unlink()
        (copy / "database.db").unlink()
        build_project(copy / "photos", copy, settings)
        matched.append(rows(copy / "database.db", "matches", "pair_id"))
    assert matched[0] == matched[1]


def test_images_follow_each_other_by_their_numbers() -> None:
    names = [f"{number}.png" for number in (1, 2, 9, 10, 11, 100)]
    assert sequential_pairs(sorted(names), 1, quadratic=False) == list(pairwise(names))
    steps = sorted({names.index(b) - names.index(a) for a, b in sequential_pairs(names, 3, quadratic=True)})
    assert steps == [1, 2, 3, 4]


def test_what_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"the number of neighbours must be a whole number, not 2\.5"):
        PairSettings("sequential", 2.5)  # type: ignore[arg-type]
    with pytest.raises(DoapError, match="not a folder of images"):
        build_project(tmp_path / "missing", tmp_path, TINY)
    with pytest.raises(DoapError, match="no image in"):
        build_project(tmp_path, tmp_path / "p", TINY)
    with pytest.raises(DoapError, match=r"d\.db: no such database; doap colmap IMAGES -o PROJECT makes one"):
        import_into_database(tmp_path / "d.db", tmp_path, TINY)
    make(tmp_path / "d.db", TABLES_4_2)
    with pytest.raises(DoapError, match=r"d\.db: no image in it"):
        import_into_database(tmp_path / "d.db", tmp_path, TINY)
    (tmp_path / "bad.jpg").write_text("no image")
    with pytest.raises(DoapError, match=r"none of 1 image could be described, the first: .*bad\.jpg"):
        build_project(tmp_path, tmp_path / "p", TINY)
    assert not (tmp_path / "p" / "database.db").exists()
    (tmp_path / os.fsdecode(b"\xff.jpg")).symlink_to(tmp_path / "bad.jpg")
    (tmp_path / "bad.jpg").unlink()
    Image.fromarray(skimage.data.camera()).save(tmp_path / "bad.jpg")
    summary = build_project(tmp_path, tmp_path / "p", TINY)
    assert summary.failures == [r"\xff.jpg: COLMAP cannot read this file name; rename the file"]


RUN = """
import pickle, sys
from pathlib import Path
from doap.bridges.colmap import build_project
if __name__ == "__main__":
    settings = pickle.loads(Path(sys.argv[1]).read_bytes())
    build_project(sys.argv[2], sys.argv[3], settings, workers=1, progress=lambda *done: print(*done, flush=True))
"""


@pytest.mark.slow
def test_a_killed_run_continues(project: Path, tmp_path: Path) -> None:
    """Kill the whole group of processes at several moments: the last run makes the database of a run in peace."""
    script, settings = tmp_path / "run.py", tmp_path / "settings.pickle"
    script.write_text(RUN)
    settings.write_bytes(pickle.dumps(SETTINGS))
    command = [sys.executable, str(script), str(settings), str(project / "photos"), str(tmp_path / "killed")]
    for moment in ("describing 2", "matching 2"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout is not None
        assert any(line.startswith(moment) for line in process.stdout)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    subprocess.run(command, check=True, timeout=240, stdout=subprocess.DEVNULL)
    assert dump(tmp_path / "killed/database.db") == dump(project / "database.db")
