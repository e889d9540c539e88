"""Downloads of matches, read back by other readers than their writers."""

import csv
import dataclasses
import io
import json
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import pytest
from fastapi import FastAPI
from PIL import Image
from starlette.testclient import TestClient

import doap
from doap.app.match.downloads import ROUTE, add_downloads
from doap.app.match.examples import list_examples
from doap.app.match.folders import _copy, write_colmap_folder, write_hloc_folder
from doap.app.match.pair import MatchOptions, MethodResult, match_pictures
from doap.app.match.pictures import Picture, read_picture
from doap.app.match.session import MatchSession, SessionStore
from doap.app.settings import AppSettings
from doap.bridges.colmap.cameras import ImageCamera, read_image_camera
from doap.features import Features
from doap.images.reading import read_grey
from doap.types import no_step_progress


@pytest.fixture(scope="module")
def session() -> MatchSession:
    (a, first), (b, second) = (read_picture(str(path), AppSettings()) for path in list_examples()[0].paths)
    options = MatchOptions(("doap-tiny-256b",), 300, None, "homography", 3.0)
    results = match_pictures((a, b), (first, second), options, "cpu", no_step_progress)
    return MatchSession((a, b), options, tuple(results))


@pytest.fixture(scope="module")
def client(session: MatchSession) -> TestClient:
    store = SessionStore(1)
    store.put("visitor", session)
    app = FastAPI()
    add_downloads(app, store)
    return TestClient(app)


def download(client: TestClient, session: MatchSession, kind: str) -> bytes:
    response = client.get(f"{ROUTE}/{session.token}/0/{kind}")
    assert response.status_code == 200
    assert "doap-tiny-256b" in response.headers["content-disposition"]
    return bytes(response.content)


def test_csv_has_one_row_per_match(client: TestClient, session: MatchSession) -> None:
    rows = list(csv.DictReader(io.StringIO(download(client, session, "csv").decode())))
    result = session.results[0]
    points, _ = result.matches.points(result.first, result.second)
    assert [int(row["index_b"]) for row in rows] == result.matches.indices[:, 1].tolist()
    np.testing.assert_allclose([float(row["x_a"]) for row in rows], points[:, 0], rtol=1e-6)
    assert [row["verified"] == "1" for row in rows] == result.matches.inliers.tolist()


def test_json_is_that_of_doap_match(client: TestClient, session: MatchSession) -> None:
    report = json.loads(download(client, session, "json"))
    assert report["geometry"] == "homography"
    matrix = session.results[0].matches.matrix
    assert matrix is not None
    np.testing.assert_allclose(report["matrix"], matrix)
    assert len(report["matches"]) == len(session.results[0].matches)


def test_npz_is_read_by_the_library(client: TestClient, session: MatchSession, tmp_path: Path) -> None:
    path = tmp_path / "matches.npz"
    path.write_bytes(download(client, session, "npz"))
    np.testing.assert_array_equal(doap.Matches.load(path).indices, session.results[0].matches.indices)
    np.testing.assert_array_equal(
        np.load(path)["first_points"], session.results[0].first.keypoints[session.results[0].matches.indices[:, 0]]
    )


def test_the_colmap_folder_has_images_keypoints_and_geometry(
    client: TestClient, session: MatchSession, tmp_path: Path
) -> None:
    zipfile.ZipFile(io.BytesIO(download(client, session, "colmap"))).extractall(tmp_path)
    result = session.results[0]
    with sqlite3.connect(tmp_path / "database.db") as database:
        names = [name for (name,) in database.execute("SELECT name FROM images ORDER BY image_id")]
        (rows, columns, blob) = database.execute("SELECT rows, cols, data FROM keypoints WHERE image_id = 1").fetchone()
        (inliers, homography) = database.execute("SELECT data, H FROM two_view_geometries").fetchone()
    assert all((tmp_path / "images" / name).is_file() for name in names)
    keypoints = np.frombuffer(blob, np.float32).reshape(rows, columns)
    np.testing.assert_allclose(keypoints[:, :2], result.first.keypoints + 0.5, rtol=1e-6)
    verified = np.frombuffer(inliers, np.uint32).reshape(-1, 2)
    np.testing.assert_array_equal(verified, result.matches.indices[result.matches.inliers])
    # The homography of COLMAP maps its points as ours maps ours, half a pixel apart.
    matrix = np.frombuffer(homography, np.float64).reshape(3, 3)
    first, second = result.matches.verified_points(result.first, result.second)
    mapped = np.column_stack([first + 0.5, np.ones(len(first))]) @ matrix.T
    assert np.abs(mapped[:, :2] / mapped[:, 2:] - (second + 0.5)).max() <= session.options.threshold * 1.5


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
def test_turned_tiff_pictures_are_written_upright(tmp_path: Path, compression: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = np.arange(60 * 90, dtype=np.uint32).reshape(60, 90) % 251
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "a.tif", exif=exif, compression=compression)
    _copy(tmp_path / "a.tif", tmp_path / "b.tif")
    copy = read_grey(tmp_path / "b.tif", exif_rotation=False)
    np.testing.assert_array_equal(copy, read_grey(tmp_path / "a.tif"))
    turned = {2: pixels[:, ::-1], 3: np.rot90(pixels, 2), 4: pixels[::-1], 5: pixels.T,
              6: np.rot90(pixels, -1), 7: np.rot90(pixels, 2).T, 8: np.rot90(pixels)}  # fmt: skip
    np.testing.assert_array_equal(copy, turned[orientation])


