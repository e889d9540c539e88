"""Reading and writing of COLMAP's databases by SQLite."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.bridges.colmap.cameras import Camera
from doap.bridges.colmap.schema import (
    GEOMETRY_COLUMNS,
    HIDDEN_TABLE,
    MAX_IMAGES,
    OWN_TABLE,
    check_tables,
    create_tables,
)
from doap.bridges.colmap.two_view import DEGENERATE, PIXEL_CENTRE, Intrinsics, TwoViewGeometry
from doap.errors import DoapError
from doap.files import atomic_file
from doap.folders.settings import Identity
from doap.parsing.json_files import parse_json
from doap.types import Frames

SIFT_LENGTH = 128
UNDEFINED_TYPE = -1  # of descriptors, since 4.0
CAMERA_SENSOR = 0  # type of a sensor in rigs and frames
LOCK_SECONDS = 10.0  # to wait for another process that writes

NO_ROOM = "cannot be written ({error}); what is done is kept: make room and run the command again"
NO_PERMISSION = "cannot be written ({error}); allow writing to it and to its folder, or name another"
MESSAGES = {  # by SQLite's code of an error
    sqlite3.SQLITE_BUSY: "another program is writing it; close that, for example COLMAP, and start again",
    sqlite3.SQLITE_NOTADB: "not a database of COLMAP; name another file",
    sqlite3.SQLITE_FULL: NO_ROOM,
    sqlite3.SQLITE_IOERR: NO_ROOM,
    sqlite3.SQLITE_READONLY: NO_PERMISSION,
    sqlite3.SQLITE_CANTOPEN: NO_PERMISSION,
    sqlite3.SQLITE_PERM: NO_PERMISSION,
}
OTHER_MESSAGE = "cannot be read or written ({error}); replace it by a copy, or name another"


@dataclass(frozen=True)
class StoredImage:
    """An image of a database."""

    number: int
    camera: int


def pair_id(first: int, second: int) -> int:
    """Return COLMAP's number of a pair of images, whose own numbers must ascend."""
    return MAX_IMAGES * first + second


def pair_images(pair: int) -> tuple[int, int]:
    """Return the numbers of the images of a pair."""
    return divmod(pair, MAX_IMAGES)


def pair_intrinsics(
    cameras: Mapping[int, Camera], first: StoredImage, second: StoredImage, *, assumed: bool = False
) -> Intrinsics | None:
    """Return the intrinsics of two images; None if a focal length is not known, nor may be assumed."""
    a, b = (cameras[image.camera].intrinsics(assumed=assumed) for image in (first, second))
    return None if a is None or b is None else (a, b)


def keypoint_blob(frames: Frames) -> NDArray[np.float32]:
    """Return the keypoints of frames as COLMAP's, (N, 6): x, y, a11, a12, a21, a22.

    The matrix of a frame is that of COLMAP's affine shape: its columns are the axes, and the first points along the
    orientation.
    """
    centres = frames[:, :, 2] + np.float32(PIXEL_CENTRE)
    return np.ascontiguousarray(np.hstack([centres, frames[:, :, :2].reshape(-1, 4)]), np.float32)


def create_database(path: Path, settings: Identity) -> None:
    """Create a database without images for features of some settings, and replace one that exists."""
    with atomic_file(path) as temporary, database_errors(path):
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            create_tables(connection)
            Database(connection, check_tables(connection, path)).write_settings(settings)
        for suffix in ("-wal", "-shm", "-journal"):  # else SQLite would apply them to the new database
            path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def open_database(path: Path) -> Iterator["Database"]:
    """Open a database that exists.

    Raises:
        DoapError: If there is none, it is not one of COLMAP 3.8 to 4.2, or it is locked or cannot be written.
    """
    if not path.is_file():
        raise DoapError(f"{path}: not a file of a database; name another")
    with database_errors(path), closing(sqlite3.connect(path, LOCK_SECONDS, isolation_level=None)) as connection:
        yield Database(connection, check_tables(connection, path))


