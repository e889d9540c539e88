from itertools import combinations

import cv2
import numpy as np
import pytest

from doap.images.frames import detect_dog
from doap.images.reconstruction.photo_features import PhotoRecord
from doap.images.reconstruction.scene_frames import (
    SceneFrames,
    find_single_frames,
    find_static_frames,
    find_tracked_frames,
)
from doap.images.reconstruction.scenes import (
    LINK_FEATURES,
    PhotoCluster,
    find_feature_links,
    find_static_candidates,
    form_clusters,
)
from doap.images.reconstruction.static import edge_map, register_static
from doap.images.reconstruction.tracks import match_photos
from doap.types import Grey
from support.sample_photos import sample_photo


def darker(image: Grey) -> Grey:
    return (255 * (image / 255) ** 2.0 * 0.5).astype(np.uint8)


def rotated(image: Grey, degrees: float) -> Grey:
    height, width = image.shape
    rotation = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1.0)
    return np.asarray(cv2.warpAffine(image, rotation, (width, height)), np.uint8)


def clusters(*images: Grey) -> list[tuple[str, list[int]]]:
    """Cluster images by comparing all of their pairs."""
    records = [PhotoRecord.of_image(image) for image in images]
    candidates = find_static_candidates(np.stack([r.thumbnail for r in records]), [r.size for r in records])
    static = np.array(
        [(i, j) for i, j in candidates if register_static(edge_map(images[i]), edge_map(images[j])) is not None]
    ).reshape(-1, 2)
    features = {number: record.features(LINK_FEATURES) for number, record in enumerate(records)}
    links = find_feature_links(features, combinations(range(len(images)), 2), static)
    return [
        (cluster.kind, cluster.photos)
        for cluster in form_clusters(len(images), static, np.concatenate([static, links]))
    ]


def tracked(*images: Grey) -> SceneFrames | None:
    features = [PhotoRecord.of_image(image).features() for image in images]
    return find_tracked_frames(features, match_photos(features, combinations(range(len(images)), 2)), seed=0)


def test_unrelated_photos_are_single(photo: Grey) -> None:
    assert clusters(photo) == [("single", [0])]
    assert clusters(photo, sample_photo("coffee"), sample_photo("rocket")) == [
        ("single", [0]),
        ("single", [1]),
        ("single", [2]),
    ]


def test_exposures_are_a_static_view(photo: Grey) -> None:
    assert clusters(photo, darker(photo)) == [("static", [0, 1])]


def test_overlapping_photos_and_the_rest_of_their_folder_are_a_scene(photo: Grey) -> None:
    left, right = photo[:, :360], rotated(photo, 12)[:, 120:]
    assert clusters(left, right) == [("overlapping", [0, 1])]
    assert clusters(left, right, sample_photo("coffee")) == [("overlapping", [0, 1, 2])]


def test_a_mixed_folder_has_linked_and_single_photos(photo: Grey) -> None:
    others = [sample_photo(name) for name in ("coffee", "rocket", "astronaut", "chelsea")]
    actual = clusters(others[0], photo, others[1], darker(photo), others[2], others[3])
    assert ("static", [1, 3]) in actual
    assert sorted(photos for kind, photos in actual if kind == "single") == [[0], [2], [4], [5]]


def test_clusters_depend_only_on_what_the_links_connect() -> None:
    none = np.zeros((0, 2), np.int64)
    chain, star = np.array([[0, 1], [1, 2], [3, 4]]), np.array([[3, 4], [0, 2], [0, 1], [1, 2]])
    assert form_clusters(9, none, chain) == form_clusters(9, none, star)
    assert form_clusters(9, none, chain)[:2] == [
        PhotoCluster("overlapping", [0, 1, 2]),
        PhotoCluster("overlapping", [3, 4]),
    ]


def test_only_pairs_that_are_not_connected_are_compared(photo: Grey) -> None:
    features = PhotoRecord.of_image(photo).features(LINK_FEATURES)
    numbers = {4: features, 7: features, 9: features}
    pairs = [(4, 7), (4, 9), (7, 9)]
    assert find_feature_links(numbers, pairs, np.zeros((0, 2), np.int64)).tolist() == [[4, 7], [4, 9]]
    assert find_feature_links(numbers, pairs, np.array([[7, 9]])).tolist() == [[4, 7]]


def test_known_dog_frames_are_not_detected_again(photo: Grey) -> None:
    known = find_single_frames(photo, 150, dog=detect_dog(photo, 2000))
    plain = find_single_frames(photo, 150)
    assert known is not None
    assert plain is not None
    np.testing.assert_array_equal(known.frames, plain.frames)


def test_views_are_groups_of_one_frame(photo: Grey) -> None:
    actual = find_single_frames(photo, 150, photo=3)
    assert actual is not None
    assert (actual.source, len(actual.frames), set(actual.photos)) == ("views", 150, {3})
    np.testing.assert_array_equal(actual.groups, np.arange(150))
    assert find_single_frames(np.full((200, 200), 90, np.uint8), 150) is None


def test_a_static_view_has_the_frames_that_both_images_show(photo: Grey) -> None:
    other = darker(photo)
    other[:, 300:] = 0  # black in one image
    actual = find_static_frames([photo, other], 200, 12.0)
    assert actual is not None
    assert actual.source == "static"
    assert np.bincount(actual.groups).tolist() == [2] * (actual.groups.max() + 1)
    first = actual.frames[actual.photos == 0]
    assert first[:, 0, 2].max() < 330
    assert len(first) > 40
    np.testing.assert_allclose(first[:, :, 2], actual.frames[actual.photos == 1][:, :, 2], atol=1.0)
    assert find_static_frames([photo, sample_photo("astronaut")], 200, 12.0) is None


def test_a_tracked_plane_is_one_scene(photo: Grey) -> None:
    actual = tracked(photo, rotated(photo, 10), rotated(photo, -15))
    assert actual is not None
    assert actual.source == "tracks"
    assert "by homographies" in actual.note
    assert len(actual.angles) > 100
    assert tracked(photo, sample_photo("coffee")) is None


@pytest.mark.parametrize("count", [3, 12])
def test_many_images_of_a_static_camera_are_one_view(photo: Grey, count: int) -> None:
    images = [(photo * (0.5 + 0.5 * n / count)).astype(np.uint8) for n in range(count)]
    actual = find_static_frames(images, 60, 12.0)
    assert actual is not None
    assert np.bincount(actual.groups).max() == count
