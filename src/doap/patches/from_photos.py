"""A patch set from anybody's photos: a group is one detected point under jittered views."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from doap.errors import DoapError
from doap.patches.writer import DEFAULT_EXTENT, write_patch_set
from doap.photos.extract import Pyramid, extract_patches
from doap.photos.frames import detect_dog
from doap.photos.images import Grey
from doap.photos.views import LEVELS, jittered_views

SIZE = 32


def build_from_photos(
    photos: Iterable[tuple[str, Grey]],
    path: Path,
    points: int,
    extent: float = DEFAULT_EXTENT,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _name: None,
) -> list[str]:
    """Cut groups of four patches, one undisturbed and one view of each level, around the points of each photo.

    Each photo is a sequence. The label "level" is 0 for the undisturbed patch, then 1, 2, 3 for easy, hard
    and tough.

    Args:
        photos: name and picture of each; one is held at a time.
        path: the patch set to write.
        points: groups a photo at most, its strongest DoG frames.
        extent: half the side of the patch in units of the frame's scale.
        seed: fixes the views.
        progress: called with the name of each photo when it is done.

    Returns:
        The names of photos without a keypoint, which give no groups.

    Raises:
        DoapError: if no photo has one; nothing is written then.
    """
    empty: list[str] = []
    names: list[str] = []
    with write_patch_set(path, SIZE, names, extent) as writer:
        group = 0
        for name, image in photos:
            frames = detect_dog(image, points)
            if len(frames):
                pyramid = Pyramid(image)
                random = torch.Generator().manual_seed(seed + len(names))
                views = [extract_patches(pyramid, frames, SIZE, extent)]
                views += [jittered_views(pyramid, frames, level, SIZE, extent, random).numpy() for level in LEVELS]
                count = len(frames)
                writer.append(
                    np.concatenate(views),
                    np.tile(np.arange(group, group + count), len(views)),
                    np.full(count * len(views), len(names)),
                    level=np.repeat(np.arange(len(views)), count),
                )
                names.append(name)
                group += count
            else:
                empty.append(name)
            progress(name)
        if not names:
            raise DoapError(f"no keypoint found in {', '.join(empty) or 'no photo'}; are they flat or tiny?")
    return empty
