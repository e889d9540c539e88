import cv2
import numpy as np
import pytest

from doap.images.reconstruction.scene_frames import find_single_frames, find_static_frames, find_tracked_frames
from doap.images.reconstruction.scenes import PhotoCluster, cluster_photos
from doap.types import Grey
from support.sample_photos import sample_photo


def darker(image: Grey) -> Grey:
    return (255 * (image / 255) ** 2.0 * 0.5).astype(np.uint8)


def rotated(image: Grey, degrees: float) -> Grey:
    height, width = image.shape
    rotation = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1.0)
    return np.asarray(cv2.warpAffine(image, rotation, (width, height)), np.uint8)


def clusters(*images: Grey) -> list[tuple[str, list[int]]]:
    """Cluster images, and check the calls of progress."""
    calls: list[tuple[int, int]] = []
    found = cluster_photos(len(images), lambda i: images[i], lambda done, total: calls.append((done, total)))
    total = 0 if len(images) == 1 else 2 * len(images)
    assert calls == [(done, total) for done in range(1, total + 1)]
    return [(cluster.kind, cluster.photos) for cluster in found]


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
    found = clusters(others[0], photo, others[1], darker(photo), others[2], others[3])
    assert ("static", [1, 3]) in found
    assert sorted(photos for kind, photos in found if kind == "single") == [[0], [2], [4], [5]]


def test_a_cluster_has_a_kind_and_photos() -> None:
    assert PhotoCluster("single", [3]) == PhotoCluster(kind="single", photos=[3])


def test_views_are_groups_of_one_frame(photo: Grey) -> None:
    found = find_single_frames(photo, 150, photo=3)
    assert found is not None
    assert (found.source, len(found.frames), set(found.photos)) == ("views", 150, {3})
    np.testing.assert_array_equal(found.groups, np.arange(150))
    assert find_single_frames(np.full((200, 200), 90, np.uint8), 150) is None


def test_a_static_view_has_the_frames_that_both_images_show(photo: Grey) -> None:
    other = darker(photo)
    other[:, 300:] = 0  # black in one image
    found = find_static_frames([photo, other], 200, 12.0)
    assert found is not None
    assert found.source == "static"
    assert np.bincount(found.groups).tolist() == [2] * (found.groups.max() + 1)
    first = found.frames[found.photos == 0]
    assert first[:, 0, 2].max() < 330
    assert len(first) > 40
    np.testing.assert_allclose(first[:, :, 2], found.frames[found.photos == 1][:, :, 2], atol=1.0)
    assert find_static_frames([photo, sample_photo("astronaut")], 200, 12.0) is None


def test_a_tracked_plane_is_one_scene(photo: Grey) -> None:
    found = find_tracked_frames([photo, rotated(photo, 10), rotated(photo, -15)], seed=0)
    assert found is not None
    assert found.source == "tracks"
    assert "by homographies" in found.note
    assert len(found.angles) > 100
    assert find_tracked_frames([photo, sample_photo("coffee")], seed=0) is None


@pytest.mark.parametrize("count", [3, 12])
def test_many_images_of_a_static_camera_are_one_view(photo: Grey, count: int) -> None:
    images = [(photo * (0.5 + 0.5 * n / count)).astype(np.uint8) for n in range(count)]
    found = find_static_frames(images, 60, 12.0)
    assert found is not None
    assert np.bincount(found.groups).max() == count
