from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
import pytest

from doap.geometry.homographies import transform_points
from doap.images.reconstruction.photo_features import PhotoRecord
from doap.images.reconstruction.tracks import (
    PhotoPair,
    chain_tracks,
    components,
    load_pairs,
    match_photos,
    save_pairs,
)
from doap.types import Grey
from support.sample_photos import sample_photo

HOMOGRAPHIES = [
    np.eye(3),
    np.array([[0.9, 0.2, 20], [-0.15, 0.95, 40], [1e-4, 0, 1]]),
    np.array([[1.1, -0.1, -30], [0.1, 1.0, -10], [0, -1e-4, 1]]),
]


@pytest.fixture(scope="module")
def photos() -> list[Grey]:
    """Three views of a plane."""
    image = sample_photo("coffee")
    warped = (cv2.warpPerspective(image, h, (600, 400), flags=cv2.INTER_AREA) for h in HOMOGRAPHIES)
    return [np.asarray(view, np.uint8) for view in warped]


def test_tracks_of_a_plane_follow_its_homographies(photos: list[Grey]) -> None:
    features = [PhotoRecord.of_image(image, 800).features() for image in photos]
    pairs = match_photos(features, combinations(range(3), 2))
    assert [(p.first, p.second, p.is_planar) for p in pairs] == [(0, 1, True), (0, 2, True), (1, 2, True)]
    tracks = chain_tracks(pairs)
    assert tracks is not None
    assert tracks.method == "homographies"
    assert len(tracks.angles) > 100
    assert np.bincount(tracks.points).min() >= 2
    # Mapped back to the plane, all observations of a point must coincide.
    positions = np.stack([features[p].frames[f, :, 2] for p, f in zip(tracks.photos, tracks.features, strict=True)])
    plane = np.empty_like(positions, dtype=float)
    for number, homography in enumerate(HOMOGRAPHIES):
        mask = tracks.photos == number
        inverse = np.asarray(np.linalg.inv(homography), np.float64)
        plane[mask] = transform_points(positions[mask], inverse)
    for point in range(len(tracks.angles)):
        observed = plane[tracks.points == point]
        assert np.linalg.norm(observed - observed.mean(0), axis=1).max() < 4
        assert len(np.unique(tracks.photos[tracks.points == point])) == len(observed)


def test_unrelated_photos_give_no_pair(photos: list[Grey]) -> None:
    other = sample_photo("astronaut")
    flat = np.full((300, 300), 90, np.uint8)
    features = [PhotoRecord.of_image(image, 800).features() for image in (photos[0], other, flat)]
    assert match_photos(features, combinations(range(3), 2)) == []


def test_pairs_are_read_as_they_were_written(photos: list[Grey], tmp_path: Path) -> None:
    features = [PhotoRecord.of_image(image, 800).features() for image in photos]
    pairs = match_photos(features, combinations(range(3), 2))
    for number, some in enumerate((pairs, [])):
        save_pairs(tmp_path / f"{number}.npz", some)
        loaded = load_pairs(tmp_path / f"{number}.npz")
        assert [(p.first, p.second, p.is_planar) for p in loaded] == [(p.first, p.second, p.is_planar) for p in some]
        for pair, again in zip(some, loaded, strict=True):
            np.testing.assert_array_equal(pair.matches, again.matches)


def test_inconsistent_chains_are_dropped() -> None:
    def pair(first: int, second: int, *matches: tuple[int, int], is_planar: bool = True) -> PhotoPair:
        return PhotoPair(first, second, np.array(matches), is_planar)

    # 0:1 - 1:1 - 2:1 is one point; 0:5 - 1:5 - 2:6 - 0:7 has photo 0 twice; the pair with depth is not chained.
    tracks = chain_tracks(
        [
            pair(0, 1, (1, 1), (5, 5)),
            pair(1, 2, (1, 1), (5, 6)),
            pair(0, 2, (7, 6)),
            pair(0, 3, (9, 9), is_planar=False),
        ]
    )
    assert tracks is not None
    assert list(zip(tracks.points, tracks.photos, tracks.features, strict=True)) == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    assert chain_tracks([pair(0, 1, (3, 3), is_planar=False)]) is None
    assert chain_tracks([pair(0, 1, (5, 5)), pair(1, 2, (5, 6)), pair(0, 2, (7, 6))]) is None


def test_components_are_those_of_the_links() -> None:
    assert components(5, np.array([0, 3]), np.array([3, 1])).tolist() == [0, 0, 1, 0, 2]
    assert components(2, np.zeros(0, int), np.zeros(0, int)).tolist() == [0, 1]
