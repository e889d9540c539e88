"""Which photos of a folder belong together: the same view standing still, or overlapping views of a scene.

Two photos are linked if their edges coincide (`still.py`) or if their features agree on one geometry that chance
cannot explain. A folder most of whose photos are linked is one scene, and its other photos are left out: they probably
show the scene too, and would make false negatives. In any other folder linked photos make scenes, and the rest stand
alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from doap.geometry.robust import verify
from doap.images.reconstruction.static import Map, edge_map, register_static, thumbnail
from doap.images.reconstruction.tracks import RATIO, THRESHOLD, Ids, PhotoFeatures, components, photo_features
from doap.matching.nearest import distinctive_matches
from doap.types import Grey

FEATURES = 512
MIN_MATCHES = 12
ALIKE = 0.25  # product of thumbnails above which two pictures may be one view; unrelated ones rarely reach 0.2
WINDOW = 300  # photos of a large folder are compared with so many after them, by name
EDGE_MAPS = 32  # kept at a time

Kind = Literal["single", "still", "overlapping"]


@dataclass(frozen=True)
class Belonging:
    """Photos that belong together, by their place in the folder."""

    kind: Kind
    photos: list[int]


def group_photos(
    count: int, read: Callable[[int], Grey], progress: Callable[[], None] = lambda: None
) -> list[Belonging]:
    """Find which photos of a folder belong together; photos left out are in none of the answers.

    Args:
        count: how many photos the folder has.
        read: gives photo i, grey; called more than once for some.
        progress: called twice for each photo of a folder of several: when it is read, and when it is compared.
    """
    if count == 1:
        return [Belonging("single", [0])]
    features, thumbnails, sizes = [], [], []
    for number in range(count):
        image = read(number)
        features.append(_compact(photo_features(image, FEATURES)))
        thumbnails.append(thumbnail(edge_map(image)))
        sizes.append(image.shape)
        progress()
    still = _static_links(read, np.stack(thumbnails), sizes)
    linked = np.concatenate([still, _feature_links(features, still, progress)])
    return _sort_out(count, still, linked)


def _static_links(read: Callable[[int], Grey], thumbnails: NDArray[np.float32], sizes: Sequence[object]) -> Ids:
    @lru_cache(EDGE_MAPS)
    def edges(number: int) -> Map:
        return edge_map(read(number))

    alike = np.argwhere(np.triu(thumbnails @ thumbnails.T, 1) > ALIKE)
    links = [
        (i, j) for i, j in alike.tolist() if sizes[i] == sizes[j] and register_static(edges(i), edges(j)) is not None
    ]
    return np.array(links, np.int64).reshape(-1, 2)


def _feature_links(features: list[PhotoFeatures], known: Ids, progress: Callable[[], None]) -> Ids:
    """Links that join what is not joined yet; those between photos of one part would not change it."""
    part = components(len(features), known[:, 0], known[:, 1])
    links = []
    for i, first in enumerate(features):
        for j, second in enumerate(features[i + 1 : i + 1 + WINDOW], i + 1):
            if part[i] != part[j] and _overlap(first, second):
                links.append((i, j))
                part[part == part[j]] = part[i]
        progress()
    return np.array(links, np.int64).reshape(-1, 2)


def _overlap(first: PhotoFeatures, second: PhotoFeatures) -> bool:
    a, b = (photo.descriptors.astype(np.float32) for photo in (first, second))
    matches = distinctive_matches(a, b, RATIO)
    if len(matches) < MIN_MATCHES:
        return False
    points = first.frames[matches[:, 0], :, 2], second.frames[matches[:, 1], :, 2]
    return int(verify(*points, second.size, "fundamental", THRESHOLD).inliers.sum()) >= MIN_MATCHES


def _compact(features: PhotoFeatures) -> PhotoFeatures:
    """Half the memory: a folder of thousands is held at once."""
    return PhotoFeatures(features.frames, features.descriptors.astype(np.float16), features.size)


def _sort_out(count: int, still: Ids, linked: Ids) -> list[Belonging]:
    part = components(count, linked[:, 0], linked[:, 1])
    static_part = components(count, still[:, 0], still[:, 1])
    members = [np.flatnonzero(part == number) for number in range(part.max() + 1)]
    largest = max(members, key=len)
    is_scene = len(largest) >= 2 and 2 * len(largest) >= count
    found: list[Belonging] = []
    for photos in [largest] if is_scene else members:
        if len(photos) == 1:
            found.append(Belonging("single", photos.tolist()))
        elif len(np.unique(static_part[photos])) == 1:
            found.append(Belonging("still", photos.tolist()))
        else:
            # Photos that 512 features did not link may still find their place in the scene with all of theirs.
            found.append(Belonging("overlapping", list(range(count)) if is_scene else photos.tolist()))
    return found
