"""Sparse models from a COLMAP database, by pycolmap or the `colmap` program, whichever is there."""

import itertools
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from doap.bridges.colmap.database import database_errors
from doap.bridges.colmap.program import has_program, program_version, run_program
from doap.bridges.colmap.statistics import ModelStatistics, read_statistics
from doap.errors import DoapError, check_choice
from doap.files import atomic_folder
from doap.types import Progress, no_progress

SEED_OPTIONS = "random_seed", "default_random_seed", "Mapper.random_seed"  # of the program, by version
NO_MODEL = "failed to create sparse model"  # what the program says if there is none
MIN_MODEL_SIZE = 3  # images; COLMAP's 10 would drop all models of a small set that falls apart

MapperEngine = Literal["pycolmap", "colmap"]
"""The Python package, or the program."""


@dataclass(frozen=True)
class ReconstructionSummary:
    """What `reconstruct` made.

    Attributes:
        engine: "pycolmap" or "colmap".
        version: Version of the engine.
        images: Number of images in the database.
        models: Figures of the models, which are the folders 0, 1, … of the output: largest first, by registered
            images and then points. Images that cannot be connected give several models.
    """

    engine: MapperEngine
    version: str
    images: int
    models: tuple[ModelStatistics, ...]


def reconstruct(
    database: Path,
    images: Path,
    output: Path,
    *,
    engine: MapperEngine | None = None,
    force: bool = False,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ReconstructionSummary:
    """Reconstruct cameras and 3D points from the verified matches of a database by incremental mapping.

    The mapper runs with COLMAP's default options, except that models of 3 images are kept. The output appears when
    it is complete.

    Args:
        database: COLMAP database with keypoints and two-view geometries.
        images: Folder of the images, for the colours of the points.
        output: Folder to write; model k is its subfolder k, the largest is 0.
        engine: "pycolmap", "colmap" for the program, or None for the first of them that is installed.
        force: Replace models in the output.
        seed: Seed of the mapper's random choices.
        threads: Number of threads; None for all cores. With 1 thread, the same database gives the same model.
        progress: Called with the number of registered images and of all images.

    Raises:
        DoapError: If no engine is installed, the database cannot be used, the output exists, or no model is found.

    Example:
        >>> from doap.bridges.colmap.reconstruction import reconstruct
        >>> summary = reconstruct("project/database.db", "photos", "project/sparse")  # doctest: +SKIP
        >>> summary.models[0].registered_images  # doctest: +SKIP
        60
    """
    database, images, output = Path(database), Path(images), Path(output)
    chosen = choose_engine(engine)
    total = _count_images(database)
    if not images.is_dir():
        raise DoapError(f"{images}: no such folder of images")
    check_output(output, force)
    mapper = _map_with_pycolmap if chosen == "pycolmap" else _map_with_program
    report = progress or no_progress
    with atomic_folder(output, replace=True) as folder:
        mapper(database, images, folder, seed, threads or -1, lambda done: report(min(done, total), total))
        models = _sort_models(folder)
        if not models:
            raise DoapError(
                f"{database}: {chosen} found no pair of images to start from; "
                "use more photos, or photos with more overlap taken from different positions"
            )
    return ReconstructionSummary(chosen, engine_version(chosen), total, tuple(models))


def choose_engine(engine: MapperEngine | None = None) -> MapperEngine:
    """Return the engine to use: the given one, or pycolmap, or else the `colmap` program.

    Raises:
        DoapError: If it is not installed.
    """
    available: dict[MapperEngine, bool] = {"pycolmap": find_spec("pycolmap") is not None, "colmap": has_program()}
    if engine is None:
        engine = next((name for name, is_available in available.items() if is_available), None)
        missing = "neither pycolmap nor the colmap program is installed"
    else:
        check_choice("engine", engine, available)
        missing = f"{engine} is not installed"
    if engine is None or not available[engine]:
        raise DoapError(f"{missing}; run: pip install 'doap[sfm]' (x86-64, macOS), or apt install colmap")
    return engine


def engine_version(engine: MapperEngine) -> str:
    """Return the version of an installed engine."""
    if engine == "colmap":
        return program_version()
    import pycolmap

    return str(pycolmap.__version__)


def _count_images(database: Path) -> int:
    """Return the number of images of a database whose matches can be mapped.

    Raises:
        DoapError: If it is missing, which COLMAP would answer by an empty one, or has nothing to reconstruct from.
    """
    if not database.is_file():
        raise DoapError(f"{database}: no such database")
    address = f"{database.absolute().as_uri()}?mode=ro"
    with database_errors(database), closing(sqlite3.connect(address, uri=True)) as connection:
        (images,) = connection.execute("SELECT COUNT(*) FROM images").fetchone()
        (pairs,) = connection.execute("SELECT COUNT(*) FROM two_view_geometries WHERE rows > 0").fetchone()
    if not pairs:
        raise DoapError(f"{database}: no pair of its {images} images has verified matches; match photos that overlap")
    return int(images)


def check_output(output: Path, force: bool) -> None:
    """Check that the output is free, or holds nothing but models that may be replaced.

    Raises:
        DoapError: If it is not.
    """
    if not output.exists():
        return
    if not output.is_dir():
        raise DoapError(f"{output}: is a file; choose a folder for the models")
    others = [path.name for path in output.iterdir() if not (path.name.isdigit() and path.is_dir())]
    if others:
        raise DoapError(f"{output}: holds something else than models ({others[0]}); choose another folder")
    if any(output.iterdir()) and not force:
        raise DoapError(f"{output}: holds models already; choose another folder, or --force to replace them")


def _map_with_pycolmap(
    database: Path, images: Path, output: Path, seed: int, threads: int, report: Callable[[int], None]
) -> None:
    import pycolmap

    pycolmap.logging.minloglevel = pycolmap.logging.Level.FATAL.value
    options = pycolmap.IncrementalPipelineOptions()
    options.random_seed = options.mapper.random_seed = options.triangulation.random_seed = seed
    options.num_threads = options.mapper.num_threads = threads
    options.min_model_size = MIN_MODEL_SIZE
    registered = itertools.count(3)  # the first two are the initial pair
    try:
        pycolmap.incremental_mapping(
            database, images, output, options, next_image_callback=lambda: report(next(registered))
        )
    except (RuntimeError, ValueError) as error:
        raise DoapError(f"{database}: pycolmap failed: {str(error).strip().splitlines()[-1]}") from error


def _map_with_program(
    database: Path, images: Path, output: Path, seed: int, threads: int, report: Callable[[int], None]
) -> None:
    def read(line: str) -> None:
        # "Registering image #7 (3)" until version 3.11, "… (num_reg_frames=2)", without this image, since.
        registered = re.search(r"Registering image #\d+ \((num_reg_\w+=)?(\d+)\)", line)
        if registered:
            report(int(registered[2]) + (registered[1] is not None))

    options = {"database_path": database, "image_path": images, "output_path": output}
    mapping = {"Mapper.num_threads": threads, "Mapper.min_model_size": MIN_MODEL_SIZE}
    try:
        run_program("mapper", {**options, **mapping}, dict.fromkeys(SEED_OPTIONS, seed), read)
    except DoapError as error:
        if NO_MODEL not in str(error):
            raise


def _sort_models(folder: Path) -> list[ModelStatistics]:
    """Rename the models of a folder to 0, 1, …, largest first, and return their figures."""
    models = [(read_statistics(path), path) for path in sorted(folder.iterdir()) if path.is_dir()]
    models.sort(key=lambda item: (-item[0].registered_images, -item[0].points))
    renamed = [path.rename(folder / f"sorted-{number}") for number, (_, path) in enumerate(models)]
    for number, path in enumerate(renamed):
        path.rename(folder / str(number))
    return [statistics for statistics, _ in models]
