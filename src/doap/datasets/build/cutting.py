"""Extraction of patches from a frame set, once for all epochs."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from doap.datasets.sets.frame_set import Encoded, FrameSet, decode_photo
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.writer import PatchSetWriter, write_patch_set
from doap.images.extraction import Pyramid, extract_patches
from doap.images.jitter.views import LEVELS, jittered_views
from doap.types import Frames, Progress, no_progress

PATCH_SIZE = 32  # pixels
VIEWS_PER_GROUP = 4


def cut_patches(
    frames: FrameSet,
    path: Path,
    size: int = PATCH_SIZE,
    views_per_group: int = VIEWS_PER_GROUP,
    seed: int = 0,
    progress: Progress = no_progress,
) -> None:
    """Extract every frame of a frame set once without jitter, and jittered views of small groups.

    A group of fewer than `views_per_group` frames is filled up with easy, hard and tough views of them, in turn: a
    group of one frame becomes one undisturbed patch and one view per level. The label "level" is 0 for undisturbed
    patches, then 1, 2, 3. The labels "photo" and "source" are those of the frame set, and every patch keeps its frame.

    Args:
        frames: The frame set.
        path: The patch set to write.
        size: Side of the patches in pixels.
        views_per_group: Minimum number of patches per group.
        seed: Determines the views.
        progress: Callback, called as progress(done, total) with numbers of photos.
    """
    with write_patch_set(path, size, frames.sequence_names, frames.extent) as writer:
        append_patches(frames, writer, views_per_group, seed, progress)


@dataclass(frozen=True)
class CutTask:
    """A photo of a frame set, and the patches to cut from it.

    Attributes:
        encoded: The photo, as the bytes of an image file.
        name: Its name.
        frames: (P, 2, 3).
        levels: (P,) 0 for undisturbed patches, then 1, 2, 3 for easy, hard and tough views.
        size: Side of the patches in pixels.
        extent: Half the side of a patch in units of its frame's scale.
        seed: Determines the views.
    """

    encoded: Encoded
    name: str
    frames: Frames
    levels: Ids
    size: int
    extent: float
    seed: int


MapCuts = Callable[[Callable[[CutTask], NDArray[np.uint8]], Iterator[CutTask]], Iterator[NDArray[np.uint8]]]
"""The map that cuts the photos: Python's `map`, or that of an engine."""


def append_patches(
    frames: FrameSet,
    writer: PatchSetWriter,
    views_per_group: int,
    seed: int,
    progress: Progress,
    map_photos: MapCuts = map,
) -> None:
    """Extract patches into an open patch set; arguments as in `cut_patches`."""
    writer.photo_names, writer.overlaps = frames.photo_names, frames.overlaps
    items, levels = _plan(frames, views_per_group)
    rows_by_photo = _split_by_photo(frames, items)
    tasks = (_cut_task(frames, photo, items[rows], levels[rows], writer.size, seed) for photo, rows in rows_by_photo)
    for done, ((_, rows), patches) in enumerate(zip(rows_by_photo, map_photos(cut_photo, tasks), strict=True), 1):
        selected = items[rows]
        writer.append(
            patches,
            frames.groups[selected],
            frames.sequences[selected],
            frames.frames[selected],
            photo=frames.photos[selected],
            source=frames.sources[selected],
            level=levels[rows],
        )
        progress(done, len(rows_by_photo))


def cut_items(
    frames: FrameSet, items: Ids, levels: Ids, size: int, seed: int, progress: Progress = no_progress
) -> NDArray[np.uint8]:
    """Extract some frames of a frame set, several photos at once.

    Args:
        frames: The frame set.
        items: (P,) indices of frames, in any order.
        levels: (P,) 0 for undisturbed patches, then 1, 2, 3 for easy, hard and tough views.
        size: Side of the patches in pixels.
        seed: Determines the views.
        progress: Callback, called as progress(done, total) with numbers of photos.

    Returns:
        (P, size, size) uint8.
    """
    patches = np.empty((len(items), size, size), np.uint8)
    rows_by_photo = _split_by_photo(frames, items)

    def cut(photo: int, rows: Ids) -> None:
        patches[rows] = cut_photo(_cut_task(frames, photo, items[rows], levels[rows], size, seed))

    with ThreadPoolExecutor() as pool:  # decoding and sampling release the interpreter lock
        futures = [pool.submit(cut, photo, rows) for photo, rows in rows_by_photo]
        try:
            for done, future in enumerate(futures, 1):
                future.result()
                progress(done, len(futures))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return patches


def _split_by_photo(frames: FrameSet, items: Ids) -> list[tuple[int, Ids]]:
    """Return the photos of some frames, sorted, and the positions of each photo's frames in `items`."""
    order = np.argsort(frames.photos[items], kind="stable")
    photos, starts = np.unique(frames.photos[items[order]], return_index=True)
    return list(zip(photos.tolist(), np.split(order, starts[1:]), strict=True))


def _plan(frames: FrameSet, views_per_group: int) -> tuple[Ids, Ids]:
    """Return the frames to extract and their levels, level by level: two arrays (P,)."""
    sizes = np.diff(frames.members_start)
    items, levels = [frames.members], [np.zeros(len(frames), np.int64)]
    for extra in range(views_per_group - 1):
        incomplete = np.flatnonzero(sizes + extra < views_per_group)
        # The extra patches of a group cycle through its members and through the levels.
        items.append(frames.members[frames.members_start[incomplete] + extra % sizes[incomplete]])
        levels.append(np.full(len(incomplete), 1 + extra % len(LEVELS)))
    return np.concatenate(items), np.concatenate(levels)


def _cut_task(frames: FrameSet, photo: int, items: Ids, levels: Ids, size: int, seed: int) -> CutTask:
    encoded, name = np.asarray(frames.encoded_photos[photo]), frames.photo_names[photo]
    return CutTask(encoded, name, frames.frames[items], levels, size, frames.extent, seed + photo)


def cut_photo(task: CutTask) -> NDArray[np.uint8]:
    """Cut the patches of a photo, (P, size, size)."""
    pyramid = Pyramid(decode_photo(task.encoded, task.name))
    random = torch.Generator().manual_seed(task.seed)
    patches = np.empty((len(task.frames), task.size, task.size), np.uint8)
    for level in np.unique(task.levels):
        rows = task.levels == level
        at_level = task.frames[rows]
        patches[rows] = (
            extract_patches(pyramid, at_level, task.size, task.extent)
            if level == 0
            else jittered_views(pyramid, at_level, list(LEVELS)[level - 1], task.size, task.extent, random).numpy()
        )
    return patches
