"""Features: selection, conversion to OpenCV and kornia, drawing."""

from pathlib import Path
from typing import Any

import cv2
import kornia
import numpy as np
import pytest
import torch
from PIL import Image

import doap
from doap.features.keypoint_input import to_frames
from doap.types import Grey
from support.random_features import random_features


def test_features_are_selected_by_slices_indices_and_masks() -> None:
    features = random_features(20)
    assert len(features) == 20
    assert features.responses is not None
    mask = features.responses > np.median(features.responses)
    cases: list[tuple[Any, list[int]]] = [
        (slice(3, 9), [3, 4, 5, 6, 7, 8]),
        ([5, 2], [5, 2]),
        (mask, np.flatnonzero(mask).tolist()),
        ([], []),
    ]
    for indices, expected in cases:
        selected, rows = features[indices], np.array(expected, np.int64)
        np.testing.assert_array_equal(selected.frames, features.frames[rows])
        np.testing.assert_array_equal(selected.descriptors, features.descriptors[rows])
        np.testing.assert_array_equal(selected.responses, features.responses[rows])
        assert (selected.size, selected.model) == (features.size, features.model)
    with pytest.raises(doap.DoapError, match="selected by a slice"):
        features[np.array(3)]


def test_the_strongest_are_those_of_largest_response() -> None:
    features = random_features(30)
    assert features.responses is not None
    strongest = features.strongest(5)
    np.testing.assert_array_equal(strongest.responses, sorted(features.responses, reverse=True)[:5])
    assert len(features.strongest(99)) == 30
    with pytest.raises(doap.DoapError, match="must not be negative: -5"):
        features.strongest(-5)
    unknown = doap.Features(features.frames, features.descriptors, features.size, features.model)
    with pytest.raises(doap.DoapError, match="responses of these features are unknown"):
        unknown.strongest(5)


@pytest.mark.parametrize("type_", [np.uint8, np.int8, np.uint16, np.float16])
def test_responses_of_any_type_are_ranked(type_: type[np.number[Any]]) -> None:
    features = random_features(4)
    least = 0 if np.issubdtype(type_, np.unsignedinteger) else -128
    responses = np.array([least, 3, 127, 3]).astype(type_)
    strongest = doap.Features(features.frames, features.descriptors, features.size, "test", responses).strongest(4)
    np.testing.assert_array_equal(strongest.frames, features.frames[[2, 1, 3, 0]])


def test_features_and_matches_are_printed_in_one_line() -> None:
    features = random_features(20, "binary")
    assert repr(features) == "Features(20 keypoints of 640x480 pixels, 32 uint8, test)"
    assert repr(features[:1]) == "Features(1 keypoint of 640x480 pixels, 32 uint8, test)"
    matches = doap.match(features, features, geometry=None)
    assert repr(matches) == "Matches(20 matches, 20 inliers, None)"


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    features = random_features(5)
    with pytest.raises(doap.DoapError, match=r"frames must be \(N, 2, 3\), not \(5, 2, 2\)"):
        doap.Features(features.frames[:, :, :2], features.descriptors, (9, 9), "m")
    with pytest.raises(doap.DoapError, match=r"descriptors must be \(5, D\)"):
        doap.Features(features.frames, features.descriptors[:4], (9, 9), "m")
    with pytest.raises(doap.DoapError, match=r"responses must be \(5,\)"):
        doap.Features(features.frames, features.descriptors, (9, 9), "m", np.zeros(4, np.float32))


def test_opencv_gets_the_same_keypoints_back() -> None:
    features = random_features(40)
    keypoints = features.to_cv2()
    assert features.responses is not None
    assert all(isinstance(keypoint, cv2.KeyPoint) for keypoint in keypoints)
    np.testing.assert_allclose([k.pt for k in keypoints], features.keypoints)
    np.testing.assert_allclose([k.size for k in keypoints], 2 * features.scales, rtol=1e-6)
    assert [k.response for k in keypoints] == features.responses.tolist()
    np.testing.assert_allclose(to_frames(keypoints), features.frames, atol=1e-3)


def test_kornia_reads_the_frames() -> None:
    features = random_features(40)
    lafs = features.to_lafs()
    assert lafs.shape == (1, 40, 2, 3)
    assert lafs.dtype == torch.float32
    np.testing.assert_allclose(kornia.feature.get_laf_center(lafs)[0], features.keypoints)
    np.testing.assert_allclose(kornia.feature.get_laf_scale(lafs).ravel(), features.scales, rtol=1e-4)
    orientation = kornia.feature.get_laf_orientation(lafs).numpy().ravel()
    difference = (orientation + features.angles + 180) % 360 - 180  # a LAF's angle is counter-clockwise
    assert np.abs(difference).max() < 1e-2
    np.testing.assert_array_equal(to_frames(lafs), features.frames)


@pytest.mark.parametrize("size", [(120, 160), (3000, 2000)])
def test_keypoints_are_drawn_at_their_places(tmp_path: Path, size: tuple[int, int]) -> None:
    height, width = size
    frames = np.array([[[20, 0, 60], [0, 20, 70]]], np.float32) * np.float32(width / 160)
    features = doap.Features(frames, np.zeros((1, 8), np.float32), size, "m")
    picture = features.draw(np.full(size, 128, np.uint8), tmp_path / "keypoints.png")
    scale = min(1, 2400 / max(size))
    assert picture.shape == (round(height * scale), round(width * scale), 3)
    with Image.open(tmp_path / "keypoints.png") as written:
        np.testing.assert_array_equal(np.asarray(written), picture)
    rows, columns = np.nonzero(np.ptp(picture, axis=2) > 30)
    centre = (features.keypoints[0] + 0.5) * scale - 0.5
    radii = np.hypot(columns - centre[0], rows - centre[1]) / (features.scales[0] * scale)
    on_circle, on_axis = np.abs(radii - 1) < 0.1, np.abs(rows - centre[1]) < 2
    assert (on_circle | (on_axis & (columns > centre[0] - 2) & (radii < 1.1))).all()
    assert on_circle.sum() > 40


def test_another_image_than_that_of_the_features_is_not_drawn_on(photo: Grey) -> None:
    with pytest.raises(doap.DoapError, match="the image has 512x512 pixels, but its features 640x480"):
        random_features(5).draw(photo)
