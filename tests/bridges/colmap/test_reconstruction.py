"""Reconstruction of a synthetic scene by the real engines, against its cameras and the figures of COLMAP itself."""

import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from doap.bridges.colmap.program import has_program, run_program
from doap.bridges.colmap.reconstruction import MapperEngine, choose_engine, reconstruct
from doap.bridges.colmap.schema import create_tables
from doap.bridges.colmap.statistics import read_statistics
from doap.errors import DoapError
from doap.images.reconstruction.colmap import has_colmap

IMAGES, POINTS, FOCAL, SIZE = 5, 150, 800.0, (480, 640)
MAX_IMAGES = 2147483647

needs_program = pytest.mark.skipif(not has_program(), reason="needs the colmap program: apt install colmap")
needs_engine = pytest.mark.skipif(
    not (has_colmap() or has_program()), reason="needs pycolmap (pip install 'doap[sfm]') or apt install colmap"
)
ENGINES = [
    pytest.param("pycolmap", marks=pytest.mark.skipif(not has_colmap(), reason="needs pip install 'doap[sfm]'")),
    pytest.param("colmap", marks=needs_program),
]


def write_scene(path: Path, sizes: tuple[int, ...] = (IMAGES,)) -> NDArray[np.float64]:
    """Write a database of unconnected scenes of so many images: cameras on an arc around points, 0.3 pixels of noise.

    Returns:
        Centres of the cameras, (sum of the sizes, 3).
    """
    random = np.random.default_rng(0)
    centres: list[NDArray[np.float64]] = []
    with closing(sqlite3.connect(path)) as database, database:
        create_tables(database)
        params = np.array([FOCAL, SIZE[1] / 2, SIZE[0] / 2, 0.0]).tobytes()
        database.execute("INSERT INTO cameras VALUES (1, 2, ?, ?, ?, 0)", (SIZE[1], SIZE[0], params))
        for size in sizes:
            cloud = random.uniform(-1, 1, (POINTS, 3))
            numbers = range(1 + len(centres), 1 + len(centres) + size)
            for number in numbers:
                angle = np.radians(9 * (number - numbers[0] - size / 2))
                turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
                seen = cloud @ turn.T + [0, 0, 6]
                centres.append(-turn.T @ [0, 0, 6])
                pixels = seen[:, :2] / seen[:, 2:] * FOCAL + [SIZE[1] / 2, SIZE[0] / 2]
                data = (pixels + random.normal(0, 0.3, pixels.shape)).astype(np.float32).tobytes()
                row = (number, f"{number}.png", 1)
                database.execute("INSERT INTO images (image_id, name, camera_id) VALUES (?, ?, ?)", row)
                database.execute("INSERT INTO keypoints VALUES (?, ?, 2, ?)", (number, POINTS, data))
            matches = np.stack([np.arange(POINTS, dtype=np.uint32)] * 2, 1).tobytes()
            for first, second in combinations(numbers, 2):
                # 3 is COLMAP's number of uncalibrated geometries.
                database.execute(
                    "INSERT INTO two_view_geometries (pair_id, rows, cols, data, config) VALUES (?, ?, 2, ?, 3)",
                    (MAX_IMAGES * first + second, POINTS, matches),
                )
    return np.array(centres)


