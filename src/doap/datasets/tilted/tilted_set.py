"""Tilted sets: frame sets of photos and of views of them from the side, with the homographies between them.

On disk a tilted set is the folder of its frame set with one more file:

    homographies.npy       float64 (P, 3, 3): from each photo of the set to the photo that it is a view of
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.tilted.views import PhotoTask, PhotoViews, TiltSettings, make_views
from doap.errors import DoapError
from doap.files import atomic_folder
from doap.images.frames import transform_frames
from doap.images.reconstruction.overlaps import find_overlapping_groups
from doap.parallel import open_engine
from doap.parsing.array_files import parse_array
from doap.types import Progress, no_progress

HOMOGRAPHIES = "homographies.npy"


@dataclass(frozen=True, eq=False)
class TiltedSet:
    """Photos and tilted views of them; the frames of a group show one point of a photo.

    Attributes:
        frames: The views as a frame set; a sequence is a photo with its views.
        homographies: (P, 3, 3) from each view to its photo.
    """

    frames: FrameSet
    homographies: NDArray[np.float64]

    def __post_init__(self) -> None:
        count = len(self.frames.encoded_photos)
        if self.homographies.shape != (count, 3, 3) or not np.isfinite(self.homographies).all():
            raise DoapError(f"homographies must be {count} finite 3x3 matrices, not {self.homographies.shape}")

    def jacobians(self) -> NDArray[np.float32]:
        """Return the affine approximation at each frame of the map from its view to the photo, (N, 2, 2)."""
        jacobians = np.zeros((len(self.frames), 2, 2), np.float32)
        for photo in np.unique(self.frames.photos):
            own = self.frames.photos == photo
            circles = self.frames.frames[own].copy()
            circles[:, :, :2] = np.eye(2)
            jacobians[own] = transform_frames(circles, self.homographies[photo])[:, :, :2]
        return jacobians

    def save(self, path: Path | str) -> None:
        """Write the set as a folder, atomically. An existing path is refused."""
        with atomic_folder(Path(path)) as folder:
            self.frames.write(folder)
            np.save(folder / HOMOGRAPHIES, self.homographies)

    @classmethod
    def open(cls, path: Path | str) -> "TiltedSet":
        """Open a saved set.

        Raises:
            DoapError: If it is damaged, or a frame set without homographies.
        """
        folder = Path(path)
        frames = FrameSet.open(folder)
        file = folder / HOMOGRAPHIES
        try:
            homographies = parse_array(file.read_bytes())
        except FileNotFoundError as error:
            raise DoapError(f"{folder}: has no tilted views; make them with doap data tilt") from error
        except (OSError, ValueError) as error:
            raise DoapError(f"{file}: cannot be read ({error}); make the set again") from error
        try:
            return cls(frames, np.asarray(homographies, np.float64))
        except DoapError as error:
            raise DoapError(f"{file}: {error}; make the set again") from error


def make_tilted_set(
    photos: FrameSet,
    settings: TiltSettings,
    limit: int | None = None,
    workers: int | None = None,
    progress: Progress = no_progress,
) -> TiltedSet:
    """Make tilted views of the photos of a frame set, on all cores.

    Args:
        photos: The set; its frames are not used, because frames are detected in every view.
        settings: How views are made.
        limit: Number of photos, sampled at random; None for all.
        workers: Number of processes; by default one per core.
        progress: Callback, called as progress(done, total) after each photo.

    Raises:
        DoapError: If no frame of any view corresponds to one of its photo.
    """
    used = np.unique(photos.photos)
    if limit is not None and limit < len(used):
        used = np.sort(np.random.default_rng(settings.seed).choice(used, limit, replace=False))
    names = [photos.photo_names[photo] for photo in used]
    tasks = (
        PhotoTask(int(photo), name, np.asarray(photos.encoded_photos[photo]), settings)
        for photo, name in zip(used, names, strict=True)
    )
    parts: list[PhotoViews] = []
    with open_engine("local", workers) as engine:
        for part in engine.map(make_views, tasks):
            parts.append(part)
            progress(len(parts), len(used))
    if not sum(len(part.frames) for part in parts):
        raise DoapError("no frame of a tilted view corresponds to one of its photo; use photos with more texture")
    return _assemble(parts, names, photos.extent)


def _assemble(parts: list[PhotoViews], names: list[str], extent: float) -> TiltedSet:
    counts = [len(part.frames) for part in parts]
    first_view = np.cumsum([0, *(len(part.encoded) for part in parts)])
    first_point = np.cumsum([0, *(int(part.points.max(initial=-1)) + 1 for part in parts)])
    frames = np.concatenate([part.frames for part in parts])
    views = np.concatenate([part.views + first for part, first in zip(parts, first_view, strict=False)])
    groups = np.concatenate([part.points + first for part, first in zip(parts, first_point, strict=False)])
    frame_set = FrameSet(
        [view for part in parts for view in part.encoded],
        [
            f"{name}/view-{number}"
            for name, part in zip(names, parts, strict=True)
            for number in range(len(part.encoded))
        ],
        views,
        frames,
        groups,
        np.repeat(np.arange(len(parts)), counts),
        np.full(len(frames), SOURCES.index("tracks")),
        names,
        find_overlapping_groups(views, frames, groups),
        extent,
    )
    return TiltedSet(frame_set, np.concatenate([part.homographies for part in parts]))
