from pathlib import Path

import cv2
import numpy as np
import pytest

from doap.images import frames as frames_module
from doap.images.frames import detect_dog
from doap.images.reconstruction import photo_features
from doap.images.reconstruction.photo_features import PhotoRecord
from doap.networks.baselines.sift import describe_sift
from doap.types import Grey
from support.sample_photos import sample_photo


@pytest.mark.parametrize("limit", [150, 5000])
def test_features_are_those_of_separate_detection_and_description(photo: Grey, limit: int) -> None:
    record = PhotoRecord.of_image(photo, limit)
    expected = detect_dog(photo, limit)
    np.testing.assert_array_equal(record.frames, expected)
    features = record.features()
    cosine = (features.descriptors * describe_sift(photo, expected, root=True)).sum(1)
    assert np.quantile(cosine, 0.05) > 0.99
    np.testing.assert_allclose(np.linalg.norm(features.descriptors, axis=1), 1, atol=1e-6)
    assert features.size == photo.shape


def test_fewer_features_are_the_strongest(photo: Grey) -> None:
    record = PhotoRecord.of_image(photo)
    few, all_ = record.features(100), record.features()
    np.testing.assert_array_equal(few.frames, all_.frames[:100])
    np.testing.assert_array_equal(few.descriptors, all_.descriptors[:100])


def test_a_record_is_read_as_it_was_written(photo: Grey, tmp_path: Path) -> None:
    record = PhotoRecord.of_image(photo, 300)
    record.save(tmp_path / "record.npz")
    again = PhotoRecord.load(tmp_path / "record.npz")
    assert (again.size, again.contrast) == (record.size, record.contrast)
    for name in ("frames", "sift", "thumbnail"):
        np.testing.assert_array_equal(getattr(again, name), getattr(record, name))


def test_images_without_features_have_an_empty_record() -> None:
    for image in (np.full((200, 300), 90, np.uint8), np.zeros((2, 50), np.uint8)):
        record = PhotoRecord.of_image(image)
        assert record.frames.shape == (0, 2, 3)
        assert record.features().descriptors.shape == (0, 128)


def test_large_images_are_detected_at_half_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    image = cv2.resize(sample_photo("coffee"), None, fx=2, fy=2)
    for module in (frames_module, photo_features):
        monkeypatch.setattr(module, "MAX_DETECTION_PIXELS", image.size - 1)
    record = PhotoRecord.of_image(np.asarray(image, np.uint8), 200)
    np.testing.assert_array_equal(record.frames, detect_dog(np.asarray(image, np.uint8), 200))
    whole = describe_sift(np.asarray(image, np.uint8), record.frames, root=True)
    assert ((record.features().descriptors * whole).sum(1) > 0.99).all()