def test_turned_tiff_pictures_keep_camera_and_focal_length(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif.update({0x0112: 6, 0x010F: "Maker", 0x0110: "Model"})
    exif.get_ifd(0x8769).update({0xA405: 28, 0x920A: 4.5})
    exif.get_ifd(0x8825)[1] = "N"
    pixels = np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.tif", exif=exif.tobytes())
    _copy(tmp_path / "a.tif", tmp_path / "b.tif")
    camera = read_image_camera(tmp_path / "b.tif")
    assert dataclasses.replace(camera, focal_length=None) == ImageCamera((200, 300), None, "Maker Model")
    assert (
        camera.focal_length
        == read_image_camera(tmp_path / "a.tif").focal_length
        == pytest.approx(28 / 43.27 * np.hypot(300, 200))
    )
    with Image.open(tmp_path / "b.tif") as copy:
        kept = copy.getexif()
        assert 0x0112 not in kept
        assert kept.get_ifd(0x8769) == {0xA405: 28, 0x920A: 4.5}
        assert kept.get_ifd(0x8825) == {1: "N"}
    pycolmap = pytest.importorskip("pycolmap")
    first, second = (pycolmap.Bitmap.read(str(tmp_path / name), as_rgb=True) for name in ("a.tif", "b.tif"))
    np.testing.assert_array_equal(first.to_array(), pixels)  # as stored
    np.testing.assert_array_equal(second.to_array(), np.rot90(pixels, -1))
    assert first.exif_focal_length() == second.exif_focal_length() > 0
    assert second.exif_camera_model() == first.exif_camera_model().replace("300x200", "200x300")


def test_turned_pictures_for_colmap_keep_their_focal_length(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif.get_ifd(0x8769)[0xA405] = 28  # mm on film of 36x24 mm
    Image.new("L", (300, 200), 90).save(tmp_path / "a.jpg", exif=exif)
    grey = read_grey(tmp_path / "a.jpg")
    picture = Picture(tmp_path / "a.jpg", "a.jpg", False, (300, 200), grey)
    features = Features(np.zeros((0, 2, 3), np.float32), np.zeros((0, 8), np.uint8), (300, 200), "none")
    matches = doap.match(features, features, geometry=None)
    result = MethodResult("none", 8, 1.0, features, features, matches, matches, {})
    (tmp_path / "c").mkdir()
    write_colmap_folder(MatchSession((picture, picture), MatchOptions(("none",)), (result,)), result, tmp_path / "c")
    copy = tmp_path / "c" / "images" / "first-a.jpg"
    np.testing.assert_array_equal(read_grey(copy), grey)
    assert read_image_camera(copy) == dataclasses.replace(read_image_camera(tmp_path / "a.jpg"), size=(200, 300))
    assert read_image_camera(copy).focal_length == pytest.approx(28 / 43.27 * np.hypot(300, 200))


def test_the_hloc_folder_has_features_matches_and_pairs(
    client: TestClient, session: MatchSession, tmp_path: Path
) -> None:
    import h5py

    zipfile.ZipFile(io.BytesIO(download(client, session, "hloc"))).extractall(tmp_path)
    (pairs,) = tmp_path.glob("pairs-*.txt")
    first, second = pairs.read_text().split()
    with h5py.File(next(tmp_path.glob("*_matches-*.h5"))) as file:
        actual = file[f"{first}/{second}"]["matches0"][()]
    expected = np.full(len(session.results[0].first), -1)
    expected[session.results[0].matches.indices[:, 0]] = session.results[0].matches.indices[:, 1]
    np.testing.assert_array_equal(actual, expected)


def test_the_hloc_folder_has_no_spaces_in_names(session: MatchSession, tmp_path: Path) -> None:
    for name, parent in (("pairs", "my photo.jpg"), ("same", "my_photo.jpg")):
        paths = tmp_path / "a" / "my photo.jpg", tmp_path / "b" / parent
        pictures = [dataclasses.replace(one, path=path) for one, path in zip(session.pictures, paths, strict=True)]
        renamed = dataclasses.replace(session, pictures=(pictures[0], pictures[1]))
        (tmp_path / name).mkdir()
        write_hloc_folder(renamed, session.results[0], tmp_path / name)
        (pairs,) = (tmp_path / name).glob("pairs-*.txt")
        assert pairs.read_text() == "first-my_photo.jpg second-my_photo.jpg\n"


@pytest.mark.parametrize("path", ["unknown/0/csv", "{token}/1/csv", "{token}/0/exe", "{token}/-1/csv"])
def test_other_addresses_are_refused_in_one_line(client: TestClient, session: MatchSession, path: str) -> None:
    response = client.get(f"{ROUTE}/{path.format(token=session.token)}")
    assert response.status_code == 404
    assert len(response.text.splitlines()) == 1
