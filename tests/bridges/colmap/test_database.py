"""Databases as COLMAP reads and writes them: compared with the `colmap` program where it is installed."""

import itertools
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import skimage
from PIL import Image

from bridges.colmap.conftest import Colmap
from doap.bridges.colmap import ProjectSettings
from doap.bridges.colmap.cameras import MODELS, Camera, CameraSettings, new_camera, read_image_camera
from doap.bridges.colmap.database import create_database, keypoint_blob, open_database, pair_id
from doap.bridges.colmap.schema import MAX_IMAGES, NEW_VERSION
from doap.bridges.colmap.two_view import (
    CALIBRATED,
    DEGENERATE,
    PLANAR_OR_PANORAMIC,
    UNCALIBRATED,
    TwoViewGeometry,
    estimate_geometry,
    quaternion,
)
from doap.choices import CAMERA_MODELS
from doap.errors import DoapError
from doap.images.frames import frames_from_columns

TABLES = ("cameras", "images", "keypoints", "descriptors", "matches", "two_view_geometries")
CAMERA = Camera(2, 640, 480, (700.0, 320.0, 240.0, 0.0), False)

# The tables that COLMAP 4.2.1 makes, without indices.
TABLES_4_2 = """
CREATE TABLE rigs (rig_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, ref_sensor_id INTEGER NOT NULL,
    ref_sensor_type INTEGER NOT NULL);
CREATE TABLE rig_sensors (rig_id INTEGER NOT NULL, sensor_id INTEGER NOT NULL, sensor_type INTEGER NOT NULL,
    sensor_from_rig BLOB);
CREATE TABLE cameras (camera_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, model INTEGER NOT NULL,
    width INTEGER NOT NULL, height INTEGER NOT NULL, params BLOB, prior_focal_length INTEGER NOT NULL);
CREATE TABLE frames (frame_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, rig_id INTEGER NOT NULL);
CREATE TABLE frame_data (frame_id INTEGER NOT NULL, data_id INTEGER NOT NULL, sensor_id INTEGER NOT NULL,
    sensor_type INTEGER NOT NULL);
CREATE TABLE images (image_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, name TEXT NOT NULL UNIQUE,
    camera_id INTEGER NOT NULL);
CREATE TABLE pose_priors (pose_prior_id INTEGER PRIMARY KEY NOT NULL, corr_data_id INTEGER NOT NULL,
    corr_sensor_id INTEGER NOT NULL, corr_sensor_type INTEGER NOT NULL, position BLOB, position_covariance BLOB,
    gravity BLOB, coordinate_system INTEGER NOT NULL);
CREATE TABLE keypoints (image_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB);
CREATE TABLE descriptors (image_id INTEGER PRIMARY KEY NOT NULL, type INTEGER NOT NULL, rows INTEGER NOT NULL,
    cols INTEGER NOT NULL, data BLOB);
CREATE TABLE matches (pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB);
CREATE TABLE two_view_geometries (pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL,
    data BLOB, config INTEGER NOT NULL, F BLOB, E BLOB, H BLOB, qvec BLOB, tvec BLOB, camera1 BLOB, camera2 BLOB);
PRAGMA user_version = 4020100;
"""


