"""OpenCV's descriptors as networks, against OpenCV itself called on an image with the patch embedded."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import doap
from doap import DoapError
from doap.networks.baselines.opencv import CHUNK_SIZE, OPENCV_DESCRIPTORS, OpenCv
from doap.types import Grey

contrib = cv2.xfeatures2d

# How a user of OpenCV computes each descriptor: the extractor with the window documented for SIFT keypoints, the
# keypoint size at which this window is the patch, and the octave. Level 1 of octave 1 is blurred by 4.
DIRECT: dict[str, tuple[Callable[[], cv2.Feature2D], float, int]] = {
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


def load_or_skip(name: str) -> doap.Descriptor:
    """Load a baseline; skip the test if this build of OpenCV lacks its weights."""
    try:
        return doap.load(name)
    except DoapError as error:
        if "lacks its weights" in str(error):
            pytest.skip(str(error))
        raise


def sample_patches(photo: Grey, size: int, count: int) -> NDArray[np.uint8]:
    corners = np.random.default_rng(0).integers(0, len(photo) - size, (count, 2))
    return np.stack([photo[y : y + size, x : x + size] for y, x in corners])


@pytest.mark.parametrize("name", DIRECT)
def test_as_opencv_describes_the_patch_in_an_image(photo: Grey, name: str) -> None:
    create, size, octave = DIRECT[name]
    model = load_or_skip(name)
    patches = sample_patches(photo, model.input_size, CHUNK_SIZE + 6)
    vectors = doap.describe_patches(patches, model)
    assert vectors.shape == (len(patches), model.network.dimensions // (8 if model.kind == "binary" else 1))
    half = model.input_size // 2
    for patch, vector in list(zip(patches, vectors, strict=True))[::7]:
        image = np.pad(patch, ((80 - half, 60), (100 - half, 90)), "edge")
        (_,), expected = create().compute(image, [cv2.KeyPoint(100, 80, size, 0, 0, octave)])
        if model.kind == "binary":
            np.testing.assert_array_equal(vector, expected[0])
        else:
            np.testing.assert_allclose(vector, expected[0] / np.linalg.norm(expected), atol=1e-6)


@pytest.mark.parametrize("name", OPENCV_DESCRIPTORS)
def test_no_patch_is_dropped_and_none_sees_its_neighbours(photo: Grey, name: str) -> None:
    model = load_or_skip(name)
    flat = np.full((1, 20, 20), 200, np.uint8)
    patches = np.concatenate([flat, sample_patches(photo, 20, 4), flat, 255 - sample_patches(photo, 20, 4)])
    together = doap.describe_patches(patches, model)
    assert len(together) == len(patches)
    assert np.isfinite(together).all()
    alone = np.concatenate([doap.describe_patches(patch[None], model) for patch in patches])
    np.testing.assert_array_equal(together, alone)
    assert doap.describe_patches(patches[:0], model).shape == (0, together.shape[1])


@pytest.mark.parametrize("name", ["daisy", "vgg-120"])
def test_threads_can_share_a_model(photo: Grey, name: str, tmp_path: Path) -> None:
    # In a process of its own, because extractors that threads share crash.
    code = (
        "import doap, numpy as np, sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "patches, model = np.load(sys.argv[1]), doap.load(sys.argv[2])\n"
        "alone = doap.describe_patches(patches, model)\n"
        "with ThreadPoolExecutor(4) as pool:\n"
        "    results = list(pool.map(lambda _: doap.describe_patches(patches, model), range(4)))\n"
        "assert all(np.array_equal(result, alone) for result in results)\n"
    )
    model = load_or_skip(name)
    patches = tmp_path / "patches.npy"
    np.save(patches, sample_patches(photo, model.input_size, CHUNK_SIZE + 40))
    subprocess.run([sys.executable, "-c", code, patches, name], check=True)


@pytest.mark.parametrize("name", ["sift", "rootsift", *OPENCV_DESCRIPTORS])
def test_models_are_pickled_and_copied(photo: Grey, name: str) -> None:
    model = load_or_skip(name)
    patches = sample_patches(photo, model.input_size, 3)
    expected = doap.describe_patches(patches, model)
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(doap.describe_patches(patches, copied), expected)


def test_a_dropped_patch_is_an_error() -> None:
    network = OpenCv(cv2.ORB.create, 256, 31, 31.0, margin=10)
    with pytest.raises(RuntimeError, match="every patch"):
        network(torch.rand(3, 1, 31, 31) * 255)


def test_without_contrib_modules_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cv2, "xfeatures2d")
    with pytest.raises(DoapError, match=r"^latch needs OpenCV's contrib modules; install [^\n]*$"):
        doap.load("latch")
    assert doap.load("orb").kind == "binary"


@pytest.mark.parametrize("name", ["binboost-64", "vgg-120"])
def test_an_opencv_without_learned_weights_is_refused_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        @staticmethod
        def create(*_: object) -> None:
            raise cv2.error("built without downloaded features")

    monkeypatch.setattr(cv2.xfeatures2d, "BoostDesc" if name.startswith("bin") else "VGG", Bare)
    with pytest.raises(DoapError, match=rf"^{name}: this build of OpenCV lacks its weights[^\n]*$"):
        doap.load(name)
