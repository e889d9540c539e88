"""Tracks: which frames of overlapping photos show the same point of the scene.

Photos are matched in pairs (RootSIFT at DoG frames, mutual and distinctive), and the matches of a pair verified by a
fundamental matrix or a homography. Where the camera moved, structure from motion (`structure.py`) makes points of
them. Where it only turned, or looked at a plane, there is no depth to find; homographies say exactly where a
point must reappear, and matches that agree with them are chained.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from doap.geometry.robust import verify
from doap.images.frames import detect_dog
from doap.matching.nearest import distinctive_matches
from doap.networks.baselines.sift import describe_sift
from doap.types import Frames, Grey

Ids = NDArray[np.int64]

FEATURES = 2000
RATIO = 0.8
MIN_MATCHES = 15
# A pair whose homography explains this share of what the fundamental matrix does shows no depth (COLMAP's rule).
FLAT_SHARE = 0.8
THRESHOLD = 3.0  # pixels; the points made of the matches are held to less


@dataclass(frozen=True)
class PhotoFeatures:
    """DoG frames of a photo, (N, 2, 3), their RootSIFT descriptors, (N, 128), and its (height, width)."""

    frames: Frames
    descriptors: NDArray[np.float32]
    size: tuple[int, int]


@dataclass(frozen=True)
class PhotoPair:
    """Verified matches of two photos.

    Attributes:
        first: number of one photo.
        second: number of the other.
        matches: (P, 2) features of the first and of the second that fit the geometry.
        flat: whether the geometry is a homography: no depth was seen.
    """

    first: int
    second: int
    matches: Ids
    flat: bool


@dataclass(frozen=True)
class Tracks:
    """Observations of points: frame `features[i]` of photo `photos[i]` shows point `points[i]`.

    Attributes:
        points: (N,) integers 0..G-1.
        photos: (N,).
        features: (N,) places among the photo's frames.
        angles: (G,) degrees between the directions a point was seen from, at most; 0 where there is no depth.
        near: (P, 2) points so close to each other in space that they may be one.
        method: "structure" or "homographies".
    """

    points: Ids
    photos: Ids
    features: Ids
    angles: NDArray[np.float64]
    near: Ids
    method: str


def photo_features(image: Grey, limit: int = FEATURES) -> PhotoFeatures:
    """Detect and describe the strongest frames of a photo."""
    frames = detect_dog(image, limit)
    return PhotoFeatures(frames, describe_sift(image, frames, root=True), (image.shape[0], image.shape[1]))


def match_photos(features: list[PhotoFeatures]) -> list[PhotoPair]:
    """Match all pairs of photos; those without a geometry that chance cannot explain are left out."""
    pairs = (match_pair(features, i, j) for i, j in combinations(range(len(features)), 2))
    return [pair for pair in pairs if pair is not None]


def match_pair(features: list[PhotoFeatures], first: int, second: int) -> PhotoPair | None:
    """Match two photos, or None where they share no geometry."""
    a, b = features[first], features[second]
    matches = distinctive_matches(a.descriptors, b.descriptors, RATIO)
    if len(matches) < MIN_MATCHES:
        return None
    points = a.frames[matches[:, 0], :, 2], b.frames[matches[:, 1], :, 2]
    deep = verify(*points, b.size, "fundamental", THRESHOLD).inliers
    flat = verify(*points, b.size, "homography", THRESHOLD).inliers
    is_flat = flat.sum() >= FLAT_SHARE * deep.sum()
    kept = flat if is_flat else deep
    return PhotoPair(first, second, matches[kept], bool(is_flat)) if kept.sum() >= MIN_MATCHES else None


def homography_tracks(pairs: list[PhotoPair]) -> Tracks | None:
    """Chain the matches of flat pairs; a chain that meets a photo at two features contradicts itself and is dropped.

    Returns:
        None where there is no chain.
    """
    links = [(p.first, p.second, *match) for p in pairs if p.flat for match in p.matches.tolist()]
    if not links:
        return None
    table = np.array(links, np.int64)
    nodes, number = np.unique(np.concatenate([table[:, [0, 2]], table[:, [1, 3]]]), axis=0, return_inverse=True)
    chain = components(len(nodes), number[: len(table)].ravel(), number[len(table) :].ravel())
    _, photos_of = np.unique(np.stack([chain, nodes[:, 0]], 1), axis=0, return_counts=True)
    contradicted = np.unique(np.stack([chain, nodes[:, 0]], 1), axis=0)[photos_of > 1, 0]
    kept = ~np.isin(chain, contradicted)
    if not kept.any():
        return None
    points = np.unique(chain[kept], return_inverse=True)[1].astype(np.int64)
    angles = np.zeros(points.max() + 1)
    return Tracks(points, nodes[kept, 0], nodes[kept, 1], angles, np.zeros((0, 2), np.int64), "homographies")


def components(count: int, first: Ids, second: Ids) -> Ids:
    """Number of the connected component of each of `count` nodes, linked pairwise first to second."""
    links = coo_array((np.ones(len(first), bool), (first, second)), shape=(count, count))
    return np.asarray(connected_components(links, directed=False)[1], np.int64)
