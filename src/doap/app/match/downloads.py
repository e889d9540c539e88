"""Downloads of matches: made when they are asked for, and never kept."""

import csv
import io
import json
import re
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fastapi import FastAPI, Response
from numpy.typing import NDArray

from doap.app.match.folders import write_colmap_folder, write_hloc_folder
from doap.app.match.pair import MethodResult
from doap.app.match.session import MatchSession, SessionStore
from doap.errors import DoapError
from doap.features.report import report_matches
from doap.features.storage import save_record
from doap.types import Record

ROUTE = "/doap/matches"
COLUMNS = ("index_a", "index_b", "x_a", "y_a", "x_b", "y_b", "distance", "second_distance", "verified")

_one_at_a_time = threading.Lock()


def csv_file(session: MatchSession, result: MethodResult) -> bytes:  # noqa: ARG001 - as the others
    """Return all matches as comma-separated values."""
    matches = result.matches
    points = np.hstack(matches.points(result.first, result.second))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in zip(
        matches.indices.tolist(),
        points.tolist(),
        matches.distances.tolist(),
        matches.second_distances.tolist(),
        matches.inliers.tolist(),
        strict=True,
    ):
        indices, ends, distance, second, inlier = row
        writer.writerow([*indices, *ends, distance, second, int(inlier)])
    return text.getvalue().encode()


def json_file(session: MatchSession, result: MethodResult) -> bytes:
    """Return points and geometry as `doap match --json` writes them."""
    names = session.pictures[0].source, session.pictures[1].source
    report = report_matches(names, result.first, result.second, result.matches)
    return (json.dumps(report, indent=1) + "\n").encode()


def npz_file(session: MatchSession, result: MethodResult) -> bytes:  # noqa: ARG001 - as the others
    """Return an archive that `doap.Matches.load` reads, with the points of the matches."""
    first, second = result.matches.points(result.first, result.second)
    points: dict[str, NDArray[np.float32]] = {"first_points": first, "second_points": second}
    record: Record = {**result.matches.to_record(), **points}
    with tempfile.TemporaryDirectory(prefix="doap-app-") as folder:
        path = Path(folder) / "matches.npz"
        save_record(path, record)
        return path.read_bytes()


def colmap_file(session: MatchSession, result: MethodResult) -> bytes:
    """Return the folder of a COLMAP project, zipped."""
    return _zipped(lambda folder: write_colmap_folder(session, result, folder))


def hloc_file(session: MatchSession, result: MethodResult) -> bytes:
    """Return a folder with hloc's files, zipped."""
    return _zipped(lambda folder: write_hloc_folder(session, result, folder))


FORMATS: dict[str, tuple[str, Callable[[MatchSession, MethodResult], bytes]]] = {
    "csv": ("matches.csv", csv_file),
    "json": ("matches.json", json_file),
    "npz": ("matches.npz", npz_file),
    "colmap": ("colmap.zip", colmap_file),
    "hloc": ("hloc.zip", hloc_file),
}
"""Name and content of a download, by its format."""


def add_downloads(app: FastAPI, store: SessionStore) -> None:
    """Add the route of the downloads: ROUTE/token/number of the method/format."""

    @app.get(ROUTE + "/{token}/{number}/{kind}")
    def download(token: str, number: int, kind: str) -> Response:
        session = store.find(token)
        if session is None or kind not in FORMATS or not 0 <= number < len(session.results):
            return _line(404, "these matches are no longer on the server; match the pictures again")
        result = session.results[number]
        name, make = FORMATS[kind]
        try:
            with _one_at_a_time:
                content = make(session, result)
        except DoapError as error:
            return _line(500, str(error))
        method = re.sub(r"[^A-Za-z0-9.@-]", "-", result.first.model)
        headers = {"content-disposition": f'attachment; filename="{method}-{name}"', "cache-control": "no-store"}
        return Response(content, media_type="application/octet-stream", headers=headers)


def _line(status: int, line: str) -> Response:
    return Response(line, status, media_type="text/plain")


def _zipped(write: Callable[[Path], None]) -> bytes:
    """Return what is written to a folder as one archive; the folder is removed."""
    parent = Path(tempfile.mkdtemp(prefix="doap-app-"))
    try:
        folder = parent / "content"
        folder.mkdir()
        write(folder)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(folder))
        return buffer.getvalue()
    finally:
        shutil.rmtree(parent, ignore_errors=True)
