"""Matching of overlapping photos, and tracks of points of the scene.

Photos are matched in pairs (RootSIFT at DoG frames, mutual nearest neighbours, ratio test). Matches are verified
by a fundamental matrix or a homography. If the camera moved, structure from motion (`colmap.py`) turns
them into tracks. If it only rotated, or the scene is a plane, there is no depth to reconstruct; homographies then
predict the position of every point, and the matches that agree with them are chained into tracks.
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
# A pair is planar if its homography has at least this share of the fundamental matrix's inliers (COLMAP's rule).
PLANAR_SHARE = 0.8
THRESHOLD = 3.0  # pixels; the limit for reconstructed points is lower


@dataclass(frozen=True)
class PhotoFeatures:
    """DoG frames of a photo, (N, 2, 3), their RootSIFT descriptors, (N, 128), and the photo's (height, width)."""

    frames: Frames
    descriptors: NDArray[np.float32]
    size: tuple[int, int]


@dataclass(frozen=True)
class PhotoPair:
    """Verified matches of two photos.

    Attributes:
        first: Index of the first photo.
        second: Index of the second photo.
        matches: (P, 2) indices of features of the first and the second photo that agree with the geometry.
        is_planar: Whether the geometry is a homography: the pair shows no depth.
    """

    first: int
    second: int
    matches: Ids
    is_planar: bool


@dataclass(frozen=True)
class Tracks:
    """Observations of points: frame `features[i]` of photo `photos[i]` shows point `points[i]`.

    Attributes:
        points: (N,) integers 0..G-1.
        photos: (N,).
        features: (N,) indices into the photo's frames.
        angles: (G,) maximum angle in degrees between the viewing directions of a point; 0 without depth.
        close_points: (P, 2) pairs of points whose frames overlap in space.
        method: "structure" or "homographies".
    """

    points: Ids
    photos: Ids
    features: Ids
    angles: NDArray[np.float64]
    close_points: Ids
    method: str


def extract_features(image: Grey, limit: int = FEATURES) -> PhotoFeatures:
    """Detect and describe the strongest frames of a photo."""
    frames = detect_dog(image, limit)
    return PhotoFeatures(frames, describe_sift(image, frames, root=True), (image.shape[0], image.shape[1]))


def match_photos(features: list[PhotoFeatures]) -> list[PhotoPair]:
    """Match all pairs of photos, and return those with a verified geometry."""
    pairs = (match_pair(features, i, j) for i, j in combinations(range(len(features)), 2))
    return [pair for pair in pairs if pair is not None]


def match_pair(features: list[PhotoFeatures], first: int, second: int) -> PhotoPair | None:
    """Match two photos; None if they share no geometry."""
    a, b = features[first], features[second]
    matches = distinctive_matches(a.descriptors, b.descriptors, RATIO)
    if len(matches) < MIN_MATCHES:
        return None
    points = a.frames[matches[:, 0], :, 2], b.frames[matches[:, 1], :, 2]
    epipolar = verify(*points, b.size, "fundamental", THRESHOLD).inliers
    planar = verify(*points, b.size, "homography", THRESHOLD).inliers
    is_planar = bool(planar.sum() >= PLANAR_SHARE * epipolar.sum())
    inliers = planar if is_planar else epipolar
    return PhotoPair(first, second, matches[inliers], is_planar) if inliers.sum() >= MIN_MATCHES else None


def chain_tracks(pairs: list[PhotoPair]) -> Tracks | None:
    """Chain the matches of planar pairs into tracks.

    A chain with two features of one photo is inconsistent and dropped.

    Returns:
        None if there is no consistent chain.
    """
    links = [(p.first, p.second, *match) for p in pairs if p.is_planar for match in p.matches.tolist()]
    if not links:
        return None
    table = np.array(links, np.int64)
    nodes, index = np.unique(np.concatenate([table[:, [0, 2]], table[:, [1, 3]]]), axis=0, return_inverse=True)
    chain = components(len(nodes), index[: len(table)].ravel(), index[len(table) :].ravel())
    chain_photos, counts = np.unique(np.stack([chain, nodes[:, 0]], 1), axis=0, return_counts=True)
    consistent = ~np.isin(chain, chain_photos[counts > 1, 0])
    if not consistent.any():
        return None
    points = np.unique(chain[consistent], return_inverse=True)[1].astype(np.int64)
    angles, close_points = np.zeros(points.max() + 1), np.zeros((0, 2), np.int64)
    return Tracks(points, nodes[consistent, 0], nodes[consistent, 1], angles, close_points, "homographies")


def components(count: int, first: Ids, second: Ids) -> Ids:
    """Return the connected component of each of `count` nodes with links from first to second, (count,)."""
    links = coo_array((np.ones(len(first), bool), (first, second)), shape=(count, count))
    return np.asarray(connected_components(links, directed=False)[1], np.int64)
