import cv2
import numpy as np
import pytest
import skimage

from doap.images.reconstruction.scene_frames import static_view, tracked_scene, views_of
from doap.images.reconstruction.scenes import Belonging, group_photos
from doap.types import Grey


def grey(name: str) -> Grey:
    return cv2.cvtColor(getattr(skimage.data, name)(), cv2.COLOR_RGB2GRAY)


def darker(image: Grey) -> Grey:
    return (255 * (image / 255) ** 2.0 * 0.5).astype(np.uint8)


def turned(image: Grey, degrees: float) -> Grey:
    height, width = image.shape
    return cv2.warpAffine(image, cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1.0), (width, height))


def sort(*images: Grey) -> list[tuple[str, list[int]]]:
    steps: list[int] = []
    found = group_photos(len(images), lambda i: images[i], lambda: steps.append(1))
    assert len(steps) == (0 if len(images) == 1 else 2 * len(images))
    return [(belonging.kind, belonging.photos) for belonging in found]


def test_unrelated_photos_stand_alone(photo: np.ndarray) -> None:
    assert sort(photo) == [("single", [0])]
    assert sort(photo, grey("coffee"), grey("rocket")) == [("single", [0]), ("single", [1]), ("single", [2])]


def test_exposures_are_a_still_view(photo: np.ndarray) -> None:
    assert sort(photo, darker(photo)) == [("still", [0, 1])]


def test_overlapping_photos_are_a_scene_and_drag_the_rest_of_their_folder_along(photo: np.ndarray) -> None:
    left, right = photo[:, :360], turned(photo, 12)[:, 120:]
    assert sort(left, right) == [("overlapping", [0, 1])]
    assert sort(left, right, grey("coffee")) == [("overlapping", [0, 1, 2])]


def test_in_a_mixed_folder_linked_photos_are_told_from_single_ones(photo: np.ndarray) -> None:
    others = [grey(name) for name in ("coffee", "rocket", "astronaut", "chelsea")]
    found = sort(others[0], photo, others[1], darker(photo), others[2], others[3])
    assert ("still", [1, 3]) in found
    assert sorted(photos for kind, photos in found if kind == "single") == [[0], [2], [4], [5]]


def test_a_belonging_says_what_it_is() -> None:
    assert Belonging("single", [3]) == Belonging(kind="single", photos=[3])


def test_views_are_groups_of_one_frame(photo: np.ndarray) -> None:
    found = views_of(photo, 150, photo=3)
    assert found is not None
    assert (found.source, len(found.frames), set(found.photos)) == ("views", 150, {3})
    np.testing.assert_array_equal(found.groups, np.arange(150))
    assert views_of(np.full((200, 200), 90, np.uint8), 150) is None


def test_a_still_view_keeps_what_both_pictures_show(photo: np.ndarray) -> None:
    other = darker(photo)
    other[:, 300:] = 0  # black in one picture
    found = static_view([photo, other], 200, 12.0)
    assert found is not None
    assert found.source == "static"
    assert np.bincount(found.groups).tolist() == [2] * (found.groups.max() + 1)
    first = found.frames[found.photos == 0]
    assert first[:, 0, 2].max() < 330
    assert len(first) > 40
    np.testing.assert_allclose(first[:, :, 2], found.frames[found.photos == 1][:, :, 2], atol=1.0)
    assert static_view([photo, grey("astronaut")], 200, 12.0) is None


def test_a_tracked_plane_is_one_scene(photo: np.ndarray) -> None:
    found = tracked_scene([photo, turned(photo, 10), turned(photo, -15)], seed=0)
    assert found is not None
    assert found.source == "tracks"
    assert "by homographies" in found.note
    assert len(found.angles) > 100
    assert tracked_scene([photo, grey("coffee")], seed=0) is None


@pytest.mark.parametrize("count", [3, 12])
def test_a_scene_that_stands_still_for_long_is_one_view(photo: np.ndarray, count: int) -> None:
    pictures = [(photo * (0.5 + 0.5 * n / count)).astype(np.uint8) for n in range(count)]
    found = static_view(pictures, 60, 12.0)
    assert found is not None
    assert np.bincount(found.groups).max() == count
