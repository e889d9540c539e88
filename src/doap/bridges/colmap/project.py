"""Folders of images to COLMAP databases with features and verified matches of doap."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from doap.bridges.colmap.cameras import read_image_camera
from doap.bridges.colmap.database import Database, create_database, open_database
from doap.bridges.colmap.filling import add_images, check_sizes, hide_weak_pairs, match_images, write_features
from doap.bridges.colmap.pairs import choose_pairs, read_choice
from doap.bridges.colmap.refinement import FIRST_ERROR, refine_keypoints
from doap.bridges.colmap.settings import ProjectSettings, ProjectSummary
from doap.errors import DoapError, inflect
from doap.folders import FeatureCollection, NamedImage, Pair, describe_folder, find_images
from doap.folders.image_tasks import DEVICE_WORKERS
from doap.folders.settings import Identity, check_identity
from doap.locking import only_writer
from doap.parallel import EngineName, open_engine
from doap.parallel.engine import available_cores
from doap.types import StepProgress, no_step_progress

DATABASE = "database.db"
FEATURES = "features"


@dataclass(frozen=True)
class _Run:
    """Arguments that both functions have in common."""

    images: Path
    settings: ProjectSettings
    masks: str | Path | None
    device: str
    engine: EngineName
    workers: int | None
    force: bool
    progress: StepProgress

    def describe(
        self, images: list[NamedImage], output: Path, summary: ProjectSummary
    ) -> tuple[FeatureCollection, list[NamedImage]]:
        """Describe images; return their features, and the images that have some."""
        names = [image.name for image in images]
        described = describe_folder(
            self.images,
            output,
            self.settings.describe,
            names=names,
            masks=self.masks,
            device=self.device,
            engine=self.engine,
            workers=self.workers,
            force=self.force,
            progress=lambda done, total: self.progress("describing", done, total),
        )
        if len(described.failures) == len(names):
            noun = inflect(len(names), "image")
            raise DoapError(f"none of {len(names)} {noun} could be described, the first: {described.failures[0]}")
        summary.described, summary.without_keypoints = described.described, described.without_keypoints
        summary.failures += described.failures
        features = FeatureCollection(output)
        return features, [image for image in images if image.name in features.stamps]

    def fill(
        self,
        database: Database,
        features: FeatureCollection,
        described: list[NamedImage],
        listed: list[Pair] | None,
        summary: ProjectSummary,
    ) -> None:
        """Write keypoints and matches of images that are in a database."""
        check_sizes(database, described)
        stored = database.images()
        images = {image.name: stored[image.name] for image in described}
        write_features(database, features, images, lambda done, total: self.progress("importing", done, total))
        pairs = choose_pairs(
            self.settings.pairs,
            listed,
            features.path,
            list(images),
            lambda done, total: self.progress("retrieving", done, total),
        )
        shared = None if self.device == "cpu" else min(DEVICE_WORKERS, available_cores())
        with open_engine(self.engine, self.workers or shared) as pool:
            numbers, summary.matched = match_images(
                database,
                features,
                images,
                pairs,
                self.settings.match,
                self.settings.max_error * (FIRST_ERROR if self.settings.refine else 1),
                self.device,
                pool,
                lambda done, total: self.progress("matching", done, total),
            )
            if self.settings.refine:
                refine_keypoints(
                    database,
                    features,
                    images,
                    self.images,
                    self.settings.max_error,
                    pool,
                    lambda done, total: self.progress("refining", done, total),
                )
            summary.weak = hide_weak_pairs(
                database,
                images,
                self.settings.min_share,
                pool,
                lambda done, total: self.progress("comparing", done, total),
            )
        summary.images, summary.cameras = len(images), len({image.camera for image in images.values()})
        keypoints, verified = database.keypoint_counts(), database.verified_counts()
        summary.keypoints = sum(keypoints[image.number] for image in images.values())
        summary.verified = [verified[number] for number in numbers]


def build_project(
    images: str | Path,
    project: str | Path,
    settings: ProjectSettings | None = None,
    *,
    masks: str | Path | None = None,
    device: str = "cpu",
    engine: EngineName = "local",
    workers: int | None = None,
    force: bool = False,
    progress: StepProgress = no_step_progress,
) -> ProjectSummary:
    """Make a COLMAP project of a folder of images: `database.db`, and our features in `features/`.

    After an interruption, or with new images in the folder, the next call continues. On the CPU the content of the
    database does not depend on interruptions or the number of workers.

    Args:
        images: Folder of images; images are named by their paths in it.
        project: Folder to write.
        settings: Model, pairs, matching and cameras; by default those of `ProjectSettings`.
        masks: Folder of masks NAME.png; see `describe_folder`.
        device: Device on which images are described and neighbours are searched.
        engine: "local" or "ray"; see `describe_folder`.
        workers: Number of processes.
        force: Replace a database of another program or of other settings.
        progress: Called with the step and its numbers of finished and of all items.

    Raises:
        DoapError: If there is no image, the project holds another database, or it cannot be written.

    Example:
        >>> from doap.bridges.colmap import PairSettings, ProjectSettings, build_project
        >>> settings = ProjectSettings(pairs=PairSettings("sequential", 10))
        >>> build_project("photos", "project", settings).images  # doctest: +SKIP
        128
    """
    run = _Run(Path(images), settings or ProjectSettings(), masks, device, engine, workers, force, progress)
    summary = ProjectSummary(Path(project) / DATABASE)
    named = _find_images(run.images, summary)
    listed = read_choice(run.settings.pairs, [image.name for image in named])
    identity = run.settings.identity() | run.settings.cameras.identity()
    with only_writer(summary.database):
        is_new = not summary.database.exists() or _allowed(force, lambda: _check_project(summary.database, identity))
        features, described = run.describe(named, summary.database.with_name(FEATURES), summary)
        if is_new:
            create_database(summary.database, identity)
        with open_database(summary.database) as database:
            add_images(database, described, run.settings.cameras)
            run.fill(database, features, described, listed, summary)
    return summary


def import_into_database(
    database: str | Path,
    images: str | Path,
    settings: ProjectSettings | None = None,
    *,
    masks: str | Path | None = None,
    device: str = "cpu",
    engine: EngineName = "local",
    workers: int | None = None,
    force: bool = False,
    progress: StepProgress = no_step_progress,
) -> ProjectSummary:
    """Write features and matches of the images that are already in a COLMAP database into it.

    Numbers, names and cameras of the images are kept. Our features are stored in the folder `NAME-features` beside the
    database.

    Args:
        database: Database of COLMAP 3.8 to 4.2.
        images: Folder of the images, to which their names in the database are relative.
        settings: See `build_project`; those of cameras are not used.
        masks: See `build_project`.
        device: See `build_project`.
        engine: See `build_project`.
        workers: See `build_project`.
        force: Replace keypoints, descriptors and matches that these images have by another program or other settings.
        progress: See `build_project`.

    Raises:
        DoapError: If it is not a database of COLMAP, is locked, holds features of another program, or its images are
            not in the folder.
    """
    run = _Run(Path(images), settings or ProjectSettings(), masks, device, engine, workers, force, progress)
    summary = ProjectSummary(Path(database))
    identity = run.settings.identity()
    if not summary.database.is_file():
        raise DoapError(f"{database}: no such database; doap colmap IMAGES -o PROJECT makes one")
    with only_writer(summary.database), open_database(summary.database) as opened:
        stored = opened.images()
        if not stored:
            raise DoapError(f"{database}: no image in it; doap colmap IMAGES -o PROJECT makes a new database")
        named = [image for image in _find_images(run.images, summary) if image.name in stored]
        if not named:
            raise DoapError(f"{images}: holds no image of {database}, such as {next(iter(stored))}; name their folder")
        missing = sorted(stored.keys() - {image.name for image in named})
        summary.failures = [f"{name}: in the database, but not in {images}" for name in missing]
        listed = read_choice(run.settings.pairs, stored)
        numbers = [stored[image.name].number for image in named]
        is_replaced = _allowed(force, lambda: _check_features(opened, summary.database, numbers, identity))
        output = summary.database.with_name(f"{summary.database.stem}-{FEATURES}")
        features, described = run.describe(named, output, summary)
        check_sizes(opened, described)
        with opened.transaction():
            if is_replaced:
                opened.remove_features([stored[image.name].number for image in described])
            opened.write_settings(identity)
        run.fill(opened, features, described, listed, summary)
    return summary


def find_new_images(database: Path, images: Path, *, added: bool) -> list[str]:
    """Return the names of images that the next call would describe for the first time.

    Args:
        database: Database, which need not exist.
        images: Folder of images.
        added: Whether images that are not in the database are added to it, as by `build_project`.

    Raises:
        DoapError: If the database or the folder cannot be read.
    """
    stored, own = {}, {}
    if database.exists():
        with open_database(database) as opened:
            stored, own = opened.images(), opened.stamps()
    return [
        image.name
        for image in _find_images(images, ProjectSummary(database))
        if (stored[image.name].number not in own if image.name in stored else added) and _is_image(image.path)
    ]


def _is_image(path: Path) -> bool:
    try:
        read_image_camera(path)
    except DoapError:
        return False
    return True


def _find_images(folder: Path, summary: ProjectSummary) -> list[NamedImage]:
    """List the images of a folder; those that COLMAP could not find by their names are failures.

    Raises:
        DoapError: If it is not a folder, or there is no image.
    """
    if not folder.is_dir():
        raise DoapError(f"{folder}: not a folder of images")
    named = []
    for image in find_images([folder]):
        if (folder / image.name).is_file():
            named.append(image)
        else:  # undecodable bytes or control characters are escaped in the name
            summary.failures.append(f"{image.name}: COLMAP cannot read this file name; rename the file")
    if not named:
        raise DoapError(f"{folder}: no image that COLMAP can read; {summary.failures[0]}")
    return named


def _allowed(force: bool, check: Callable[[], None]) -> bool:
    """Return whether a check fails that is then overruled by `force`; raise its error otherwise."""
    try:
        check()
    except DoapError:
        if not force:
            raise
        return True
    return False


def _check_project(path: Path, identity: Identity) -> None:
    """Raise DoapError if a database is not one of ours with the same settings."""
    with open_database(path) as database:
        old = database.settings()
    if old is None:
        raise DoapError(f"{path}: written by another program; --database adds to it, --force replaces it")
    check_identity(path, old, identity, "features and matches")


def _check_features(database: Database, path: Path, images: list[int], identity: Identity) -> None:
    """Raise DoapError if images have features of another program or of other settings."""
    own = database.stamps()
    others = len(database.described().intersection(images) - own.keys())
    if others:
        raise DoapError(f"{path}: {others} images have keypoints of another program; --force replaces them")
    old = database.settings()
    if old is not None and own:
        check_identity(path, old, identity, "features and matches")
