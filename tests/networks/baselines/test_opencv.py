"""OpenCV's descriptors as networks, against OpenCV itself called on an image with the patch embedded."""

import cv2
import numpy as np
import pytest
import torch

import doap
from doap import DoapError
from doap.geometry.ellipses import scales
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.networks.baselines.opencv import DESCRIPTORS, STRIP, OpenCv
from doap.networks.baselines.sift import describe_sift

contrib = cv2.xfeatures2d

# How a user of OpenCV would get each: the extractor with the window that its documentation gives for SIFT's
# keypoints, and the keypoint's size at which this window is the patch. Level 1 of octave 1 is blurred by 4.
DIRECT = {
    "sift": (lambda: cv2.SIFT.create(), 65 / 7.5, 1 | 1 << 8),
    "binboost-64": (lambda: contrib.BoostDesc.create(300, True, 6.75), 32 / 6.75, 0),
    "binboost-128": (lambda: contrib.BoostDesc.create(301, True, 6.75), 32 / 6.75, 0),
    "binboost-256": (lambda: contrib.BoostDesc.create(302, True, 6.75), 32 / 6.75, 0),
    "teblid-256": (lambda: contrib.TEBLID.create(6.75, contrib.TEBLID_SIZE_256_BITS), 32 / 6.75, 0),
    "teblid-512": (lambda: contrib.TEBLID.create(6.75, contrib.TEBLID_SIZE_512_BITS), 32 / 6.75, 0),
    "beblid-256": (lambda: contrib.BEBLID.create(6.75, contrib.BEBLID_SIZE_256_BITS), 32 / 6.75, 0),
    "beblid-512": (lambda: contrib.BEBLID.create(6.75, contrib.BEBLID_SIZE_512_BITS), 32 / 6.75, 0),
    "latch": (lambda: contrib.LATCH.create(), 10.0, 0),
    "orb": (lambda: cv2.ORB.create(), 31.0, 0),
    "daisy": (lambda: contrib.DAISY.create(norm=contrib.DAISY_NRM_FULL), 10.0, 0),
    "vgg-120": (lambda: contrib.VGG.create(scale_factor=6.75), 64 / 6.75, 0),
}


def load_here(name: str) -> doap.Descriptor:
    """A peer, if this build of OpenCV has the weights of it."""
    try:
        return doap.load(name)
    except DoapError as error:
        if "without its weights" in str(error):
            pytest.skip(str(error))
        raise


def cut(photo: np.ndarray, size: int, count: int) -> np.ndarray:
    corners = np.random.default_rng(0).integers(0, len(photo) - size, (count, 2))
    return np.stack([photo[y : y + size, x : x + size] for y, x in corners])


@pytest.mark.parametrize("name", DIRECT)
def test_as_opencv_describes_the_patch_in_an_image(photo: np.ndarray, name: str) -> None:
    create, size, octave = DIRECT[name]
    model = load_here(name)
    patches = cut(photo, model.input_size, STRIP + 6)
    found = doap.describe(patches, model)
    assert found.shape == (len(patches), model.network.dimensions // (8 if model.kind == "binary" else 1))
    half = model.input_size // 2
    for patch, vector in list(zip(patches, found, strict=True))[::7]:
        image = np.pad(patch, ((80 - half, 60), (100 - half, 90)), "edge")
        (_,), expected = create().compute(image, [cv2.KeyPoint(100, 80, size, 0, 0, octave)])
        if model.kind == "binary":
            np.testing.assert_array_equal(vector, expected[0])
        else:
            np.testing.assert_allclose(vector, expected[0] / np.linalg.norm(expected), atol=1e-6)


def test_rootsift_is_the_root_of_sift(photo: np.ndarray) -> None:
    sift, rootsift = doap.load("sift"), doap.load("rootsift")
    patches = cut(photo, 65, 20)
    raw = sift.network(torch.from_numpy(patches[:, None]).float()).numpy()
    np.testing.assert_allclose(doap.describe(patches, rootsift), np.sqrt(raw / raw.sum(1, keepdims=True)), atol=1e-6)


@pytest.mark.parametrize("name", ["sift", "rootsift"])
def test_sift_of_a_patch_is_sift_in_the_image(photo: np.ndarray, name: str) -> None:
    frames = detect_dog(photo, 300)
    centres = frames[:, :, 2]
    inside = np.minimum(centres, 511 - centres).min(1) > 11 * scales(frames)
    frames = frames[inside]
    model = doap.load(name)
    found = doap.describe(extract_patches(photo, frames, model.input_size, model.extent), model)
    expected = describe_sift(photo, frames, root=name == "rootsift")
    cosines = (found * expected).sum(1)
    assert len(cosines) > 200
    assert cosines.mean() > 0.99
    assert np.percentile(cosines, 5) > 0.98


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_no_patch_is_dropped_and_none_sees_its_neighbours(photo: np.ndarray, name: str) -> None:
    model = load_here(name)
    flat = np.full((1, 20, 20), 200, np.uint8)
    patches = np.concatenate([flat, cut(photo, 20, 4), flat, 255 - cut(photo, 20, 4)])
    together = doap.describe(patches, model)
    assert len(together) == len(patches)
    assert np.isfinite(together).all()
    alone = np.concatenate([doap.describe(patch[None], model) for patch in patches])
    np.testing.assert_array_equal(together, alone)
    assert doap.describe(patches[:0], model).shape == (0, together.shape[1])


def test_a_dropped_patch_is_never_passed_over_in_silence() -> None:
    network = OpenCv(cv2.ORB.create(), 256, 31, 31.0, margin=10)
    with pytest.raises(RuntimeError, match="every patch"):
        network(torch.rand(3, 1, 31, 31) * 255)


def test_without_contrib_modules_the_fault_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cv2, "xfeatures2d")
    with pytest.raises(DoapError, match=r"^latch needs OpenCV's contrib modules; install [^\n]*$"):
        doap.load("latch")
    assert doap.load("orb").kind == "binary"


@pytest.mark.parametrize("name", ["binboost-64", "vgg-120"])
def test_an_opencv_without_learned_weights_is_told_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        @staticmethod
        def create(*_: object) -> None:
            raise cv2.error("built without downloaded features")

    monkeypatch.setattr(cv2.xfeatures2d, "BoostDesc" if name.startswith("bin") else "VGG", Bare)
    with pytest.raises(DoapError, match=rf"^{name}: this build of OpenCV is without its weights[^\n]*$"):
        doap.load(name)
