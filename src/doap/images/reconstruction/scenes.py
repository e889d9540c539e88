"""Clustering of the photos of a folder: views of a static camera, overlapping views of a scene, and single photos.

Two photos are linked if their edges coincide (`static.py`) or if their features agree on a verified geometry. If at
least half of the photos of a folder are linked, the folder is one scene. Unlinked photos of it are not used as single
photos: they probably show the scene too, and would give false negatives. In any other folder, linked photos are scenes,
and the other photos are single.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from doap.geometry.robust import verify
from doap.images.reconstruction.photo_features import PhotoFeatures
from doap.images.reconstruction.tracks import RATIO, THRESHOLD, Ids, components
from doap.matching.nearest import distinctive_matches

LINK_FEATURES = 512
MIN_MATCHES = 12
MIN_SIMILARITY = 0.25  # of thumbnails of one view; unrelated photos rarely reach 0.2
WINDOW = 300  # in a large folder, each photo is compared with this many after it, by name

SceneKind = Literal["single", "static", "overlapping"]


@dataclass(frozen=True)
class PhotoCluster:
    """Photos that show the same scene, as indices into the folder."""

    kind: SceneKind
    photos: list[int]


def find_static_candidates(thumbnails: NDArray[np.float32], sizes: Sequence[object]) -> Ids:
    """Find the pairs of photos that may show the same view of a static camera.

    Args:
        thumbnails: (N, 1024) thumbnails of the photos.
        sizes: Size of each photo; those of a static camera are equal.

    Returns:
        (P, 2) indices, first < second.
    """
    alike = np.argwhere(np.triu(thumbnails @ thumbnails.T, 1) > MIN_SIMILARITY)
    return np.array([(i, j) for i, j in alike.tolist() if sizes[i] == sizes[j]], np.int64).reshape(-1, 2)


def are_compared(first: int, second: int) -> bool:
    """Return whether the features of two photos of a folder are compared, by their positions in it."""
    return 0 < second - first <= WINDOW


def find_feature_links(features: Mapping[int, PhotoFeatures], pairs: Iterable[tuple[int, int]], linked: Ids) -> Ids:
    """Find links by features until all photos of a component are connected.

    Args:
        features: Features of each photo.
        pairs: The pairs that may be compared, in order. Pairs that are connected already are skipped.
        linked: (L, 2) links that exist already.

    Returns:
        (P, 2) links that connect further photos.
    """
    numbers = {photo: number for number, photo in enumerate(features)}
    first, second = ([numbers[photo] for photo in column] for column in linked.T.tolist())
    component = components(len(numbers), np.array(first, np.int64), np.array(second, np.int64))
    links = []
    for i, j in pairs:
        a, b = component[numbers[i]], component[numbers[j]]
        if a != b and _have_common_geometry(features[i], features[j]):
            links.append((i, j))
            component[component == b] = a
    return np.array(links, np.int64).reshape(-1, 2)


def _have_common_geometry(first: PhotoFeatures, second: PhotoFeatures) -> bool:
    matches = distinctive_matches(first.descriptors, second.descriptors, RATIO)
    if len(matches) < MIN_MATCHES:
        return False
    points = first.frames[matches[:, 0], :, 2], second.frames[matches[:, 1], :, 2]
    return int(verify(*points, second.size, "fundamental", THRESHOLD).inliers.sum()) >= MIN_MATCHES


def form_clusters(count: int, static: Ids, links: Ids) -> list[PhotoCluster]:
    """Form the clusters of a folder from the links of its photos.

    Args:
        count: Number of photos.
        static: (P, 2) links between views of a static camera.
        links: (L, 2) all links; only the components that they connect matter.

    Returns:
        Clusters; a photo that is left out is in none of them.
    """
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
