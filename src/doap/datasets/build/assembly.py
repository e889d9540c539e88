"""Assembly of frame sets from the scenes of a build, or from unrelated photos."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.choices import DEFAULT_EXTENT
from doap.datasets.sets.frame_set import SOURCES, Encoded, FrameSet, encode
from doap.errors import DoapError
from doap.images.reconstruction.overlaps import find_overlapping_groups
from doap.images.reconstruction.scene_frames import SceneFrames
from doap.types import Frames, Grey


@dataclass(frozen=True)
class Photo:
    """The path of a photo, and its name in the set."""

    path: Path
    name: str


@dataclass(frozen=True)
class Scene:
    """Photos of one scene, and the groups of frames found in them."""

    name: str
    photos: list[Photo]
    frames: SceneFrames


def assemble(scenes: list[Scene], stored: Callable[[Photo], Path], extent: float) -> FrameSet:
    """Build a frame set from scenes, each a sequence; photos without a frame are dropped.

    Args:
        scenes: The scenes.
        stored: Returns the image file of a photo that the set stores.
        extent: Half the side of a patch in units of its frame's scale.
    """
    photos: list[Encoded] = []
    names: list[str] = []
    columns: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("photos", "frames", "groups", "sequences", "sources", "overlaps")
    }
    groups = 0
    for number, scene in enumerate(scenes):
        frames = scene.frames
        used, indices = np.unique(frames.photos, return_inverse=True)
        columns["photos"].append(indices.ravel() + len(photos))
        columns["frames"].append(frames.frames)
        columns["groups"].append(frames.groups + groups)
        columns["sequences"].append(np.full(len(indices), number))
        columns["sources"].append(np.full(len(indices), SOURCES.index(frames.source)))
        columns["overlaps"].append(frames.overlaps + groups)
        photos += [np.frombuffer(stored(scene.photos[i]).read_bytes(), np.uint8) for i in used]
        names += [scene.photos[i].name for i in used]
        groups += int(frames.groups.max()) + 1
    joined = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    return FrameSet(
        photos,
        names,
        joined["photos"],
        joined["frames"],
        joined["groups"],
        joined["sequences"],
        joined["sources"],
        [scene.name for scene in scenes],
        joined["overlaps"],
        extent,
    )


def frame_set_from_photos(
    photos: Iterable[tuple[str, Grey]], detect: Callable[[Grey], Frames], extent: float = DEFAULT_EXTENT
) -> FrameSet:
    """Build a frame set from unrelated photos: each detected frame is a group, each photo a sequence.

    Args:
        photos: Name and image of each photo.
        detect: Function that returns the frames of an image, (N, 2, 3); photos without frames are dropped.
        extent: Half the side of a patch in units of its frame's scale.

    Raises:
        DoapError: If no photo has a frame.
    """
    names, encoded, detected = [], [], []
    for name, image in photos:
        frames = detect(image)
        if len(frames):
            names.append(name)
            encoded.append(encode(image))
            detected.append(frames)
    if not detected:
        raise DoapError("no keypoint found in any photo; use larger photos with more texture")
    indices = np.repeat(np.arange(len(detected)), [len(frames) for frames in detected])
    frames = np.concatenate(detected)
    groups = np.arange(len(frames))
    overlaps = find_overlapping_groups(indices, frames, groups)
    return FrameSet(encoded, names, indices, frames, groups, indices, np.zeros_like(indices), names, overlaps, extent)
