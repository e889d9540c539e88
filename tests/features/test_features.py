from pathlib import Path

import cv2
import numpy as np
import pytest
import skimage
from PIL import Image

import doap
from doap.geometry.homographies import transform_points
from doap.images.extraction import extract_patches
from doap.networks.descriptor import Descriptor
from doap.networks.l2net import L2Net


def untrained(name: str = "test", **extents: float) -> Descriptor:
    return Descriptor(L2Net(32, width=2), "real", 12.0, name, extents).eval()


def test_images_come_as_paths_arrays_and_pictures(tmp_path: Path) -> None:
    colour = skimage.data.astronaut()[:200, :200]
    Image.fromarray(colour).save(tmp_path / "a.png")
    model = untrained()
    from_path, from_array, from_picture = (
        doap.detect_and_describe(image, model, 50) for image in (tmp_path / "a.png", colour, Image.fromarray(colour))
    )
    np.testing.assert_array_equal(from_path.frames, from_array.frames)
    np.testing.assert_array_equal(from_path.descriptors, from_picture.descriptors)
    assert from_path.size == (200, 200)


@pytest.mark.parametrize(("extents", "expected"), [({"dog": 5.0, "harris": 3.0}, 5.0), ({"harris": 3.0}, 12.0)])
def test_patches_are_cut_at_the_extent_of_the_detector(
    photo: np.ndarray, extents: dict[str, float], expected: float
) -> None:
    model = untrained(**extents)
    features = doap.detect_and_describe(photo, model, 30)
    patches = extract_patches(photo, features.frames, model.input_size, expected)
    np.testing.assert_array_equal(features.descriptors, doap.describe_patches(patches, model))


@pytest.mark.parametrize("image", [np.zeros((5, 5, 2), np.uint8), np.zeros((50, 50)), np.zeros(9, np.uint8)])
def test_arrays_that_are_no_images_are_refused(image: np.ndarray) -> None:
    with pytest.raises(doap.DoapError, match="an image is"):
        doap.detect_and_describe(image, untrained())


def test_features_of_different_models_are_not_matched(photo: np.ndarray) -> None:
    a, b = (doap.detect_and_describe(photo, untrained(name), 20) for name in ("one", "other"))
    with pytest.raises(doap.DoapError, match="one and other cannot be matched"):
        doap.match(a, b)


def test_features_are_saved_for_others_to_read(photo: np.ndarray, tmp_path: Path) -> None:
    features = doap.detect_and_describe(photo, untrained(), 60)
    features.save(tmp_path / "camera.npz")
    with np.load(tmp_path / "camera.npz", allow_pickle=False) as archive:
        assert set(archive) == {"frames", "keypoints", "descriptors", "size", "model"}
        np.testing.assert_array_equal(archive["keypoints"], features.frames[:, :, 2])
        np.testing.assert_array_equal(archive["descriptors"], features.descriptors)
        assert archive["size"].tolist() == [512, 512]
        assert str(archive["model"]) == "test"


def test_an_image_matches_itself(photo: np.ndarray) -> None:
    features = doap.detect_and_describe(photo, untrained(), 300)
    found = doap.match(features, features, "homography")
    assert (found.indices[:, 0] == found.indices[:, 1]).all()
    assert found.inliers.all()
    np.testing.assert_allclose(found.matrix / found.matrix[2, 2], np.eye(3), atol=1e-2)


@pytest.mark.parametrize("model", ["doap-demo-128", "doap-demo-256b"])
@pytest.mark.parametrize(("sequence", "number"), [("graf", 2), ("boat", 2), ("bikes", 4), ("leuven", 6)])
def test_real_photographs_are_matched_right(oxford: Path, model: str, sequence: str, number: int) -> None:
    folder = oxford / sequence
    truth = cv2.FileStorage(str(folder / f"H1to{number}p.xml"), cv2.FILE_STORAGE_READ)
    homography = truth.getFirstTopLevelNode().mat()
    descriptor = doap.load(model)
    a, b = (doap.detect_and_describe(folder / f"img{k}.png", descriptor) for k in (1, number))
    found = doap.match(a, b, "homography", threshold=3)
    kept = found.indices[found.inliers]
    assert len(kept) >= 100
    off = transform_points(a.keypoints[kept[:, 0]], homography) - b.keypoints[kept[:, 1]]
    assert np.mean(np.hypot(*off.T) < 5) > 0.9
