"""Refined keypoints: closer to the truth, and the same however a project was made."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import skimage
from numpy.typing import NDArray
from PIL import Image

from bridges.colmap.conftest import SETTINGS, write_photos
from bridges.colmap.test_database import TABLES_4_2, blob, make, rows
from bridges.colmap.test_project import dump, interrupt_at
from doap.bridges.colmap import ProjectSettings, build_project, import_into_database
from doap.bridges.colmap.database import open_database, pair_id
from doap.bridges.colmap.filling import add_images
from doap.folders import DescribeSettings, find_images

pytestmark = pytest.mark.usefixtures("in_process")

REFINED = replace(SETTINGS, refine=True)
WARPS = [
    np.array([[0.92, 0.12, 20.3], [-0.1, 0.95, 30.6], [0, 0, 1]]),
    np.array([[1.04, -0.2, 40.7], [0.17, 0.9, -9.2], [1e-4, 5e-5, 1]]),
]


@pytest.fixture(scope="module")
def warped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photo and two views of it by known homographies, with noise."""
    folder = tmp_path_factory.mktemp("warped")
    photo = skimage.data.camera()[:400, :480]
    random = np.random.default_rng(0)
    views = [photo, *(cv2.warpPerspective(photo, warp, (480, 400), flags=cv2.INTER_AREA) for warp in WARPS)]
    for number, view in enumerate(views):
        noisy = view + random.normal(0, 2, view.shape)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.png")
    return folder


def matched_points(database: Path, second: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return verified points of the first image and another, with (0, 0) in the centre of the first pixel."""
    keypoints = dict(rows(database, "keypoints", "image_id, data"))
    ((data,),) = rows(database, f"two_view_geometries WHERE pair_id = {pair_id(1, second)}", "data")
    matches = blob(data, np.uint32).reshape(-1, 2)
    a, b = (blob(keypoints[number], np.float32).reshape(-1, 6)[:, :2].astype(float) - 0.5 for number in (1, second))
    return a[matches[:, 0]], b[matches[:, 1]]


def test_keypoints_become_more_accurate(warped: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, describe=DescribeSettings("doap-tiny-128", max_keypoints=600))
    errors, counts = [], []
    for refine in (False, True):
        project = tmp_path / str(refine)
        build_project(warped, project, replace(settings, refine=refine))
        points = [matched_points(project / "database.db", number) for number in (2, 3)]
        errors.append(
            [
                np.linalg.norm(cv2.perspectiveTransform(a[None], warp)[0] - b, axis=1)
                for (a, b), warp in zip(points, WARPS, strict=True)
            ]
        )
        counts.append([len(a) for a, _ in points])
    for before, after in zip(*errors, strict=True):
        assert np.median(after) < 0.7 * np.median(before)
        assert np.percentile(after, 90) < 0.7 * np.percentile(before, 90)
    assert all(after > 0.7 * before for before, after in zip(*counts, strict=True))


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory, in_process: None) -> Path:  # noqa: ARG001 - makes it faster
    """A refined project; do not change it."""
    folder = tmp_path_factory.mktemp("refined")
    build_project(write_photos(folder / "photos"), folder, REFINED)
    return folder


def test_keypoints_stay_what_they_are(refined: Path, project: Path) -> None:
    """As many, with the same shapes, moved by little; the matches before verification are the same."""
    stored = (rows(path / "database.db", "keypoints", "image_id, data") for path in (project, refined))
    before, after = ({number: blob(data, np.float32).reshape(-1, 6) for number, data in some} for some in stored)
    moved = 0
    for number, keypoints in after.items():
        np.testing.assert_array_equal(keypoints[:, 2:], before[number][:, 2:])
        distances = np.linalg.norm(keypoints[:, :2] - before[number][:, :2], axis=1)
        scales = np.linalg.norm(keypoints[:, 2:4], axis=1)
        assert (distances <= scales).all()
        moved += (distances > 0).sum()
    assert moved > 100
    assert rows(refined / "database.db", "matches", "*") == rows(project / "database.db", "matches", "*")


@pytest.mark.parametrize("count", [0, 2, 5])
def test_an_interrupted_refinement_continues(refined: Path, tmp_path: Path, count: int) -> None:
    write_photos(tmp_path / "photos")
    with pytest.raises(KeyboardInterrupt):
        build_project(tmp_path / "photos", tmp_path, REFINED, progress=interrupt_at("refining", count))
    assert not list(tmp_path.glob(".patches*"))
    build_project(tmp_path / "photos", tmp_path, REFINED)
    for table in ("keypoints", "matches", "two_view_geometries"):
        assert rows(tmp_path / "database.db", table, "*") == rows(refined / "database.db", table, "*")


def test_images_that_are_added_give_what_all_at_once_give(refined: Path, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    crop = (photos / "crop.png").rename(tmp_path / "crop.png")
    build_project(photos, tmp_path, REFINED)
    before = dump(tmp_path / "database.db")
    build_project(photos, tmp_path, REFINED)
    assert dump(tmp_path / "database.db") == before
    crop.rename(photos / "crop.png")
    build_project(photos, tmp_path, REFINED)
    for table in ("keypoints", "matches", "two_view_geometries"):
        assert rows(tmp_path / "database.db", table, "*") == rows(refined / "database.db", table, "*")


CONTENT = ("keypoints", "matches", "two_view_geometries")


def import_photos(folder: Path, settings: ProjectSettings) -> Path:
    """Import the features of photos into a database of COLMAP that has their images."""
    photos = write_photos(folder / "photos")
    database = make(folder / "theirs.db", TABLES_4_2)
    with open_database(database) as opened:
        add_images(opened, find_images([photos]), settings.cameras)
    import_into_database(database, photos, settings)
    return database


def test_other_settings_by_force_give_what_they_give_at_once(tmp_path: Path) -> None:
    other = replace(REFINED, max_error=2 * REFINED.max_error)
    expected = import_photos(tmp_path / "direct", other)
    database = import_photos(tmp_path / "changed", REFINED)
    import_into_database(database, tmp_path / "changed" / "photos", other, force=True)
    for table in CONTENT:
        assert rows(database, table, "*") == rows(expected, table, "*")


@pytest.mark.parametrize("tables", [CONTENT[1:], CONTENT[2:], (*CONTENT, "descriptors")])
def test_what_was_removed_from_a_database_is_refined_again(tmp_path: Path, tables: tuple[str, ...]) -> None:
    database = import_photos(tmp_path, REFINED)
    before = {table: rows(database, table, "*") for table in CONTENT}
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in tables:  # as `colmap database_cleaner`
            connection.execute(f"DELETE FROM {table}")
    import_into_database(database, tmp_path / "photos", REFINED)
    for table in CONTENT:
        assert rows(database, table, "*") == before[table]


def test_keypoints_that_lose_their_matches_are_as_described(tmp_path: Path, project: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    build_project(photos, tmp_path, REFINED)
    for name in ("b/right.png", "crop.png"):
        Image.fromarray(np.full((60, 80), 90, np.uint8)).resize(Image.open(photos / name).size).save(photos / name)
    build_project(photos, tmp_path, REFINED)
    left = [rows(path / "database.db", "keypoints WHERE image_id = 1", "data") for path in (tmp_path, project)]
    assert left[0] == left[1]


def test_a_project_without_a_match_is_left_alone(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(2):
        Image.fromarray(np.full((60, 80), 90 + number, np.uint8)).save(photos / f"{number}.png")
    summary = build_project(photos, tmp_path, REFINED)
    assert summary.verified == [0]
