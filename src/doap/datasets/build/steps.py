"""Steps of a build that workers run.

Results that other steps need are written to files, atomically: they take no memory, and a build that is killed
continues with them.
"""

from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from doap.datasets.build.settings import BuildSettings
from doap.datasets.sets.frame_set import encode
from doap.errors import DoapError
from doap.files import atomic_file
from doap.images.reading import is_compact, read_grey, shrink
from doap.images.reconstruction.cached_arrays import read_cached
from doap.images.reconstruction.photo_features import PhotoFeatures, PhotoRecord
from doap.images.reconstruction.scene_frames import (
    SceneFrames,
    find_single_frames,
    find_static_frames,
    find_tracked_frames,
)
from doap.images.reconstruction.scenes import LINK_FEATURES, SceneKind, find_feature_links, find_static_candidates
from doap.images.reconstruction.static import EdgeMap, edge_map, register_static
from doap.images.reconstruction.tracks import Ids, load_pairs, match_photos, save_pairs

WEBP_QUALITY = 95  # of photos that are encoded again
CACHED_FEATURES = 64  # per worker
CACHED_EDGE_MAPS = 8

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PhotoFiles:
    """Files of a photo in a build.

    Attributes:
        path: The photo.
        encoded: Where the photo is written as the set stores it, unless that is the file itself.
        record: Where its features are written.
    """

    path: Path
    encoded: Path
    record: Path

    def stored(self) -> Path:
        """Return the file that the set stores."""
        return self.encoded if self.encoded.exists() else self.path


@dataclass(frozen=True)
class PhotoTask:
    """A photo to prepare, shrunk to `longest` pixels."""

    files: PhotoFiles
    longest: int


@dataclass(frozen=True)
class LinkTask:
    """Pairs of photos of a folder to compare: those that may be of a static camera, and all pairs by features."""

    photos: dict[int, PhotoFiles]
    static: Pairs
    pairs: Pairs


@dataclass(frozen=True)
class MatchTask:
    """Pairs of photos of a scene to match, and the file of the matches."""

    photos: dict[int, PhotoFiles]
    pairs: Pairs
    target: Path


@dataclass(frozen=True)
class SceneTask:
    """Photos of one scene, the files of their matches, and the file of the frames to find."""

    kind: SceneKind
    photos: tuple[PhotoFiles, ...]
    matches: tuple[Path, ...]
    settings: BuildSettings
    target: Path


def prepare_photo(task: PhotoTask) -> str | None:
    """Read a photo and extract its features; encode it again if it is large. Return the error if it is unreadable.

    All steps use the photo as it is stored, so that large files are decoded once.
    """
    files = task.files
    try:
        image = read_grey(files.path)
    except DoapError as error:
        return str(error)
    if not is_compact(files.path, task.longest):
        with atomic_file(files.encoded) as temporary:
            temporary.write_bytes(encode(shrink(image, task.longest), WEBP_QUALITY).tobytes())
        image = read_grey(files.encoded)
    PhotoRecord.of_image(image).save(files.record)
    return None


def find_candidates(photos: tuple[PhotoFiles, ...]) -> Ids:
    """Find the pairs of photos of a folder that may show one view of a static camera, (P, 2)."""
    records = [PhotoRecord.load(photo.record) for photo in photos]
    return find_static_candidates(np.stack([r.thumbnail for r in records]), [r.size for r in records])


def find_links(task: LinkTask) -> tuple[Ids, Ids]:
    """Find which photos show the same scene: (P, 2) links of static cameras, and (L, 2) links by features."""
    static = [
        (i, j)
        for i, j in task.static
        if register_static(_edges(task.photos[i].stored()), _edges(task.photos[j].stored())) is not None
    ]
    static_links = np.array(static, np.int64).reshape(-1, 2)
    features = {number: _features(photo.record, LINK_FEATURES) for number, photo in task.photos.items()}
    return static_links, find_feature_links(features, task.pairs, static_links)


def match_scene(task: MatchTask) -> None:
    """Match pairs of photos of a scene with all their features."""
    features = {number: _features(photo.record) for number, photo in task.photos.items()}
    save_pairs(task.target, match_photos(features, task.pairs))


def find_frames(task: SceneTask) -> None:
    """Find the groups of frames of a scene; an empty file says that there are none."""
    frames = _find_related_frames(task)
    if frames is None and task.settings.views:
        # Only one photo: a point in two photos of a scene would be two groups, and each other's negatives.
        records = [PhotoRecord.load(photo.record) for photo in task.photos]
        photo = int(np.argmax([record.contrast for record in records]))
        image = read_grey(task.photos[photo].stored())
        frames = find_single_frames(image, task.settings.points, photo, records[photo].frames)
    with atomic_file(task.target) as temporary, temporary.open("wb") as output:
        np.savez(output, **({} if frames is None else asdict(frames)))


def load_frames(file: Path) -> SceneFrames | None:
    """Read the frames that `find_frames` wrote."""
    names = {field.name for field in fields(SceneFrames)}
    arrays: dict[str, Any] = dict(read_cached(file, ()))
    if not arrays:
        return None
    if set(arrays) != names:
        raise DoapError(f"{file}: an array is missing; remove it and run the command again")
    return SceneFrames(**{**arrays, "source": str(arrays["source"]), "note": str(arrays["note"])})


def _find_related_frames(task: SceneTask) -> SceneFrames | None:
    """Find the frames that several photos of a scene share."""
    if task.kind == "static" and task.settings.static:
        images = [read_grey(photo.stored()) for photo in task.photos]
        dog = [PhotoRecord.load(photo.record).frames for photo in task.photos]
        return find_static_frames(images, task.settings.points, task.settings.extent, dog)
    if task.kind == "overlapping" and task.settings.tracks:
        features = [PhotoRecord.load(photo.record).features() for photo in task.photos]
        pairs = [pair for file in task.matches for pair in load_pairs(file)]
        return find_tracked_frames(features, sorted(pairs, key=lambda p: (p.first, p.second)), task.settings.seed)
    return None


@lru_cache(CACHED_FEATURES)
def _features(record: Path, limit: int | None = None) -> PhotoFeatures:
    return PhotoRecord.load(record).features(limit)


@lru_cache(CACHED_EDGE_MAPS)
def _edges(photo: Path) -> EdgeMap:
    return edge_map(read_grey(photo))