@contextmanager
def database_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into one line."""
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: damaged text
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the part of extended codes
        raise DoapError(f"{path}: {MESSAGES.get(code, OTHER_MESSAGE).format(error=error)}") from error


@contextmanager
def _damage_errors() -> Iterator[None]:
    """Turn errors of values that are not what their columns promise into those of SQLite."""
    try:
        yield
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise sqlite3.DatabaseError(f"damaged: {error}") from error


class Database:
    """A database of COLMAP that is open."""

    def __init__(self, connection: sqlite3.Connection, columns: dict[str, set[str]]) -> None:
        self.connection = connection
        self.has_descriptor_type = "type" in columns["descriptors"]
        # COLMAP makes rigs and frames itself if there are none at all.
        self.has_rigs = "rigs" in columns and self._count("rigs") > 0
        self.has_own_table = "doap" in columns
        self.has_hidden_table = "doap_hidden" in columns

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all of the block or, if it fails or the process is killed, nothing."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:  # SQLite itself has ended it if the disk is full
                self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def images(self) -> dict[str, StoredImage]:
        """Return the images by their names, in the order of their numbers."""
        rows = self.connection.execute("SELECT name, image_id, camera_id FROM images ORDER BY image_id")
        return {name: StoredImage(number, camera) for name, number, camera in rows}

    def cameras(self) -> dict[int, Camera]:
        """Return the cameras by their numbers."""
        rows = self.connection.execute(
            "SELECT camera_id, model, width, height, params, prior_focal_length FROM cameras"
        )
        with _damage_errors():
            return {
                number: Camera(model, width, height, tuple(np.frombuffer(params or b"").tolist()), bool(prior))
                for number, model, width, height, params, prior in rows
            }

    def add_camera(self, camera: Camera) -> int:
        """Add a camera and return its number."""
        params = np.array(camera.params, np.float64).tobytes()
        row = (camera.model, camera.width, camera.height, params, int(camera.has_prior_focal))
        number = self._insert("cameras", "model, width, height, params, prior_focal_length", row)
        if self.has_rigs:
            self._insert("rigs", "ref_sensor_id, ref_sensor_type", (number, CAMERA_SENSOR))
        return number

    def add_image(self, name: str, camera: int) -> StoredImage:
        """Add an image."""
        number = self._insert("images", "name, camera_id", (name, camera))
        if self.has_rigs:
            (rig,) = self.connection.execute(
                "SELECT rig_id FROM rigs WHERE ref_sensor_id = ? AND ref_sensor_type = ?", (camera, CAMERA_SENSOR)
            ).fetchone()
            frame = self._insert("frames", "rig_id", (rig,))
            row = (frame, number, camera, CAMERA_SENSOR)
            self._insert("frame_data", "frame_id, data_id, sensor_id, sensor_type", row)
        return StoredImage(number, camera)

    def described(self) -> set[int]:
        """Return the numbers of the images that have keypoints or descriptors, of any program."""
        rows = self.connection.execute("SELECT image_id FROM keypoints UNION SELECT image_id FROM descriptors")
        return {number for (number,) in rows}

    def write_keypoints(self, image: int, frames: Frames, stamp: str) -> None:
        """Write the keypoints of an image that has none.

        A row without descriptors is written as well. It keeps COLMAP from extracting its own for the same image, and
        there is nothing that COLMAP's matchers could mistake for SIFT.
        """
        keypoints = keypoint_blob(frames)
        self._insert("keypoints", "image_id, rows, cols, data", (image, *keypoints.shape, keypoints.tobytes()))
        columns, row = "image_id, rows, cols, data", (image, 0, SIFT_LENGTH, b"")
        if self.has_descriptor_type:
            self._insert("descriptors", f"{columns}, type", (*row, UNDEFINED_TYPE))
        else:
            self._insert("descriptors", columns, row)
        self._remember("image", image, stamp)
        self._forget_refinement()

    def write_pair(self, pair: int, matches: NDArray[np.integer], geometry: TwoViewGeometry) -> None:
        """Write the matches of a pair, (P, 2) with the image of smaller number first, and replace others."""
        self.connection.execute("DELETE FROM matches WHERE pair_id = ?", (pair,))
        every = np.ascontiguousarray(matches, np.uint32)
        self._insert("matches", "pair_id, rows, cols, data", (pair, len(every), 2, every.tobytes()))
        self.write_geometry(pair, matches, geometry)
        self._remember("pair", pair, np.packbits(geometry.inliers).tobytes().hex())
        self._forget_refinement()

    def write_geometry(self, pair: int, matches: NDArray[np.integer], geometry: TwoViewGeometry) -> None:
        """Write the geometry of a pair, and replace another.

        Args:
            pair: Number of the pair.
            matches: (P, 2) matches that were verified.
            geometry: The geometry, with the inliers among them.
        """
        for table in self._geometry_tables:
            self.connection.execute(f"DELETE FROM {table} WHERE pair_id = ?", (pair,))
        inliers = np.ascontiguousarray(matches[geometry.inliers], np.uint32)
        blobs = [None if array is None else np.ascontiguousarray(array).tobytes() for array in geometry.arrays]
        row = (pair, len(inliers), 2, inliers.tobytes(), geometry.config, *blobs)
        self._insert("two_view_geometries", GEOMETRY_COLUMNS, row)

    def hide_geometries(self, pairs: Collection[int]) -> None:
        """Replace the geometries of pairs by empty ones, until `restore_geometries`."""
        run = self.connection.execute
        run(HIDDEN_TABLE)
        self.has_hidden_table = True
        for pair in pairs:
            run(
                f"INSERT INTO doap_hidden SELECT {GEOMETRY_COLUMNS} FROM two_view_geometries WHERE pair_id = ?", (pair,)
            )
            run("DELETE FROM two_view_geometries WHERE pair_id = ?", (pair,))
            self._insert("two_view_geometries", "pair_id, rows, cols, data, config", (pair, 0, 2, b"", DEGENERATE))

    def restore_geometries(self) -> None:
        """Restore the geometries that are hidden."""
        if not self.has_hidden_table:
            return
        run = self.connection.execute
        run("DELETE FROM two_view_geometries WHERE pair_id IN (SELECT pair_id FROM doap_hidden)")
        run(f"INSERT INTO two_view_geometries({GEOMETRY_COLUMNS}) SELECT {GEOMETRY_COLUMNS} FROM doap_hidden")
        run("DELETE FROM doap_hidden")

    def verified_points(self, pair: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the positions of the verified matches of a pair in its two images, (P, 2) each."""
        with _damage_errors():
            return self._read_verified_points(pair)

    def _read_verified_points(self, pair: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        run = self.connection.execute
        rows, data = run("SELECT rows, data FROM two_view_geometries WHERE pair_id = ?", (pair,)).fetchone()
        matches = np.frombuffer(data or b"", np.uint32).reshape(rows, 2)
        points = []
        for image, indices in zip(pair_images(pair), matches.T, strict=True):
            row = run("SELECT rows, cols, data FROM keypoints WHERE image_id = ?", (image,)).fetchone()
            keypoints = np.frombuffer(row[2] or b"", np.float32).reshape(row[:2])
            points.append(keypoints[indices, :2])
        return points[0], points[1]

    def matches_before_refinement(self, pairs: Collection[int]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the matches of pairs, (P, 2), that were verified when doap matched them, before any refinement."""
        inliers = self._recall("pair")
        for pair in pairs:
            rows, data = self.connection.execute("SELECT rows, data FROM matches WHERE pair_id = ?", (pair,)).fetchone()
            with _damage_errors():
                matches = np.frombuffer(data or b"", np.uint32).reshape(rows, 2).astype(np.int64)
                bits = np.frombuffer(bytes.fromhex(inliers[pair]), np.uint8)
                verified = matches[np.unpackbits(bits, count=rows).astype(bool)]
            yield pair, verified

    def move_keypoints(self, image: int, frames: Frames) -> None:
        """Replace the keypoints of an image by as many others."""
        keypoints = keypoint_blob(frames)
        self.connection.execute("UPDATE keypoints SET data = ? WHERE image_id = ?", (keypoints.tobytes(), image))

    def refinement(self) -> str | None:
        """Return what `remember_refinement` remembered; None if keypoints or matches were written since then."""
        return self._recall("refinement").get(0)

    def remember_refinement(self, state: str) -> None:
        """Remember the features and matches whose keypoints have been refined."""
        self._remember("refinement", 0, state)

    def _forget_refinement(self) -> None:
        if self.has_own_table:
            self.connection.execute("DELETE FROM doap WHERE kind = 'refinement'")

    def remove_features(self, images: Collection[int]) -> None:
        """Remove keypoints, descriptors and matches of images."""
        run = self.connection.execute
        run("CREATE TEMP TABLE IF NOT EXISTS removed (id INTEGER PRIMARY KEY)")
        run("DELETE FROM removed")
        self.connection.executemany("INSERT INTO removed VALUES (?)", ((image,) for image in images))
        removed = "(SELECT id FROM removed)"
        for table in ("keypoints", "descriptors"):
            run(f"DELETE FROM {table} WHERE image_id IN {removed}")
        for table in ("matches", *self._geometry_tables):
            run(f"DELETE FROM {table} WHERE pair_id / {MAX_IMAGES} IN {removed} OR pair_id % {MAX_IMAGES} IN {removed}")
        self._forget_refinement()

    def settings(self) -> Identity | None:
        """Return the settings of the features that doap has written; None if there are none."""
        value = self._recall("settings").get(0)
        try:
            return None if value is None else dict(parse_json(value))
        except (ValueError, TypeError) as error:
            raise sqlite3.DatabaseError("the settings in its table doap are damaged") from error

    def write_settings(self, identity: Identity) -> None:
        """Write the settings."""
        self.connection.execute(OWN_TABLE)
        self.has_own_table = True
        self._remember("settings", 0, json.dumps(identity, sort_keys=True))

    def stamps(self) -> dict[int, str]:
        """Return the stamps of the features that doap has written and that are still there, by image."""
        described = self.described()
        return {image: stamp for image, stamp in self._recall("image").items() if image in described}

    def matched(self) -> set[int]:
        """Return the pairs that doap has matched and that are still there."""
        rows = self.connection.execute("SELECT pair_id FROM matches INTERSECT SELECT pair_id FROM two_view_geometries")
        return {number for (number,) in rows} & self._recall("pair").keys()

    def verified_counts(self) -> dict[int, int]:
        """Return the number of verified matches of every pair."""
        return dict(self.connection.execute("SELECT pair_id, rows FROM two_view_geometries").fetchall())

    def keypoint_counts(self) -> dict[int, int]:
        """Return the number of keypoints of every image that has been described."""
        return dict(self.connection.execute("SELECT image_id, rows FROM keypoints").fetchall())

    @property
    def _geometry_tables(self) -> list[str]:
        return ["two_view_geometries", *(["doap_hidden"] if self.has_hidden_table else [])]

    def _recall(self, kind: str) -> dict[int, str]:
        if not self.has_own_table:
            return {}
        return dict(self.connection.execute("SELECT id, value FROM doap WHERE kind = ?", (kind,)).fetchall())

    def _remember(self, kind: str, number: int, value: str | None) -> None:
        self.connection.execute("INSERT OR REPLACE INTO doap VALUES (?, ?, ?)", (kind, number, value))

    def _insert(self, table: str, columns: str, row: tuple[object, ...]) -> int:
        marks = ", ".join("?" * len(row))
        cursor = self.connection.execute(f"INSERT INTO {table}({columns}) VALUES ({marks})", row)
        return int(cursor.lastrowid or 0)

    def _count(self, table: str) -> int:
        return int(self.connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])
