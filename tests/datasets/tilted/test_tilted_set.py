from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from doap.datasets.sets.frame_set import FrameSet, decode_photo, encode
from doap.datasets.tilted.tilted_set import TiltedSet, make_tilted_set
from doap.datasets.tilted.views import PhotoTask, TiltSettings, make_views, match_frames
from doap.errors import DoapError
from doap.geometry.homographies import transform_points
from doap.images.frames import detect_dog, transform_frames
from doap.images.reading import shrink
from doap.images.tilts import rotation
from doap.types import Grey

SETTINGS = TiltSettings(views=2, max_tilt=3.0, keypoints=300, max_side=256)


def photo_set(photo: Grey) -> FrameSet:
    """Return a frame set of two photos."""
    photos = [encode(np.ascontiguousarray(image)) for image in (photo[:300, :400], photo[200:, 100:])]
    ids = np.arange(2)
    frames = np.tile(np.array([[[1, 0, 9], [0, 1, 9]]], np.float32), (2, 1, 1))
    return FrameSet(photos, ["a.png", "b.png"], ids, frames, ids, ids, np.zeros(2, np.int64))


@pytest.fixture(scope="module")
def tilted(photo: Grey) -> TiltedSet:
    return make_tilted_set(photo_set(photo), SETTINGS, workers=1)


def test_frames_of_a_group_show_the_same_point(tilted: TiltedSet) -> None:
    data = tilted.frames
    centres = np.stack(
        [
            transform_points(frame[:, 2].astype(np.float64), tilted.homographies[photo])
            for frame, photo in zip(data.frames, data.photos, strict=True)
        ]
    )
    counts = np.bincount(data.groups)
    counts = counts[counts > 0]
    assert counts.min() >= 2
    assert counts.max() <= 3
    assert len(counts) > 100
    for group in np.unique(data.groups)[::20]:
        members = data.groups == group
        assert len(set(data.photos[members])) == members.sum()
        assert np.ptp(centres[members], axis=0).max() < 15


def test_the_light_of_views_changes_as_strongly_as_the_level(photo: Grey) -> None:
    differences = []
    for light in ("easy", "hard", "tough"):
        settings = replace(SETTINGS, views=12, max_tilt=1.0, light=light)
        views = make_views(PhotoTask(0, "a.png", encode(np.ascontiguousarray(photo[:300, :400])), settings))
        first, *others = (decode_photo(view, "a.png") for view in views.encoded)
        differences.append(np.std([other.mean() - first.mean() for other in others]))
    assert differences[0] < 0.8 * differences[1] < 0.8 * 0.9 * differences[2]


def test_jacobians_are_the_derivatives_of_the_homographies(tilted: TiltedSet) -> None:
    data, jacobians, step = tilted.frames, tilted.jacobians(), 1e-4
    for number in range(0, len(data), 50):
        centre = data.frames[number, :, 2].astype(np.float64)
        points = centre + step * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
        mapped = transform_points(points, tilted.homographies[data.photos[number]])
        expected = np.stack([mapped[0] - mapped[1], mapped[2] - mapped[3]], 1) / (2 * step)
        np.testing.assert_allclose(jacobians[number], expected, rtol=1e-3, atol=1e-4)


def test_views_show_the_photo_under_their_homography(photo: Grey) -> None:
    task = PhotoTask(0, "a", encode(photo[:300, :400].copy()), SETTINGS)
    views = make_views(task)
    assert len(views.encoded) == len(views.homographies) == 3
    np.testing.assert_array_equal(views.homographies[0], np.eye(3))
    again = make_views(task)
    np.testing.assert_array_equal(again.frames, views.frames)


def test_saved_sets_are_opened(tilted: TiltedSet, tmp_path: Path) -> None:
    tilted.save(tmp_path / "set")
    opened = TiltedSet.open(tmp_path / "set")
    np.testing.assert_array_equal(opened.homographies, tilted.homographies)
    np.testing.assert_array_equal(opened.frames.frames, tilted.frames.frames)
    assert len(FrameSet.open(tmp_path / "set")) == len(tilted.frames)
    np.save(tmp_path / "set" / "homographies.npy", np.zeros((1, 3, 3)))
    with pytest.raises(DoapError, match="finite 3x3 matrices"):
        TiltedSet.open(tmp_path / "set")
    (tmp_path / "set" / "homographies.npy").unlink()
    with pytest.raises(DoapError, match="has no tilted views"):
        TiltedSet.open(tmp_path / "set")


def test_matched_frames_are_the_transformed_ones(photo: Grey) -> None:
    frames = detect_dog(shrink(photo, 200), 100)
    homography = rotation(0.7)
    order = np.random.default_rng(0).permutation(len(frames))
    first, second = match_frames(frames, transform_frames(frames, homography)[order], homography)
    np.testing.assert_array_equal(order[second], first)
    assert len(first) == len(frames)
    far = frames.copy()
    far[:, :, 2] += 1000
    assert len(match_frames(frames, far, np.eye(3))[0]) == 0
    assert len(match_frames(frames[:0], frames, np.eye(3))[0]) == 0


def test_photos_without_texture_are_refused() -> None:
    flat = photo_set(np.full((512, 512), 128, np.uint8))
    with pytest.raises(DoapError, match="more texture"):
        make_tilted_set(flat, SETTINGS, workers=1)
