"""SIFT of patches, of frames in an image, and its keypoints, compared with OpenCV."""

import cv2
import numpy as np
import pytest
import torch
from scipy.linalg import polar

import doap
from doap.geometry.ellipses import scales
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog, frames_from_keypoints
from doap.networks.baselines.sift import Sift, describe_sift, keypoints_from_frames, rootsift
from doap.types import Grey


def test_keypoints_and_frames_round_trip(photo: Grey) -> None:
    keypoints = list(cv2.SIFT.create().detect(photo, None))
    back = keypoints_from_frames(frames_from_keypoints(keypoints))
    for a, b in zip(keypoints, back, strict=True):
        assert a.pt == pytest.approx(b.pt)
        assert a.size == pytest.approx(b.size, rel=1e-5)
        assert (a.angle - b.angle + 180) % 360 - 180 == pytest.approx(0, abs=1e-3)
        assert (a.octave & 0xFFFF) == (b.octave & 0xFFFF)


def test_the_angle_of_an_affine_frame_is_that_of_the_nearest_rotation() -> None:
    """The factor U of the polar decomposition A = UP."""
    random = np.random.default_rng(0)
    shapes = np.eye(2) + random.normal(0, 0.25, (50, 2, 2))
    turns = random.uniform(0, 2 * np.pi, 50)
    cosine, sine = np.cos(turns), np.sin(turns)
    shapes = 4 * np.stack([np.stack([cosine, -sine], 1), np.stack([sine, cosine], 1)], 1) @ shapes
    frames = np.concatenate([shapes, np.full((50, 2, 1), 30)], 2).astype(np.float32)
    for keypoint, frame in zip(keypoints_from_frames(frames), frames, strict=True):
        rotation, _ = polar(frame[:, :2].astype(np.float64))
        angle = np.degrees(np.arctan2(rotation[1, 0], rotation[0, 0]))
        assert (keypoint.angle - angle + 180) % 360 - 180 == pytest.approx(0, abs=1e-3)


def test_sift_at_frames_is_opencvs_sift(photo: Grey) -> None:
    keypoints, expected = cv2.SIFT.create(enable_precise_upscale=True).detectAndCompute(photo, None)
    frames = frames_from_keypoints(list(keypoints))
    sift = Sift().describe_frames(photo, frames)
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    similarity = (sift * expected).sum(1)
    assert np.median(similarity) > 0.9999
    assert np.mean(similarity > 0.999) > 0.98
    root = Sift(root=True).describe_frames(photo, frames)
    np.testing.assert_allclose(root**2, sift / sift.sum(1, keepdims=True), atol=1e-5)


def test_no_frames_give_no_descriptors(photo: Grey) -> None:
    assert Sift().describe_frames(photo, np.zeros((0, 2, 3), np.float32)).shape == (0, 128)


def test_rootsift_is_the_root_of_sift(photo: Grey) -> None:
    corners = np.random.default_rng(0).integers(0, len(photo) - 65, (20, 2))
    patches = np.stack([photo[y : y + 65, x : x + 65] for y, x in corners])
    raw = doap.load("sift").network(torch.from_numpy(patches[:, None]).float()).numpy()
    vectors = doap.describe_patches(patches, doap.load("rootsift"))
    np.testing.assert_allclose(vectors, np.sqrt(raw / raw.sum(1, keepdims=True)), atol=1e-6)


def test_rootsift_of_a_flat_patch_is_zero() -> None:
    assert not rootsift(np.zeros((2, 128), np.float32)).any()
    assert not doap.describe_patches(np.full((2, 65, 65), 100, np.uint8), doap.load("rootsift")).any()


@pytest.mark.parametrize("name", ["sift", "rootsift"])
def test_sift_of_a_patch_is_sift_in_the_image(photo: Grey, name: str) -> None:
    frames = detect_dog(photo, 300)
    centres = frames[:, :, 2]
    inside = np.minimum(centres, 511 - centres).min(1) > 11 * scales(frames)
    frames = frames[inside]
    model = doap.load(name)
    vectors = doap.describe_patches(extract_patches(photo, frames, model.input_size, model.extent), model)
    expected = describe_sift(photo, frames, root=name == "rootsift")
    cosines = (vectors * expected).sum(1)
    assert len(cosines) > 200
    assert cosines.mean() > 0.99
    assert np.percentile(cosines, 5) > 0.98
