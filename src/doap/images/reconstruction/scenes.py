"""Clustering of the photos of a folder: views of a static camera, overlapping views of a scene, and single photos.

Two photos are linked if their edges coincide (`static.py`) or if their features agree on a verified geometry. If at
least half of the photos of a folder are linked, the folder is one scene. Unlinked photos of it are not used as single
photos: they probably show the scene too, and would give false negatives. In any other folder, linked photos are scenes,
and the other photos are single.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from doap.geometry.robust import verify
from doap.images.reconstruction.static import EdgeMap, edge_map, register_static, thumbnail
from doap.images.reconstruction.tracks import RATIO, THRESHOLD, Ids, PhotoFeatures, components, extract_features
from doap.matching.nearest import distinctive_matches
from doap.types import Grey, Progress, no_progress

MAX_FEATURES = 512
MIN_MATCHES = 12
MIN_SIMILARITY = 0.25  # of thumbnails of one view; unrelated photos rarely reach 0.2
WINDOW = 300  # in a large folder, each photo is compared with this many after it, by name
CACHED_EDGE_MAPS = 32

SceneKind = Literal["single", "static", "overlapping"]


@dataclass(frozen=True)
class PhotoCluster:
    """Photos that show the same scene, as indices into the folder."""

    kind: SceneKind
    photos: list[int]


def cluster_photos(count: int, read: Callable[[int], Grey], progress: Progress = no_progress) -> list[PhotoCluster]:
    """Find which photos of a folder show the same scene.

    Args:
        count: Number of photos in the folder.
        read: Returns photo i, grey; called more than once for some photos.
        progress: Called as progress(done, total), twice per photo: when it was read, and when it was compared. Not
            called for a single photo.

    Returns:
        Clusters; a photo that is left out is in none of them.
    """
    if count == 1:
        return [PhotoCluster("single", [0])]
    features, thumbnails, sizes = [], [], []
    for index in range(count):
        image = read(index)
        features.append(_compress(extract_features(image, MAX_FEATURES)))
        thumbnails.append(thumbnail(edge_map(image)))
        sizes.append(image.shape)
        progress(index + 1, 2 * count)
    static = _static_links(read, np.stack(thumbnails), sizes)
    links = np.concatenate(
        [static, _feature_links(features, static, lambda done, _: progress(count + done, 2 * count))]
    )
    return _form_clusters(count, static, links)


def _static_links(read: Callable[[int], Grey], thumbnails: NDArray[np.float32], sizes: Sequence[object]) -> Ids:
    @lru_cache(CACHED_EDGE_MAPS)
    def edges(index: int) -> EdgeMap:
        return edge_map(read(index))

    candidates = np.argwhere(np.triu(thumbnails @ thumbnails.T, 1) > MIN_SIMILARITY)
    links = [
        (i, j)
        for i, j in candidates.tolist()
        if sizes[i] == sizes[j] and register_static(edges(i), edges(j)) is not None
    ]
    return np.array(links, np.int64).reshape(-1, 2)


def _feature_links(features: list[PhotoFeatures], links: Ids, progress: Progress) -> Ids:
    """Return the links by features between photos that earlier links do not connect."""
    component = components(len(features), links[:, 0], links[:, 1])
    added = []
    for i, first in enumerate(features):
        for j, second in enumerate(features[i + 1 : i + 1 + WINDOW], i + 1):
            if component[i] != component[j] and _have_common_geometry(first, second):
                added.append((i, j))
                component[component == component[j]] = component[i]
        progress(i + 1, len(features))
    return np.array(added, np.int64).reshape(-1, 2)


def _have_common_geometry(first: PhotoFeatures, second: PhotoFeatures) -> bool:
    a, b = (photo.descriptors.astype(np.float32) for photo in (first, second))
    matches = distinctive_matches(a, b, RATIO)
    if len(matches) < MIN_MATCHES:
        return False
    points = first.frames[matches[:, 0], :, 2], second.frames[matches[:, 1], :, 2]
    return int(verify(*points, second.size, "fundamental", THRESHOLD).inliers.sum()) >= MIN_MATCHES


def _compress(features: PhotoFeatures) -> PhotoFeatures:
    """Store descriptors as float16: the features of a whole folder are in memory at once."""
    return PhotoFeatures(features.frames, features.descriptors.astype(np.float16), features.size)


def _form_clusters(count: int, static: Ids, links: Ids) -> list[PhotoCluster]:
    component = components(count, links[:, 0], links[:, 1])
    static_component = components(count, static[:, 0], static[:, 1])
    members = [np.flatnonzero(component == index) for index in range(component.max() + 1)]
    largest = max(members, key=len)
    is_scene = len(largest) >= 2 and 2 * len(largest) >= count
    clusters: list[PhotoCluster] = []
    for photos in [largest] if is_scene else members:
        if len(photos) == 1:
            clusters.append(PhotoCluster("single", photos.tolist()))
        elif len(np.unique(static_component[photos])) == 1:
            clusters.append(PhotoCluster("static", photos.tolist()))
        else:
            # Photos that 512 features do not link may be registered with all their features.
            clusters.append(PhotoCluster("overlapping", list(range(count)) if is_scene else photos.tolist()))
    return clusters
