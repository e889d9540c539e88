import cv2
import numpy as np
import pytest
import skimage

from doap.geometry.homographies import transform_points
from doap.images.reconstruction.tracks import PhotoPair, components, homography_tracks, match_photos, photo_features
from doap.types import Grey

HOMOGRAPHIES = [
    np.eye(3),
    np.array([[0.9, 0.2, 20], [-0.15, 0.95, 40], [1e-4, 0, 1]]),
    np.array([[1.1, -0.1, -30], [0.1, 1.0, -10], [0, -1e-4, 1]]),
]


@pytest.fixture(scope="module")
def photos() -> list[Grey]:
    """Three views of a plane."""
    image = cv2.cvtColor(skimage.data.coffee(), cv2.COLOR_RGB2GRAY)
    return [cv2.warpPerspective(image, h, (600, 400), flags=cv2.INTER_AREA) for h in HOMOGRAPHIES]


def test_tracks_of_a_plane_follow_the_true_homographies(photos: list[Grey]) -> None:
    features = [photo_features(image, 800) for image in photos]
    pairs = match_photos(features)
    assert [(p.first, p.second, p.flat) for p in pairs] == [(0, 1, True), (0, 2, True), (1, 2, True)]
    tracks = homography_tracks(pairs)
    assert tracks is not None
    assert tracks.method == "homographies"
    assert len(tracks.angles) > 100
    assert np.bincount(tracks.points).min() >= 2
    # Back on the plane, all observations of a point must fall together.
    places = np.stack([features[p].frames[f, :, 2] for p, f in zip(tracks.photos, tracks.features, strict=True)])
    plane = np.empty_like(places, dtype=float)
    for number, homography in enumerate(HOMOGRAPHIES):
        here = tracks.photos == number
        plane[here] = transform_points(places[here], np.linalg.inv(homography))
    for point in range(len(tracks.angles)):
        seen = plane[tracks.points == point]
        assert np.linalg.norm(seen - seen.mean(0), axis=1).max() < 4
        assert len(np.unique(tracks.photos[tracks.points == point])) == len(seen)


def test_unrelated_photos_give_no_pair(photos: list[Grey]) -> None:
    other = cv2.cvtColor(skimage.data.astronaut(), cv2.COLOR_RGB2GRAY)
    flat = np.full((300, 300), 90, np.uint8)
    assert match_photos([photo_features(image, 800) for image in (photos[0], other, flat)]) == []


def test_chains_that_contradict_themselves_are_dropped() -> None:
    def pair(first: int, second: int, *matches: tuple[int, int], flat: bool = True) -> PhotoPair:
        return PhotoPair(first, second, np.array(matches), flat)

    # 0:1 - 1:1 - 2:1 is one point; 0:5 - 1:5 - 2:6 - 0:7 meets photo 0 twice; the deep pair is not chained.
    found = homography_tracks(
        [pair(0, 1, (1, 1), (5, 5)), pair(1, 2, (1, 1), (5, 6)), pair(0, 2, (7, 6)), pair(0, 3, (9, 9), flat=False)]
    )
    assert found is not None
    assert list(zip(found.points, found.photos, found.features, strict=True)) == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    assert homography_tracks([pair(0, 1, (3, 3), flat=False)]) is None
    assert homography_tracks([pair(0, 1, (5, 5)), pair(1, 2, (5, 6)), pair(0, 2, (7, 6))]) is None


def test_components_join_what_is_linked() -> None:
    assert components(5, np.array([0, 3]), np.array([3, 1])).tolist() == [0, 0, 1, 0, 2]
    assert components(2, np.zeros(0, int), np.zeros(0, int)).tolist() == [0, 1]
