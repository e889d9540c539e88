"""Tables of COLMAP's databases, versions 3.8 to 4.2.

New databases are written with the tables of 3.8: all versions open them, and later ones add what they need. Into an
existing database is written what its columns take.
"""

import sqlite3
from pathlib import Path

from doap.errors import DoapError

NEW_VERSION = 3800  # of the tables below; COLMAP 3.8 writes the same number
NEWEST_VERSION = 4_02_99_99  # 4.2.x; since 3.13 COLMAP writes its version as 4_02_01_00
MAX_IMAGES = 2**31 - 1

TABLES = f"""
CREATE TABLE cameras (
    camera_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, model INTEGER NOT NULL, width INTEGER NOT NULL,
    height INTEGER NOT NULL, params BLOB, prior_focal_length INTEGER NOT NULL);
CREATE TABLE images (
    image_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, name TEXT NOT NULL UNIQUE, camera_id INTEGER NOT NULL,
    prior_qw REAL, prior_qx REAL, prior_qy REAL, prior_qz REAL, prior_tx REAL, prior_ty REAL, prior_tz REAL,
    CONSTRAINT image_id_check CHECK(image_id >= 0 and image_id < {MAX_IMAGES}),
    FOREIGN KEY(camera_id) REFERENCES cameras(camera_id));
CREATE UNIQUE INDEX index_name ON images(name);
CREATE TABLE keypoints (
    image_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB,
    FOREIGN KEY(image_id) REFERENCES images(image_id) ON DELETE CASCADE);
CREATE TABLE descriptors (
    image_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB,
    FOREIGN KEY(image_id) REFERENCES images(image_id) ON DELETE CASCADE);
CREATE TABLE matches (
    pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB);
CREATE TABLE two_view_geometries (
    pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL, data BLOB,
    config INTEGER NOT NULL, F BLOB, E BLOB, H BLOB, qvec BLOB, tvec BLOB);
"""

# What an interrupted run has finished; COLMAP ignores the table.
OWN_TABLE = "CREATE TABLE IF NOT EXISTS doap (kind TEXT, id INTEGER, value TEXT, PRIMARY KEY(kind, id)) WITHOUT ROWID"

GEOMETRY_COLUMNS = "pair_id, rows, cols, data, config, F, E, H, qvec, tvec"
HIDDEN_TABLE = (  # geometries of pairs that COLMAP should not use
    "CREATE TABLE IF NOT EXISTS doap_hidden (pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, "
    "cols INTEGER NOT NULL, data BLOB, config INTEGER NOT NULL, F BLOB, E BLOB, H BLOB, qvec BLOB, tvec BLOB)"
)

WRITTEN = {
    "cameras": {"camera_id", "model", "width", "height", "params", "prior_focal_length"},
    "images": {"image_id", "name", "camera_id"},
    "keypoints": {"image_id", "rows", "cols", "data"},
    "descriptors": {"image_id", "rows", "cols", "data"},
    "matches": {"pair_id", "rows", "cols", "data"},
    "two_view_geometries": set(GEOMETRY_COLUMNS.split(", ")),
}
"""Columns that every known version has and that are written."""

OPTIONAL = {
    "descriptors": {"type"},
    "rigs": {"rig_id", "ref_sensor_id", "ref_sensor_type"},
    "frames": {"frame_id", "rig_id"},
    "frame_data": {"frame_id", "data_id", "sensor_id", "sensor_type"},
}
"""Columns that are written where a table has them."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a new database."""
    connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {NEW_VERSION}; COMMIT;")


def check_tables(connection: sqlite3.Connection, path: Path) -> dict[str, set[str]]:
    """Check that a database is one of a known version of COLMAP.

    Returns:
        Columns of each of its tables.

    Raises:
        DoapError: If it is not.
    """
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    details = {name: connection.execute(f'PRAGMA table_info("{name}")').fetchall() for name in names}
    columns = {name: {row[1] for row in rows} for name, rows in details.items()}
    for table, needed in WRITTEN.items():
        if missing := sorted(needed - columns.get(table, set())):
            raise DoapError(f"{path}: not a database of COLMAP 3.8 to 4.2 (no {table}.{missing[0]}); name another")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > NEWEST_VERSION:
        raise DoapError(f"{path}: written by a COLMAP after 4.2 (version {version} of the tables); use an older one")
    for table in {*WRITTEN, *OPTIONAL} & columns.keys():
        known = WRITTEN.get(table, set()) | OPTIONAL.get(table, set())
        for _, column, _, is_required, default, _ in details[table]:
            if is_required and default is None and column not in known:
                raise DoapError(f"{path}: tables of an unknown COLMAP ({table}.{column}); use one of 3.8 to 4.2")
    return columns
