"""Retrieval of similar images, against a slow VLAD and on photos of a building."""

from pathlib import Path

import numpy as np
import pytest

from doap.errors import DoapError
from doap.features import Features
from doap.folders import FeatureCollection, all_pairs, retrieve_pairs
from doap.folders.retrieval import aggregate, as_vectors, learn_words

KINDS = ["real", "binary"]


def write_scenes(folder: Path, kind: str, scenes: int = 4, images: int = 3) -> Path:
    """Write features of images 'scene-image' of which those of a scene share most descriptors, up to noise."""
    random = np.random.default_rng(0)
    for scene in range(scenes):
        points = random.normal(size=(120, 32))
        for image in range(images):
            rows = np.concatenate([points[random.permutation(120)[:90]], random.normal(size=(30, 32))])
            rows += 0.2 * random.normal(size=rows.shape)
            real = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
            descriptors = real if kind == "real" else np.packbits(rows > 0, axis=1)
            frames = np.zeros((len(rows), 2, 3), np.float32)
            Features(frames, descriptors, (100, 100), "model").save(folder / f"{scene}-{image}.jpg.npz")
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_images_of_a_scene_are_retrieved(tmp_path: Path, kind: str) -> None:
    pairs = retrieve_pairs(write_scenes(tmp_path, kind), 2)
    assert pairs == [pair for pair in all_pairs(FeatureCollection(tmp_path).names) if pair[0][0] == pair[1][0]]
    assert retrieve_pairs(tmp_path, 2, seed=0) == pairs


def test_aggregation_is_vlad_of_unit_residuals() -> None:
    random = np.random.default_rng(1)
    descriptors, words = random.normal(size=(40, 8)), random.normal(size=(5, 8))
    sums = np.zeros((5, 8))
    for row in descriptors:
        distances = [np.sum((row - word) ** 2) for word in words]
        nearest = int(np.argmin(distances))
        sums[nearest] += (row - words[nearest]) / np.sqrt(distances[nearest])
    rooted = np.sign(sums) * np.abs(sums) ** 0.5
    expected = rooted.ravel() / np.linalg.norm(rooted)
    vector = aggregate(descriptors.astype(np.float32), words.astype(np.float32))
    np.testing.assert_allclose(vector, expected, atol=1e-5)
    assert aggregate(words[:1].astype(np.float32), words.astype(np.float32)).any() == 0  # NaN-free on a word itself


def test_bits_are_signs() -> None:
    bits = np.array([[0b10000001, 255], [0, 3]], np.uint8)
    expected = [[1, -1, -1, -1, -1, -1, -1, 1] + [1] * 8, [-1] * 14 + [1, 1]]
    np.testing.assert_array_equal(as_vectors(bits), expected)


def test_few_descriptors_give_few_words(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in "abc":
        rows = random.normal(size=(5, 16)).astype(np.float32)
        Features(np.zeros((5, 2, 3), np.float32), rows, (9, 9), "model").save(tmp_path / f"{name}.npz")
    assert learn_words(FeatureCollection(tmp_path), 64, 0).shape == (1, 16)
    assert retrieve_pairs(tmp_path, 100) == [("a", "b"), ("a", "c"), ("b", "c")]  # K larger than the collection


def test_images_without_keypoints_are_in_no_pair(tmp_path: Path) -> None:
    write_scenes(tmp_path, "real", 2, 2)
    empty = Features(np.zeros((0, 2, 3), np.float32), np.zeros((0, 32), np.float32), (9, 9), "model")
    empty.save(tmp_path / "empty.jpg.npz")
    assert retrieve_pairs(tmp_path, 1) == [("0-0.jpg", "0-1.jpg"), ("1-0.jpg", "1-1.jpg")]


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    write_scenes(tmp_path, "real", 1, 1)
    with pytest.raises(DoapError, match="1 image with keypoints; retrieval needs at least two"):
        retrieve_pairs(tmp_path, 5)
    with pytest.raises(DoapError, match=r"the number of images to retrieve must be a whole number, not 1\.5"):
        retrieve_pairs(tmp_path, 1.5)  # type: ignore[arg-type]
    with pytest.raises(DoapError, match="must be at least 1, not 0"):
        retrieve_pairs(tmp_path, 0)
    with pytest.raises(DoapError, match=r"^names: '0-0\.jpg' is one text; give a list of names"):
        retrieve_pairs(tmp_path, 1, names="0-0.jpg")
    (tmp_path / "0-0.jpg.npz").unlink()
    empty = Features(np.zeros((0, 2, 3), np.float32), np.zeros((0, 32), np.float32), (9, 9), "model")
    empty.save(tmp_path / "empty.jpg.npz")
    with pytest.raises(DoapError, match="no image has keypoints"):
        retrieve_pairs(tmp_path, 5)


def test_images_that_are_not_asked_for_have_no_influence(tmp_path: Path) -> None:
    all_images, few = write_scenes(tmp_path / "all", "real"), write_scenes(tmp_path / "few", "real", scenes=2)
    names = FeatureCollection(few).names
    assert retrieve_pairs(all_images, 3, names=[*names[::-1], names[0]]) == retrieve_pairs(few, 3)


def test_features_of_two_models_are_one_line(tmp_path: Path) -> None:
    write_scenes(tmp_path, "real")
    Features(np.zeros((9, 2, 3), np.float32), np.ones((9, 16), np.float32), (9, 9), "short").save(tmp_path / "b.npz")
    with pytest.raises(DoapError, match=r"dimensions, others (16|32); describe all with one model"):
        retrieve_pairs(tmp_path, 2)
