"""From a frame set to a patch set: pixels cut once and for all."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.writer import PatchSetWriter, write_patch_set
from doap.images.extraction import Pyramid, extract_patches
from doap.images.jitter import LEVELS, jittered_views

SIZE = 32
VIEWS = 4


def cut_patches(
    frames: FrameSet,
    path: Path,
    size: int = SIZE,
    views: int = VIEWS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> None:
    """Cut every frame of a frame set once as it is, and small groups again under jittered views.

    A group of fewer than `views` frames is filled up with easy, hard and tough views of them, in turn: a group of
    one frame becomes one undisturbed patch and a view of each level. The label "level" says which: 0 undisturbed,
    then 1, 2, 3. "photo" and "source" are those of the frame set, and every patch keeps its frame.

    Args:
        frames: what to cut.
        path: the patch set to write.
        size: side of the patches in pixels.
        views: patches a group at least.
        seed: fixes the views.
        progress: told the photos done, and how many there are.
    """
    with write_patch_set(path, size, frames.sequence_names, frames.extent) as writer:
        append_cuts(frames, writer, views, seed, progress)


def append_cuts(
    frames: FrameSet, writer: PatchSetWriter, views: int, seed: int, progress: Callable[[int, int], None]
) -> None:
    """Cut into a patch set that is being written; arguments as `cut_patches`."""
    writer.photo_names, writer.overlaps = frames.photo_names, frames.overlaps
    items, levels = _plan(frames, views)
    order = np.argsort(frames.photos[items], kind="stable")
    photos, starts = np.unique(frames.photos[items[order]], return_index=True)
    for done, (photo, here) in enumerate(zip(photos, np.split(order, starts[1:]), strict=True), 1):
        cut, at = items[here], levels[here]
        writer.append(
            _cut_photo(frames, int(photo), cut, at, writer.size, seed),
            frames.groups[cut],
            frames.sequences[cut],
            frames.frames[cut],
            photo=frames.photos[cut],
            source=frames.sources[cut],
            level=at,
        )
        progress(done, len(photos))


def _plan(frames: FrameSet, views: int) -> tuple[Ids, Ids]:
    """Which frames to cut and at which level, level by level: two arrays (P,)."""
    sizes = np.diff(frames.members_start)
    items, levels = [frames.members], [np.zeros(len(frames), np.int64)]
    for extra in range(views - 1):
        lacking = np.flatnonzero(sizes + extra < views)
        # The extra patches of a group go round its members, and the levels go round too.
        items.append(frames.members[frames.members_start[lacking] + extra % sizes[lacking]])
        levels.append(np.full(len(lacking), 1 + extra % len(LEVELS)))
    return np.concatenate(items), np.concatenate(levels)


def _cut_photo(frames: FrameSet, photo: int, items: Ids, levels: Ids, size: int, seed: int) -> NDArray[np.uint8]:
    pyramid = Pyramid(frames.picture(photo))
    random = torch.Generator().manual_seed(seed + photo)
    patches = np.empty((len(items), size, size), np.uint8)
    for level in np.unique(levels):
        at = levels == level
        shown = frames.frames[items[at]]
        patches[at] = (
            extract_patches(pyramid, shown, size, frames.extent)
            if level == 0
            else jittered_views(pyramid, shown, list(LEVELS)[level - 1], size, frames.extent, random).numpy()
        )
    return patches
