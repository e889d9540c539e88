"""A frame set from which sets in the official formats can be made: tracked scenes, a static camera, single photos."""

from functools import cache

import numpy as np

from doap.datasets.sets.frame_set import FrameSet
from support.sets.small_frame_set import (
    FrameSetMaker,
    add_plane,
    add_singles,
    add_static,
    crop_photo,
    sample_points,
    warp,
)

LONG_PHOTOS = 12  # of the scenes whose points are in more than ten photos


def add_long_plane(maker: FrameSetMaker, folder: str, number: int) -> None:
    """Add twelve photos of a plane, each shifted by another pixel and darker; all show the same 40 groups."""
    points = sample_points(40, number)
    photos, centres = {}, []
    for photo in range(LONG_PHOTOS):
        shift = np.array([[1.0, 0, photo % 4], [0, 1, photo // 4], [0, 0, 1]])
        darker = (crop_photo(number) * (1 - 0.04 * photo)).astype(np.uint8)
        photos[f"{folder}/{photo:02d}.png"] = warp(darker, shift)
        centres.append(points + shift[:2, 2])
    maker.add(folder, "tracks", photos, centres)


@cache  # tests do not change it
def look_alike_frames() -> FrameSet:
    """Return a set: two scenes of twelve photos and two of three, a static camera, six single photos."""
    maker = FrameSetMaker()
    for number in range(2):
        add_long_plane(maker, f"set/long{number}", number)
        add_plane(maker, f"set/plane{number}", number + 2)
    add_static(maker, "set/static", 4)
    for number in range(6):
        add_singles(maker, f"set/single{number}", 1)
    return maker.frame_set()
