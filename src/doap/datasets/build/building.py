"""Build of a patch set or frame set from photos, on all cores, resumable.

Photos are read and described, compared within their folder, matched within their scene, and turned into groups of
frames. The tasks of each step are small and independent; workers run them (`steps.py`). Their results are cached in a
hidden folder beside the set, `.NAME.building`, until the set is complete. The names of the cached files depend on the
photos (name, size, time) and the settings, so that a build that is started again reuses valid results and computes the
others. The set does not depend on the engine or the number of workers.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import numpy as np
from filelock import FileLock, Timeout

from doap.datasets.build.assembly import Photo, Scene, assemble
from doap.datasets.build.cutting import PATCH_SIZE, VIEWS_PER_GROUP, append_patches
from doap.datasets.build.settings import BuildSettings
from doap.datasets.build.steps import (
    LinkTask,
    MatchTask,
    Pairs,
    PhotoFiles,
    PhotoTask,
    SceneTask,
    find_candidates,
    find_frames,
    find_links,
    load_frames,
    match_scene,
    prepare_photo,
)
from doap.datasets.build.summary import write_summary
from doap.datasets.sets.writer import write_patch_set
from doap.errors import DoapError, inflect
from doap.files import atomic_folder, make_folder, printable, write_text
from doap.images.reading import find_photos
from doap.images.reconstruction.scene_frames import MIN_GROUPS
from doap.images.reconstruction.scenes import PhotoCluster, SceneKind, are_compared, form_clusters
from doap.images.reconstruction.tracks import Ids
from doap.parallel import Engine, EngineName, open_engine
from doap.parsing.json_files import read_json
from doap.types import StepProgress, no_step_progress

CACHE_VERSION = 3  # raise it when the cached results change
LINK_TILE = 16  # photos: pairs are compared in tiles of this side
MATCH_TILE = 8
REGISTRATION_COST = 30  # of two images of a static camera, in comparisons of features

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class BuildResult:
    """The scenes of a built set, and one line for each photo or folder that was skipped."""

    scenes: list[Scene]
    skipped: list[str]


@dataclass(frozen=True)
class _Cluster:
    """Photos that belong together, and the name of their scene."""

    name: str
    kind: SceneKind
    photos: list[Photo]


def build(
    paths: Sequence[Path],
    target: Path,
    settings: BuildSettings,
    pixels: bool = True,
    progress: StepProgress = no_step_progress,
    engine: EngineName = "local",
    workers: int | None = None,
) -> BuildResult:
    """Build a patch set or a frame set from photos and folders of photos.

    Photos of one scene or of one static view must be in one folder.

    Args:
        paths: Photos and folders, which are searched recursively.
        target: The set to create; refused if it exists.
        settings: Settings of the build.
        pixels: Write a patch set; otherwise a frame set of photos and frames.
        progress: Callback, called as progress(step, done, total).
        engine: See `doap.parallel.open_engine`. The workers of a cluster need the photos and the folder of the set
            under the same paths.
        workers: Number of processes; by default one per core.

    Raises:
        DoapError: If no photo has groups, or another build of this set is running.
    """
    cache = target.absolute().parent / f".{target.name}.building"
    if target.exists():
        _remove_finished(cache)
        raise DoapError(f"{target}: exists already; remove it or choose another name")
    photos = _name_photos(paths)
    make_folder(cache)
    try:
        with FileLock(cache / "lock", timeout=0), open_engine(engine, workers) as opened:
            return _Build(cache, settings, opened, progress).run(photos, target, pixels)
    except Timeout as error:
        raise DoapError(f"{target}: another build of this set is running ({cache}); wait until it ends") from error


def _remove_finished(cache: Path) -> None:
    """Remove the cache of a build that was killed after its set was complete."""
    if cache.is_dir():
        with suppress(Timeout, OSError), FileLock(cache / "lock", timeout=0):
            shutil.rmtree(cache, ignore_errors=True)


class _Build:
    """A build: its cache folder, its settings, and the lines of what was skipped."""

    def __init__(self, cache: Path, settings: BuildSettings, engine: Engine, progress: StepProgress) -> None:
        self._cache = cache
        self._settings = settings
        self._engine = engine
        self._progress = progress
        self._keys: dict[Photo, str] = {}
        self._skipped: list[str] = []

    def run(self, photos: list[Photo], target: Path, pixels: bool) -> BuildResult:
        """Build the set."""
        scenes = self._find_scenes(self._find_clusters(self._prepare_photos(photos)))
        if not scenes:
            reasons = f"{'; '.join(self._skipped[:3])}{' …' if len(self._skipped) > 3 else ''}"
            raise DoapError(f"no groups found in any photo: {reasons}")
        self._progress("writing", 0, 1)
        frames = assemble(scenes, lambda photo: self._files(photo).stored(), self._settings.extent)
        if pixels:
            with write_patch_set(target, PATCH_SIZE, frames.sequence_names, frames.extent) as writer:
                append_patches(
                    frames,
                    writer,
                    VIEWS_PER_GROUP,
                    self._settings.seed,
                    lambda done, total: self._progress("extracting patches", done, total),
                    self._engine.map,
                )
                write_summary(writer.folder, frames, scenes, self._skipped)
        else:
            with atomic_folder(target) as folder:
                frames.write(folder)
                write_summary(folder, frames, scenes, self._skipped)
        shutil.rmtree(self._cache, ignore_errors=True)
        return BuildResult(scenes, self._skipped)

    def _prepare_photos(self, photos: list[Photo]) -> list[Photo]:
        """Read all photos and extract their features; return those that can be read."""
        self._keys = {photo: _photo_key(photo, self._settings) for photo in photos}
        new = [photo for photo in photos if not self._files(photo).record.exists()]
        tasks = [PhotoTask(self._files(photo), self._settings.longest) for photo in new]
        results = self._run("reading photos", prepare_photo, tasks, [1] * len(new), died=_crashed)
        errors = dict(zip(new, results, strict=True))
        self._skipped += [error for error in errors.values() if error is not None]
        return [photo for photo in photos if errors.get(photo) is None]

    def _find_clusters(self, photos: list[Photo]) -> list[_Cluster]:
        """Find photos that belong together, in every folder."""
        folders = [list(group) for _, group in groupby(photos, key=lambda photo: photo.path.parent)]
        files = [self._cache / f"folder-{self._key(folder)}.json" for folder in folders]
        self._compare_photos([(f, file) for f, file in zip(folders, files, strict=True) if not file.exists()])
        return [cluster for f, file in zip(folders, files, strict=True) for cluster in self._read_clusters(f, file)]

    def _compare_photos(self, folders: list[tuple[list[Photo], Path]]) -> None:
        """Compare the photos of each folder, and write its clusters."""
        files = [tuple(map(self._files, folder)) for folder, _ in folders]
        sizes = list(map(len, files))
        candidates = self._run("sorting photos", find_candidates, files, sizes)
        tasks = [list(_link_tasks(photos, pairs)) for photos, pairs in zip(files, candidates, strict=True)]
        flat = [task for in_folder in tasks for task in in_folder]
        costs = [len(task.pairs) + REGISTRATION_COST * len(task.static) for task in flat]
        links = iter(self._run("comparing photos", find_links, flat, costs))
        for (_, target), count, in_folder in zip(folders, sizes, tasks, strict=True):
            linked = [next(links) for _ in in_folder]
            static = _join(static for static, _ in linked)
            clusters = form_clusters(count, static, _join([static, *(by_features for _, by_features in linked)]))
            write_text(target, json.dumps([asdict(cluster) for cluster in clusters]))

    def _read_clusters(self, folder: list[Photo], file: Path) -> Iterator[_Cluster]:
        """Name the clusters of a folder; photos that are in none of them are added to what was skipped."""
        try:
            clusters = [PhotoCluster(**entry) for entry in read_json(file)]
        except (ValueError, TypeError) as error:
            raise DoapError(f"{file}: damaged; remove it and build the set again") from error
        scenes = sum(cluster.kind != "single" for cluster in clusters)
        for cluster in clusters:
            members = [folder[i] for i in cluster.photos]
            name = members[0].name
            if cluster.kind != "single" and scenes == 1:
                name = Path(name).parent.as_posix()
            yield _Cluster(name, cluster.kind, members)
        unused = len(folder) - len({i for cluster in clusters for i in cluster.photos})
        if unused:
            self._skipped.append(
                f"{folder[0].path.parent}: {unused} {inflect(unused, 'photo')} not linked to the others, but "
                "probably of the same scene"
            )

    def _find_scenes(self, clusters: list[_Cluster]) -> list[Scene]:
        """Find the frames of each cluster; clusters without groups are added to what was skipped."""
        targets = [
            self._cache / f"scene-{self._key(cluster.photos, cluster.kind, asdict(self._settings))}.npz"
            for cluster in clusters
        ]
        new = [(cluster, file) for cluster, file in zip(clusters, targets, strict=True) if not file.exists()]
        matches = self._match_scenes([cluster for cluster, _ in new])
        tasks = [
            SceneTask(c.kind, tuple(map(self._files, c.photos)), scene_matches, self._settings, file)
            for (c, file), scene_matches in zip(new, matches, strict=True)
        ]
        self._run("finding frames", find_frames, tasks, [len(task.photos) for task in tasks])
        scenes = []
        for cluster, file in zip(clusters, targets, strict=True):
            frames = load_frames(file)
            if frames is None:
                self._skipped.append(_explain_skipped(cluster.photos))
            else:
                scenes.append(Scene(cluster.name, cluster.photos, frames))
        return scenes

    def _match_scenes(self, clusters: list[_Cluster]) -> list[tuple[Path, ...]]:
        """Match the photos of overlapping scenes; return the files of the matches of each cluster."""
        tasks = [list(self._match_tasks(cluster)) for cluster in clusters]
        new = [task for of_cluster in tasks for task in of_cluster if not task.target.exists()]
        self._run("matching photos", match_scene, new, [len(task.pairs) for task in new])
        return [tuple(task.target for task in of_cluster) for of_cluster in tasks]

    def _match_tasks(self, cluster: _Cluster) -> Iterator[MatchTask]:
        if cluster.kind == "overlapping" and self._settings.tracks:
            for pairs in _tiles(len(cluster.photos), MATCH_TILE):
                numbers = sorted({number for pair in pairs for number in pair})
                key = self._key([cluster.photos[number] for number in numbers], *numbers)
                files = {number: self._files(cluster.photos[number]) for number in numbers}
                yield MatchTask(files, pairs, self._cache / f"matches-{key}.npz")

    def _run(
        self,
        step: str,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        costs: Sequence[int],
        died: Callable[[Task], Result] | None = None,
    ) -> list[Result]:
        """Run tasks, the most expensive first so that none is left for the end, and return their results in order.

        `died` gives the result of a task that ends its worker; see `doap.parallel.engine.Engine`.
        """
        order = sorted(range(len(tasks)), key=lambda number: -costs[number])
        results: dict[int, Result] = {}
        done, total = 0, sum(costs)
        self._progress(step, 0, total)
        # All tasks may run ahead of the first: their results are small.
        outcomes = self._engine.map(function, (tasks[number] for number in order), max(1, len(tasks)), died)
        for number, result in zip(order, outcomes, strict=True):
            results[number] = result
            done += costs[number]
            self._progress(step, done, total)
        return [results[number] for number in range(len(tasks))]

    def _files(self, photo: Photo) -> PhotoFiles:
        name = f"photo-{self._keys[photo]}"
        return PhotoFiles(photo.path, self._cache / f"{name}.webp", self._cache / f"{name}.npz")

    def _key(self, photos: list[Photo], *content: object) -> str:
        return _hash([[self._keys[photo] for photo in photos], *content])


def _crashed(task: PhotoTask) -> str:
    """Return the error of a photo that ends the worker that reads it."""
    return f"{task.files.path}: reading it ends the process, by a crash of the decoder; remove or replace it"


def _name_photos(paths: Sequence[Path]) -> list[Photo]:
    """Return all photos sorted by folder, named by their path relative to the given folder."""
    photos: dict[Path, Photo] = {}
    for root in paths:
        for path in find_photos([root]):
            name = Path(root.resolve().name, path.relative_to(root)).as_posix() if root.is_dir() else path.name
            photos.setdefault(path.resolve(), Photo(path, printable(name)))
    return sorted(photos.values(), key=lambda photo: (str(photo.path.parent), photo.path.name))


def _link_tasks(photos: tuple[PhotoFiles, ...], candidates: Ids) -> Iterator[LinkTask]:
    """Split the comparison of the photos of a folder into tasks."""
    static = {(int(i), int(j)) for i, j in candidates}
    for pairs in _tiles(len(photos), LINK_TILE):
        by_features = tuple(pair for pair in pairs if are_compared(*pair))
        by_edges = tuple(pair for pair in pairs if pair in static)
        numbers = sorted({number for pair in (*by_features, *by_edges) for number in pair})
        if numbers:
            yield LinkTask({number: photos[number] for number in numbers}, by_edges, by_features)


def _tiles(count: int, side: int) -> Iterator[Pairs]:
    """Split all pairs of `count` photos into tiles of side x side pairs, which share their photos."""
    for top in range(0, count, side):
        for left in range(top, count, side):
            rows, columns = range(top, min(top + side, count)), range(left, min(left + side, count))
            if pairs := tuple((i, j) for i in rows for j in columns if i < j):
                yield pairs


def _join(links: Iterable[Ids]) -> Ids:
    return np.concatenate([np.zeros((0, 2), np.int64), *links])


def _explain_skipped(photos: list[Photo]) -> str:
    reason = f"fewer than {MIN_GROUPS} distinct keypoints found"
    if len(photos) == 1:
        return f"{photos[0].path}: {reason}; it is flat or too small"
    return f"{photos[0].path.parent}: {reason} in {len(photos)} photos"


def _photo_key(photo: Photo, settings: BuildSettings) -> str:
    """Return a name for the results of a photo, which changes with its file."""
    state = photo.path.stat()
    return _hash([photo.name, str(photo.path.resolve()), state.st_size, state.st_mtime_ns, settings.longest])


def _hash(content: list[object]) -> str:
    return hashlib.sha256(json.dumps([CACHE_VERSION, *content]).encode()).hexdigest()[:24]
