"""Frame sets put together: from the scenes of a build, or from unrelated photos."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.datasets.sets.frame_set import SOURCES, Encoded, FrameSet, encode
from doap.datasets.sets.writer import DEFAULT_EXTENT
from doap.errors import DoapError
from doap.images.overlaps import overlapping_groups
from doap.images.reading import is_compact, read_grey, shrink
from doap.images.reconstruction.scene_frames import SceneFrames
from doap.types import Frames, Grey

QUALITY = 95  # of photos that have to be encoded anew


@dataclass(frozen=True)
class BuildSettings:
    """What to take from photos.

    Attributes:
        points: groups a photo or a still view gives at most; tracks are all kept.
        views: take jittered views of single photos.
        fixed: take pictures of still views.
        tracks: take points tracked through overlapping photos.
        longest: photos are shrunk to this many pixels on their longer side.
        extent: half the side of a patch in units of the frame's scale.
        seed: fixes the build.
    """

    points: int = 400
    views: bool = True
    fixed: bool = True
    tracks: bool = True
    longest: int = 1600
    extent: float = DEFAULT_EXTENT
    seed: int = 0


@dataclass(frozen=True)
class Photo:
    """A photo: where it is, and what the set calls it."""

    path: Path
    name: str


@dataclass(frozen=True)
class Scene:
    """Photos that belong together, and what they gave."""

    name: str
    photos: list[Photo]
    found: SceneFrames


def assemble(scenes: list[Scene], settings: BuildSettings) -> FrameSet:
    """Number photos, groups and sequences through; photos that no frame lies in are left behind."""
    pictures: list[Encoded] = []
    names: list[str] = []
    parts: dict[str, list[NDArray[Any]]] = {
        k: [] for k in ("photos", "frames", "groups", "sequences", "sources", "overlaps")
    }
    groups = 0
    for number, scene in enumerate(scenes):
        found = scene.found
        used, photos = np.unique(found.photos, return_inverse=True)
        parts["photos"].append(photos.ravel() + len(pictures))
        parts["frames"].append(found.frames)
        parts["groups"].append(found.groups + groups)
        parts["sequences"].append(np.full(len(photos), number))
        parts["sources"].append(np.full(len(photos), SOURCES.index(found.source)))
        parts["overlaps"].append(found.overlaps + groups)
        pictures += [_encoded(scene.photos[place], settings) for place in used]
        names += [scene.photos[place].name for place in used]
        groups += int(found.groups.max()) + 1
    joined = {name: np.concatenate(some) for name, some in parts.items()}
    return FrameSet(
        pictures,
        names,
        joined["photos"],
        joined["frames"],
        joined["groups"],
        joined["sequences"],
        joined["sources"],
        [scene.name for scene in scenes],
        joined["overlaps"],
        settings.extent,
    )


def frames_of_photos(photos: Iterable[tuple[str, Grey]], detect: Callable[[Grey], Frames]) -> FrameSet:
    """A frame set of unrelated photos: every detected frame is a group, every photo a sequence.

    Args:
        photos: name and picture of each.
        detect: gives the frames of a picture, (N, 2, 3); photos without one are left out.

    Raises:
        DoapError: if no photo has a frame.
    """
    names, pictures, found = [], [], []
    for name, image in photos:
        frames = detect(image)
        if len(frames):
            names.append(name)
            pictures.append(encode(image))
            found.append(frames)
    if not found:
        raise DoapError("no keypoint found in any photo; are they flat or tiny?")
    photo = np.repeat(np.arange(len(found)), [len(frames) for frames in found])
    frames = np.concatenate(found)
    groups = np.arange(len(frames))
    overlaps = overlapping_groups(photo, frames, groups)
    return FrameSet(pictures, names, photo, frames, groups, photo, np.zeros_like(photo), names, overlaps)


def read_photo(photo: Photo, settings: BuildSettings) -> Grey:
    """The photo as the build sees it: grey, and shrunk if it is large."""
    return shrink(read_grey(photo.path), settings.longest)


def _encoded(photo: Photo, settings: BuildSettings) -> Encoded:
    """The photo's own bytes if they are few, so that nothing is lost; otherwise encoded anew, grey."""
    if is_compact(photo.path, settings.longest):
        return np.frombuffer(photo.path.read_bytes(), np.uint8)
    return encode(read_photo(photo, settings), QUALITY)