def rows(path: Path, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """Return the rows of a table."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {columns} FROM {table}").fetchall()


def nulls(table: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows with NULL for empty blobs, as COLMAP writes them."""
    return [tuple(None if value == b"" else value for value in row) for row in table]


def blob(value: bytes, dtype: type[np.generic] = np.float64) -> np.ndarray[Any, np.dtype[Any]]:
    return np.frombuffer(value, dtype)


def make(path: Path, script: str) -> Path:
    """Create a database by SQL."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def test_colmap_reads_all_that_is_written(project: Path, tmp_path: Path, colmap: Colmap) -> None:
    """COLMAP merges our database with an empty one: what it has read, it writes."""
    colmap("database_creator", database_path=tmp_path / "empty.db")
    colmap(
        "database_merger",
        database_path1=project / "database.db",
        database_path2=tmp_path / "empty.db",
        merged_database_path=tmp_path / "merged.db",
    )
    ours, merged = project / "database.db", tmp_path / "merged.db"
    for table in ("cameras", "images", "keypoints", "matches WHERE rows > 0"):
        assert nulls(rows(merged, table)) == nulls(rows(ours, table)) != []
    assert rows(merged, "descriptors", "image_id, rows, cols") == [(number, 0, 128) for number in range(1, 5)]
    columns = "pair_id, rows, cols, data, config, F, E, H, qvec, tvec"
    read, written = (rows(path, "two_view_geometries WHERE rows > 0", columns) for path in (merged, ours))
    for theirs, mine in zip(read, written, strict=True):
        assert theirs[:5] == mine[:5]
        for a, b in zip(theirs[5:], mine[5:], strict=True):
            assert a == b or (b is None and not blob(a).any())


def test_pycolmap_reads_what_is_written(project: Path, tmp_path: Path) -> None:
    pycolmap = pytest.importorskip("pycolmap")
    copy = tmp_path / "copy.db"
    copy.write_bytes((project / "database.db").read_bytes())
    with pycolmap.Database.open(copy) as database:
        images = {image.name: image.image_id for image in database.read_all_images()}
        keypoints = np.asarray(database.read_keypoints(images["a/left.png"]))
        matches = np.asarray(database.read_matches(1, 2))
        geometry = database.read_two_view_geometry(1, 2)
    assert images == {name: number for number, name in rows(copy, "images", "image_id, name")}
    tables = ((keypoints, "keypoints WHERE image_id = 1"), (matches, f"matches WHERE pair_id = {pair_id(1, 2)}"))
    for read, table in tables:
        ((data,),) = rows(project / "database.db", table, "data")
        np.testing.assert_array_equal(read.ravel(), blob(data, np.float32 if read.dtype.kind == "f" else np.uint32))
    ((count, data),) = rows(copy, f"two_view_geometries WHERE pair_id = {pair_id(1, 2)}", "rows, F")
    assert len(geometry.inlier_matches) == count
    np.testing.assert_array_equal(np.asarray(geometry.F).ravel(), blob(data))
    assert {kind for (kind,) in rows(copy, "descriptors", "rows")} == {0}


def test_colmap_finds_nothing_to_do(project: Path, tmp_path: Path, colmap: Colmap) -> None:
    """COLMAP's extractor and matcher neither replace our features nor add wrong matches."""
    copy = tmp_path / "copy.db"
    copy.write_bytes((project / "database.db").read_bytes())
    arguments = {"database_path": copy, "image_path": project / "photos"}
    colmap("feature_extractor", **arguments, SiftExtraction__use_gpu=0)
    colmap("exhaustive_matcher", database_path=copy, SiftMatching__use_gpu=0)
    for table in TABLES:
        assert rows(copy, table) == rows(project / "database.db", table)


def test_keypoints_are_those_of_colmap(tmp_path: Path, colmap: Colmap) -> None:
    """COLMAP imports x, y, scale and orientation; the same frames give the same affine shapes."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "texts").mkdir()
    Image.fromarray(skimage.data.camera()).save(tmp_path / "photos/a.png")
    columns = np.array([[20.25, 30.5, 3.0, 0.0], [100.0, 50.0, 7.5, 40.0], [99.5, 300.0, 2.0, 200.0]])
    lines = [f"{x + 0.5} {y + 0.5} {scale} {np.radians(angle)} {'0 ' * 128}" for x, y, scale, angle in columns]
    (tmp_path / "texts/a.png.txt").write_text("\n".join(["3 128", *lines]) + "\n")
    colmap(
        "feature_importer",
        database_path=tmp_path / "d.db",
        image_path=tmp_path / "photos",
        import_path=tmp_path / "texts",
    )
    ((count, width, data),) = rows(tmp_path / "d.db", "keypoints", "rows, cols, data")
    expected = blob(data, np.float32).reshape(count, width)
    np.testing.assert_allclose(keypoint_blob(frames_from_columns(columns)), expected, rtol=1e-5, atol=1e-5)


def exif(**tags: object) -> Image.Exif:
    """Return EXIF data with tags of the main directory and of the photo."""
    numbers = {"make": 0x010F, "model": 0x0110, "orientation": 0x0112}
    photo = {"film": 0xA405, "focal": 0x920A, "pixels": 0xA002, "resolution": 0xA20E, "unit": 0xA210}
    data = Image.Exif()
    for name, value in tags.items():
        if name in numbers:
            data[numbers[name]] = value
        else:
            data.get_ifd(0x8769)[photo[name]] = value
    return data


EXIF = {
    "none.jpg": exif(),
    "film.jpg": exif(make="Maker", model="One", film=28),
    "turned.jpg": exif(make="Maker", model="Three", film=50, orientation=6),
}


@pytest.mark.parametrize("settings", [CameraSettings(), CameraSettings("OPENCV"), CameraSettings("FOV")])
@pytest.mark.parametrize("size", [(80, 60), (96, 54), (60, 90)])
def test_cameras_are_those_of_colmap(tmp_path: Path, settings: CameraSettings, size: tuple[int, int]) -> None:
    pycolmap = pytest.importorskip("pycolmap")
    for name, data in EXIF.items():
        path = tmp_path / name
        Image.new("RGB", size).save(path, exif=data)
        options = pycolmap.ImageReaderOptions(camera_model=settings.model)
        expected = pycolmap.infer_camera_from_image(path, options)
        camera = new_camera(read_image_camera(path), settings)
        assert (camera.model, camera.width, camera.height) == (int(expected.model), expected.width, expected.height)
        assert camera.has_prior_focal == expected.has_prior_focal_length
        np.testing.assert_allclose(camera.params, expected.params, rtol=1e-6)


def test_a_35_mm_equivalent_is_related_to_the_diagonal(tmp_path: Path) -> None:
    Image.new("L", (360, 240)).save(tmp_path / "a.jpg", exif=exif(film=50))
    assert read_image_camera(tmp_path / "a.jpg").focal_length == pytest.approx(500, rel=1e-3)  # film of 36x24 mm
    Image.new("L", (400, 300)).save(tmp_path / "a.jpg", exif=exif(film=50))
    assert read_image_camera(tmp_path / "a.jpg").focal_length == pytest.approx(500 * 50 / 43.27, rel=1e-9)


@pytest.mark.parametrize(("unit", "expected"), [(2, 8 * 3000 / 2000 / 25.4), (3, 8 * 3000 / 2000 / 10), (1, None)])
def test_the_resolution_of_the_sensor_gives_the_focal_length(tmp_path: Path, unit: int, expected: float | None) -> None:
    data = exif(make="Maker", model="Two", focal=8.0, pixels=2000, resolution=3000.0, unit=unit)
    Image.fromarray(np.full((60, 80, 3), 90, np.uint8)).save(tmp_path / "a.jpg", exif=data)
    focal = read_image_camera(tmp_path / "a.jpg").focal_length
    assert focal == (expected if expected is None else pytest.approx(expected * 80))


def test_given_parameters_are_those_of_colmap(tmp_path: Path, colmap: Colmap) -> None:
    (tmp_path / "photos").mkdir()
    Image.fromarray(np.full((60, 80), 90, np.uint8)).save(tmp_path / "photos/a.png")
    colmap(
        "feature_extractor",
        database_path=tmp_path / "d.db",
        image_path=tmp_path / "photos",
        ImageReader__camera_model="PINHOLE",
        ImageReader__camera_params="70,71,40,30",
        SiftExtraction__use_gpu=0,
    )
    ((_, model, width, height, params, prior),) = rows(tmp_path / "d.db", "cameras")
    settings = CameraSettings("PINHOLE", (70.0, 71.0, 40.0, 30.0))
    camera = new_camera(read_image_camera(tmp_path / "photos/a.png"), settings)
    assert (camera.model, camera.width, camera.height, camera.has_prior_focal) == (model, width, height, bool(prior))
    assert camera.params == tuple(blob(params))


def test_the_tables_are_those_of_colmap_3_8(tmp_path: Path, colmap: Colmap) -> None:
    create_database(tmp_path / "ours.db", {})
    colmap("database_creator", database_path=tmp_path / "theirs.db")
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        if connection.execute("PRAGMA user_version").fetchone() != (NEW_VERSION,):
            pytest.skip("the colmap program is not of version 3.8")
    for table in TABLES:
        described = [rows(path, f"pragma_table_info('{table}')") for path in tmp_path.glob("*.db")]
        assert described[0] == described[1]


def test_rows_go_where_4_2_expects_them(tmp_path: Path) -> None:
    path = make(tmp_path / "d.db", TABLES_4_2)
    make(path, "INSERT INTO rigs VALUES (7, 5, 0); INSERT INTO cameras VALUES (5, 0, 9, 9, NULL, 0);")
    with open_database(path) as database, database.transaction():
        database.write_settings({})
        camera = database.add_camera(CAMERA)
        image = database.add_image("a.png", camera)
        database.write_keypoints(image.number, np.zeros((2, 2, 3), np.float32), "stamp")
    assert camera == 6
    assert rows(path, "rigs") == [(7, 5, 0), (8, camera, 0)]
    assert rows(path, "frames") == [(1, 8)]
    assert rows(path, "frame_data") == [(1, image.number, camera, 0)]
    assert rows(path, "descriptors", "type, rows, cols, data") == [(-1, 0, 128, b"")]


def test_without_rigs_colmap_makes_them_all(tmp_path: Path) -> None:
    path = make(tmp_path / "d.db", TABLES_4_2)
    with open_database(path) as database, database.transaction():
        database.add_image("a.png", database.add_camera(CAMERA))
    assert rows(path, "rigs") == rows(path, "frames") == rows(path, "frame_data") == []


def test_a_pair_is_numbered_as_in_colmap() -> None:
    assert pair_id(1, 2) == 2147483649
    assert divmod(pair_id(12, 345), MAX_IMAGES) == (12, 345)


def test_features_are_removed_with_their_pairs_only(tmp_path: Path) -> None:
    create_database(tmp_path / "d.db", {})
    with open_database(tmp_path / "d.db") as database, database.transaction():
        camera = database.add_camera(CAMERA)
        numbers = [database.add_image(f"{index}.png", camera).number for index in range(4)]
        nothing = TwoViewGeometry(DEGENERATE, np.zeros(1, bool))
        for number in numbers:
            database.write_keypoints(number, np.zeros((1, 2, 3), np.float32), "stamp")
        for first, second in itertools.combinations(numbers, 2):
            database.write_pair(pair_id(first, second), np.zeros((1, 2), np.int64), nothing)
        database.remove_features([numbers[1], numbers[3]])
        assert database.described() == set(database.stamps()) == {numbers[0], numbers[2]}
        assert database.matched() == {pair_id(numbers[0], numbers[2])}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("CREATE TABLE other (x)", "not a database of COLMAP 3.8 to 4.2 (no cameras.camera_id)"),
        (TABLES_4_2 + "DROP TABLE matches", "not a database of COLMAP 3.8 to 4.2 (no matches.cols)"),
        (TABLES_4_2 + "PRAGMA user_version = 4030000", "written by a COLMAP after 4.2 (version 4030000"),
        (TABLES_4_2.replace("name TEXT", "lens INTEGER NOT NULL, name TEXT"), "an unknown COLMAP (images.lens)"),
    ],
)
def test_other_databases_are_refused(tmp_path: Path, script: str, message: str) -> None:
    path = make(tmp_path / "d.db", script)
    with pytest.raises(DoapError) as raised, open_database(path):
        pass
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.db").write_bytes(b"not a database " * 100)
    with (
        pytest.raises(DoapError, match=r"d\.db: not a database of COLMAP; name another file"),
        open_database(tmp_path / "d.db"),
    ):
        pass
    with pytest.raises(DoapError, match="not a file of a database"), open_database(tmp_path / "missing.db"):
        pass


def test_a_locked_database_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_database(tmp_path / "d.db", {})
    monkeypatch.setattr("doap.bridges.colmap.database.LOCK_SECONDS", 0.05)
    with closing(sqlite3.connect(tmp_path / "d.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DoapError, match="another program is writing it"), open_database(tmp_path / "d.db") as mine:
            mine.images()


@pytest.mark.parametrize(
    ("pragma", "message"),
    [
        ("max_page_count = 1", r"d\.db: cannot be written \(database or disk is full\); .*: make room and run"),
        ("query_only = 1", r"d\.db: cannot be written \(attempt to write a readonly database\); allow writing to it"),
    ],
)
def test_a_database_that_cannot_be_written_is_one_line(tmp_path: Path, pragma: str, message: str) -> None:
    create_database(tmp_path / "d.db", {"model": "a"})
    with pytest.raises(DoapError, match=message), open_database(tmp_path / "d.db") as database:
        database.connection.execute(f"PRAGMA {pragma}")
        with database.transaction():
            database.write_settings({"model": "b" * 100_000})
    with open_database(tmp_path / "d.db") as database:
        assert database.settings() == {"model": "a"}


def scene(count: int = 200, planar: bool = False) -> tuple[Any, Any, Any, Any, Any]:
    """Return points of a scene in two views, the intrinsics, and the pose of the second camera."""
    random = np.random.default_rng(0)
    points = random.uniform((-2, -2, 5), (2, 2, 9), (count, 3))
    if planar:
        points[:, 2] = 6 + 0.2 * points[:, 0]
    rotation = cv2.Rodrigues(np.array([0.02, -0.2, 0.05]))[0]
    translation = np.array([1.0, 0.1, 0.05])
    camera = np.array([[600.0, 0, 320], [0, 600, 240], [0, 0, 1]])
    views = []
    for rays in (points, points @ rotation.T + translation):
        image = rays @ camera.T
        views.append(image[:, :2] / image[:, 2:] + random.normal(0, 0.2, (count, 2)))
    return *views, camera, rotation, translation / np.linalg.norm(translation)


def test_a_known_camera_gives_the_pose() -> None:
    first, second, camera, rotation, translation = scene()
    geometry = estimate_geometry(first, second, (480, 640), 1.5, (camera, camera))
    assert geometry.config == CALIBRATED
    assert geometry.inliers.mean() > 0.95
    assert geometry.rotation is not None
    assert geometry.translation is not None
    np.testing.assert_allclose(geometry.rotation, quaternion(rotation), atol=0.01)
    np.testing.assert_allclose(geometry.translation, translation, atol=0.03)
    w, x, y, z = geometry.rotation
    np.testing.assert_allclose(rotation[2, 1] - rotation[1, 2], 4 * w * x, atol=0.02)
    assert w**2 + x**2 + y**2 + z**2 == pytest.approx(1)


def test_other_kinds_of_geometry() -> None:
    first, second, camera, *_ = scene()
    assert estimate_geometry(first, second, (480, 640), 1.5, None).config == UNCALIBRATED
    wrong = camera * np.array([[3.0], [3.0], [1.0]])
    assert estimate_geometry(first, second, (480, 640), 1.5, (camera, wrong)).config == UNCALIBRATED
    flat = scene(planar=True)
    planar = estimate_geometry(flat[0], flat[1], (480, 640), 1.5, None)
    assert planar.config == PLANAR_OR_PANORAMIC
    assert planar.rotation is None
    none = estimate_geometry(first, np.random.default_rng(1).permutation(second), (480, 640), 1.5, None)
    assert (none.config, none.inliers.sum()) == (DEGENERATE, 0)


def test_settings_take_numbers_of_numpy() -> None:
    params: Any = np.array([900, 910, 400, 300])
    cameras = CameraSettings("PINHOLE", params), CameraSettings("PINHOLE", (900.0, 910.0, 400.0, 300.0))
    assert cameras[0].identity() == cameras[1].identity()
    numbers: dict[str, Any] = {"max_error": np.float32(0.25), "min_share": np.float32(0.5), "refine": np.False_}
    plain = ProjectSettings(max_error=0.25, min_share=0.5, refine=False)
    assert json.dumps(ProjectSettings(**numbers).identity()) == json.dumps(plain.identity())


def test_parameters_that_do_not_fit_the_model_are_refused() -> None:
    for wrong in ("1,2,3,4", ("a", 2.0, 3.0, 4.0), 5):
        with pytest.raises(DoapError, match="camera parameters must be"):
            CameraSettings("PINHOLE", wrong)  # type: ignore[arg-type]
    with pytest.raises(DoapError, match="the largest error must be a number, not 'a'"):
        ProjectSettings(max_error="a")  # type: ignore[arg-type]
    with pytest.raises(DoapError, match="camera model PINHOLE has 4 parameters, not 3"):
        CameraSettings("PINHOLE", (1.0, 2.0, 3.0))
    with pytest.raises(DoapError, match="camera model FISH: unknown"):
        CameraSettings("FISH")
    for params in ((float("nan"), 2.0, 3.0, 4.0), (1.0, 0.0, 3.0, 4.0)):
        with pytest.raises(DoapError, match="must be finite, with focal lengths above 0"):
            CameraSettings("PINHOLE", params)
    assert MODELS[CAMERA_MODELS.index("FULL_OPENCV")].size == 12
    assert len(MODELS) == len(CAMERA_MODELS)
