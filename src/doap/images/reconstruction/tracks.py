"""Matching of overlapping photos, and tracks of points of the scene.

Photos are matched in pairs (RootSIFT at DoG frames, mutual nearest neighbours, ratio test). Matches are verified
by a fundamental matrix or a homography. If the camera moved, structure from motion (`colmap.py`) turns
them into tracks. If it only rotated, or the scene is a plane, there is no depth to reconstruct; homographies then
predict the position of every point, and the matches that agree with them are chained into tracks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from doap.files import atomic_file
from doap.geometry.robust import verify
from doap.images.reconstruction.cached_arrays import read_cached
from doap.images.reconstruction.photo_features import PhotoFeatures
from doap.matching.nearest import distinctive_matches

Ids = NDArray[np.int64]

FeaturesByPhoto = Mapping[int, PhotoFeatures] | Sequence[PhotoFeatures]

RATIO = 0.8
MIN_MATCHES = 15
# A pair is planar if its homography has at least this share of the fundamental matrix's inliers (COLMAP's rule).
PLANAR_SHARE = 0.8
THRESHOLD = 3.0  # pixels; the limit for reconstructed points is lower


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


def match_photos(features: FeaturesByPhoto, pairs: Iterable[tuple[int, int]]) -> list[PhotoPair]:
    """Match some pairs of photos, and return those with a verified geometry."""
    matched = (match_pair(features, first, second) for first, second in pairs)
    return [pair for pair in matched if pair is not None]


def match_pair(features: FeaturesByPhoto, first: int, second: int) -> PhotoPair | None:
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


def save_pairs(file: Path, pairs: Sequence[PhotoPair]) -> None:
    """Write verified pairs atomically."""
    table = np.array([(p.first, p.second, p.is_planar, len(p.matches)) for p in pairs], np.int64).reshape(-1, 4)
    matches = np.concatenate([np.zeros((0, 2), np.int64), *(pair.matches for pair in pairs)])
    with atomic_file(file) as temporary, temporary.open("wb") as output:
        np.savez(output, table=table, matches=matches)


def load_pairs(file: Path) -> list[PhotoPair]:
    """Read verified pairs."""
    content = read_cached(file, ("table", "matches"))
    table, matches = content["table"], content["matches"]
    ends = np.cumsum(table[:, 3])
    return [
        PhotoPair(int(first), int(second), matches[end - count : end], bool(is_planar))
        for (first, second, is_planar, count), end in zip(table, ends, strict=True)
    ]


def chain_tracks(pairs: Sequence[PhotoPair]) -> Tracks | None:
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
