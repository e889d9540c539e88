"""Build of a patch set or frame set from photos, resumable scene by scene.

The results per folder and per scene are cached in a hidden folder beside the set, `.NAME.building`, until the set is
complete. The names of the cached files depend on the photos (name, size, time) and the settings, so that a build that
is started again reuses valid results and computes the others.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from doap.datasets.build.assembly import Photo, Scene, assemble, read_photo
from doap.datasets.build.cutting import PATCH_SIZE, VIEWS_PER_GROUP, append_patches
from doap.datasets.build.settings import BuildSettings
from doap.datasets.build.summary import write_summary
from doap.datasets.sets.writer import write_patch_set
from doap.errors import DoapError
from doap.files import atomic_file, atomic_folder, make_folder, write_text
from doap.images.reading import find_photos, read_grey
from doap.images.reconstruction.scene_frames import (
    MIN_GROUPS,
    SceneFrames,
    find_single_frames,
    find_static_frames,
    find_tracked_frames,
)
from doap.images.reconstruction.scenes import PhotoCluster, cluster_photos
from doap.types import Grey, Progress, StepProgress, no_step_progress

CACHE_VERSION = 2  # raise it when the cached results change


@dataclass(frozen=True)
class BuildResult:
    """The scenes of a built set, and one line for each photo or folder that was skipped."""

    scenes: list[Scene]
    skipped: list[str]


@dataclass(frozen=True)
class _Cluster:
    """Photos that belong together, and the name of their scene."""

    name: str
    kind: str
    photos: list[Photo]


def build(
    paths: Sequence[Path],
    target: Path,
    settings: BuildSettings,
    pixels: bool = True,
    progress: StepProgress = no_step_progress,
) -> BuildResult:
    """Build a patch set or a frame set from photos and folders of photos.

    Photos of one scene or of one static view must be in one folder.

    Args:
        paths: Photos and folders, which are searched recursively.
        target: The set to create; refused if it exists.
        settings: Settings of the build.
        pixels: Write a patch set; otherwise a frame set of photos and frames.
        progress: Callback, called as progress(step, done, total).

    Raises:
        DoapError: If no photo has groups, or another build of this set is running.
    """
    if target.exists():
        raise DoapError(f"{target}: exists already; remove it or choose another name")
    photos = _name_photos(paths)
    cache = make_folder(target.absolute().parent / f".{target.name}.building")
    try:
        with FileLock(cache / "lock", timeout=0):
            return _build(photos, target, cache, settings, pixels, progress)
    except Timeout as error:
        raise DoapError(f"{target}: another build of this set is running ({cache}); wait until it ends") from error


def _build(
    photos: list[Photo], target: Path, cache: Path, settings: BuildSettings, pixels: bool, progress: StepProgress
) -> BuildResult:
    skipped: list[str] = []
    clusters = _find_clusters(photos, cache, settings, skipped, progress)
    scenes = _find_scenes(clusters, cache, settings, skipped, progress)
    if not scenes:
        raise DoapError(f"no groups found in any photo: {'; '.join(skipped[:3])}{' …' if len(skipped) > 3 else ''}")
    progress("writing", 0, 1)
    frames = assemble(scenes, settings)
    if pixels:
        with write_patch_set(target, PATCH_SIZE, frames.sequence_names, frames.extent) as writer:
            append_patches(
                frames,
                writer,
                VIEWS_PER_GROUP,
                settings.seed,
                lambda done, total: progress("extracting patches", done, total),
            )
            write_summary(writer.folder, frames, scenes, skipped)
    else:
        with atomic_folder(target) as folder:
            frames.write(folder)
            write_summary(folder, frames, scenes, skipped)
    shutil.rmtree(cache, ignore_errors=True)
    return BuildResult(scenes, skipped)


def _find_clusters(
    photos: list[Photo], cache: Path, settings: BuildSettings, skipped: list[str], progress: StepProgress
) -> list[_Cluster]:
    """Find photos that belong together, folder by folder."""
    clusters: list[_Cluster] = []
    before = 0
    for _, in_folder in groupby(photos, key=lambda photo: photo.path.parent):
        folder = list(in_folder)
        clusters += _cluster_folder(folder, cache, settings, skipped, _scaled(progress, before, folder, photos))
        before += len(folder)
        progress("sorting photos", before, len(photos))
    return clusters


def _scaled(progress: StepProgress, before: int, folder: list[Photo], photos: list[Photo]) -> Progress:
    """Return a callback that reports the progress within a folder as a number of photos."""
    return lambda done, total: progress("sorting photos", before + len(folder) * done // total, len(photos))


def _find_scenes(
    clusters: list[_Cluster], cache: Path, settings: BuildSettings, skipped: list[str], progress: StepProgress
) -> list[Scene]:
    """Find the frames of each cluster; clusters without groups are added to `skipped`."""
    total, done = sum(len(cluster.photos) for cluster in clusters), 0
    scenes = []
    for cluster in clusters:
        frames = _cached_frames(cluster, cache, settings)
        if frames is None:
            skipped.append(_explain_skipped(cluster.photos))
        else:
            scenes.append(Scene(cluster.name, cluster.photos, frames))
        done += len(cluster.photos)
        progress("finding frames", done, total)
    return scenes


def _name_photos(paths: Sequence[Path]) -> list[Photo]:
    """Return all photos sorted by folder, named by their path relative to the given folder."""
    photos: dict[Path, Photo] = {}
    for root in paths:
        for path in find_photos([root]):
            name = f"{root.resolve().name}/{path.relative_to(root).as_posix()}" if root.is_dir() else path.name
            photos.setdefault(path.resolve(), Photo(path, name))
    return sorted(photos.values(), key=lambda photo: (str(photo.path.parent), photo.path.name))


def _cluster_folder(
    folder: list[Photo], cache: Path, settings: BuildSettings, skipped: list[str], progress: Progress
) -> Iterator[_Cluster]:
    """Find photos of a folder that belong together; unreadable and unlinked photos are added to `skipped`."""
    file = cache / f"folder-{_cache_key(folder, settings, '')}.json"
    if not file.exists():
        readable, failures = _find_readable(folder)
        clusters = _cluster_photos([folder[i] for i in readable], settings, progress)
        entries = [{"kind": c.kind, "photos": [readable[i] for i in c.photos]} for c in clusters]
        write_text(file, json.dumps({"clusters": entries, "failures": failures}))
    content = json.loads(file.read_text(encoding="utf-8"))
    skipped += content["failures"]
    clusters = [PhotoCluster(**entry) for entry in content["clusters"]]
    scenes = sum(cluster.kind != "single" for cluster in clusters)
    for cluster in clusters:
        members = [folder[i] for i in cluster.photos]
        name = members[0].name
        if cluster.kind != "single" and scenes == 1:
            name = Path(name).parent.as_posix()
        yield _Cluster(name, cluster.kind, members)
    used = {i for cluster in clusters for i in cluster.photos}
    unused = len(folder) - len(used) - len(content["failures"])
    if unused:
        skipped.append(
            f"{folder[0].path.parent}: {unused} photos not linked to the others, but probably of the same scene"
        )


def _cluster_photos(photos: list[Photo], settings: BuildSettings, progress: Progress) -> list[PhotoCluster]:
    return cluster_photos(len(photos), lambda i: read_photo(photos[i], settings), progress) if photos else []


def _find_readable(folder: list[Photo]) -> tuple[list[int], list[str]]:
    """Return the indices of photos that can be read, and the errors of the others."""
    readable, failures = [], []
    for number, photo in enumerate(folder):
        try:
            read_grey(photo.path)
            readable.append(number)
        except DoapError as error:
            failures.append(str(error))
    return readable, failures


def _cached_frames(cluster: _Cluster, cache: Path, settings: BuildSettings) -> SceneFrames | None:
    file = cache / f"scene-{_cache_key(cluster.photos, settings, cluster.kind)}.npz"
    if file.exists():
        return _load_frames(file)
    frames = _find_frames(cluster.kind, [read_photo(photo, settings) for photo in cluster.photos], settings)
    with atomic_file(file) as temporary, temporary.open("wb") as output:
        np.savez(output, **({} if frames is None else asdict(frames)))
    return frames


def _find_frames(kind: str, images: list[Grey], settings: BuildSettings) -> SceneFrames | None:
    frames = None
    if kind == "static" and settings.static:
        frames = find_static_frames(images, settings.points, settings.extent)
    elif kind == "overlapping" and settings.tracks:
        frames = find_tracked_frames(images, settings.seed)
    if frames is None and settings.views:
        # Only one photo: a point in two photos of a scene would be two groups, and each other's negatives.
        photo = int(np.argmax([image.std() for image in images]))
        frames = find_single_frames(images[photo], settings.points, photo)
    return frames


def _load_frames(file: Path) -> SceneFrames | None:
    with np.load(file, allow_pickle=False) as content:
        if not content.files:
            return None
        arrays = {name: content[name] for name in content.files}
    return SceneFrames(**{**arrays, "source": str(arrays["source"]), "note": str(arrays["note"])})


def _explain_skipped(photos: list[Photo]) -> str:
    reason = f"fewer than {MIN_GROUPS} distinct keypoints found"
    if len(photos) == 1:
        return f"{photos[0].path}: {reason}; it is flat or too small"
    return f"{photos[0].path.parent}: {reason} in {len(photos)} photos"


def _cache_key(photos: list[Photo], settings: BuildSettings, kind: str) -> str:
    """Return a name for the result of these photos and settings."""
    stats = [photo.path.stat() for photo in photos]
    states = [(p.name, str(p.path.resolve()), s.st_size, s.st_mtime_ns) for p, s in zip(photos, stats, strict=True)]
    return hashlib.sha256(json.dumps([CACHE_VERSION, kind, asdict(settings), states]).encode()).hexdigest()[:24]