def read_centres(model: Path) -> dict[int, NDArray[np.float64]]:
    """Return the centre of every camera of a text model, -Rᵀ t."""
    centres = {}
    lines = [line for line in (model / "images.txt").read_text().split("\n") if not line.startswith("#")]
    for line in lines[::2]:
        if line:
            number, w, x, y, z, *t = map(float, line.split()[:8])
            rotation = np.array(
                [
                    [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                    [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                    [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
                ]
            )
            centres[int(number)] = -rotation.T @ t
    return centres


def align(points: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map points onto targets by the similarity of least squares."""
    a, b = points - points.mean(0), targets - targets.mean(0)
    u, s, vt = np.linalg.svd(a.T @ b)
    signs = np.array([1, 1, np.sign(np.linalg.det(u @ vt))])
    return np.asarray((s * signs).sum() / (a**2).sum() * a @ (u * signs) @ vt + targets.mean(0))


def to_text(model: Path, target: Path, engine: MapperEngine) -> None:
    target.mkdir()
    if engine == "pycolmap":
        import pycolmap

        pycolmap.Reconstruction(model).write_text(target)
        return
    run_colmap("model_converter", "--input_path", model, "--output_path", target, "--output_type", "TXT")


def run_colmap(*arguments: object) -> str:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    command = ["colmap", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_cameras_are_where_they_were(engine: MapperEngine, tmp_path: Path) -> None:
    expected = write_scene(tmp_path / "database.db")
    calls: list[tuple[int, int]] = []
    summary = reconstruct(
        tmp_path / "database.db",
        tmp_path,
        tmp_path / "sparse",
        engine=engine,
        threads=1,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert (summary.engine, len(summary.models)) == (engine, 1)
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", summary.version)
    model = summary.models[0]
    assert model.registered_images == IMAGES
    assert model.points == pytest.approx(POINTS, rel=0.02)
    assert model.mean_track_length == pytest.approx(IMAGES, rel=0.02)
    # The mean length of a residual with standard deviation s per axis is s √(π/2), less what the fit absorbs.
    assert 0.25 < model.mean_reprojection_error < 0.3 * np.sqrt(np.pi / 2)
    assert calls[-1] == (IMAGES, IMAGES)
    to_text(tmp_path / "sparse" / "0", tmp_path / "text", engine)
    centres = read_centres(tmp_path / "text")
    actual = align(np.stack([centres[k + 1] for k in range(IMAGES)]), expected)
    assert np.linalg.norm(actual - expected, axis=1).max() < 0.03  # at a distance of 6 from the points
    # Text files have fewer digits of the errors.
    text = read_statistics(tmp_path / "text")
    assert replace(text, mean_reprojection_error=0) == replace(model, mean_reprojection_error=0)
    assert text.mean_reprojection_error == pytest.approx(model.mean_reprojection_error, rel=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["database.db", "sparse", "text"]


@needs_program
def test_figures_are_those_of_colmap_and_the_largest_model_is_first(tmp_path: Path) -> None:
    write_scene(tmp_path / "database.db", sizes=(3, 5))
    first, second = reconstruct(tmp_path / "database.db", tmp_path, tmp_path / "sparse", engine="colmap").models
    assert (first.registered_images, second.registered_images) == (5, 3)
    for number, model in enumerate((first, second)):
        said = run_colmap("model_analyzer", "--path", tmp_path / "sparse" / str(number))
        for name, value in (
            ("Registered images", model.registered_images),
            ("Points", model.points),
            ("Observations", model.observations),
            ("Mean track length", model.mean_track_length),
            ("Mean observations per image", model.mean_observations_per_image),
            ("Mean reprojection error", model.mean_reprojection_error),
        ):
            (figure,) = re.findall(rf"{name}: ([\d.]+)", said)
            assert float(figure) == pytest.approx(value, abs=1e-5)


@needs_engine
def test_models_are_replaced_only_by_force_and_repeat_with_one_thread(tmp_path: Path) -> None:
    write_scene(tmp_path / "database.db")
    where = tmp_path / "database.db", tmp_path, tmp_path / "project" / "sparse"
    first = reconstruct(*where, threads=1)
    content = (where[2] / "0" / "points3D.bin").read_bytes()
    with pytest.raises(DoapError, match="sparse: holds models already; choose another folder, or --force"):
        reconstruct(*where, threads=1)
    assert reconstruct(*where, threads=1, force=True) == first
    assert (where[2] / "0" / "points3D.bin").read_bytes() == content
    (where[2] / "notes.txt").touch()
    with pytest.raises(DoapError, match=r"sparse: holds something else than models \(notes.txt\)"):
        reconstruct(*where, force=True)
    assert [path.name for path in where[2].parent.iterdir()] == ["sparse"]


@needs_engine
def test_unusable_input_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    database, output = tmp_path / "database.db", tmp_path / "sparse"
    with pytest.raises(DoapError, match=r"database.db: no such database"):
        reconstruct(database, tmp_path, output)
    database.write_bytes(b"not a database" * 100)
    with pytest.raises(DoapError, match=r"database.db: not a database of COLMAP; name another"):
        reconstruct(database, tmp_path, output)
    database.unlink()
    write_scene(database)
    with pytest.raises(DoapError, match="photos: no such folder of images"):
        reconstruct(database, tmp_path / "photos", output)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE two_view_geometries SET rows = 5, data = substr(data, 1, 40)")
    with pytest.raises(DoapError, match=r"database.db: .*; use more photos"):
        reconstruct(database, tmp_path, output)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM two_view_geometries")
    with pytest.raises(DoapError, match=r"database.db: no pair of its 5 images has verified matches"):
        reconstruct(database, tmp_path, output)
    assert not [path for path in tmp_path.iterdir() if "sparse" in path.name]


@needs_program
def test_the_reason_of_a_failing_program_is_told(tmp_path: Path) -> None:
    write_scene(tmp_path / "database.db")
    with closing(sqlite3.connect(tmp_path / "database.db")) as connection, connection:
        connection.execute("UPDATE cameras SET model = 99")
    with pytest.raises(DoapError, match=r"^colmap mapper: failed: .*[Cc]amera.*$"):
        reconstruct(tmp_path / "database.db", tmp_path, tmp_path / "sparse", engine="colmap")
    with pytest.raises(DoapError, match=r"colmap mapper: failed: .*no_such_option"):
        run_program("mapper", {"no_such_option": 1})
    assert not [path for path in tmp_path.iterdir() if "sparse" in path.name]


def test_a_missing_engine_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DoapError, match=r"^colmap is not installed; run: pip .* or apt install colmap$"):
        choose_engine("colmap")
    if not has_colmap():
        with pytest.raises(DoapError, match=r"^neither pycolmap nor the colmap program is installed; run: pip install"):
            choose_engine()


@needs_program
@pytest.mark.skipif(sys.platform != "linux", reason="processes end with their parent on Linux only")
def test_a_killed_run_leaves_no_model_and_no_process(tmp_path: Path) -> None:
    write_scene(tmp_path / "database.db", sizes=(30,))
    script = (
        "import sys; from doap.bridges.colmap.reconstruction import reconstruct\n"
        "reconstruct(*sys.argv[1:4], engine='colmap', threads=1, progress=lambda *_: print('registered', flush=True))"
    )
    where = [str(tmp_path / name) for name in ("database.db", "", "sparse")]
    with subprocess.Popen([sys.executable, "-c", script, *where], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "registered\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 1
        process.kill()
    deadline = time.monotonic() + 20
    while is_running(int(children[0])) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(int(children[0]))
    assert not (tmp_path / "sparse").exists()


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
