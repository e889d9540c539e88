"""Methods: patches are described once, and the cache returns the same descriptors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skimage
import torch

import doap
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.harness.cache import DescriptorCache, content_key
from doap.evaluation.harness.methods import Method, PatchExtractor, Selection, open_methods, to_inference
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.networks.baselines.sift import describe_sift
from doap.networks.card import read_card
from doap.networks.descriptor import describe_patches
from doap.networks.inference import InferenceNetwork, optimize_for_inference
from doap.networks.registry import find_weights
from doap.networks.spatial_transformer import Padding, TransformedNetwork
from doap.types import Descriptors, Grey
from support.small_models import make_teacher, with_extents

MODELS = ("doap-demo-128", "doap-demo-256b", "rootsift")
IMAGE: Grey = skimage.data.camera()
FRAMES = detect_dog(IMAGE, 50)


@pytest.fixture
def patches() -> PatchSet:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 20, 20), dtype=np.uint8)
    return PatchSet([pixels[:30], pixels[30:]], groups=np.arange(40) // 2)


@pytest.fixture
def cache(tmp_path: Path) -> DescriptorCache:
    return DescriptorCache(tmp_path / "cache")


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of described patches, one per call."""
    calls: list[int] = []

    def counting(pixels: Descriptors, model: doap.Descriptor) -> Descriptors:
        if len(pixels):
            calls.append(len(pixels))
        return describe_patches(pixels, model)

    monkeypatch.setattr("doap.evaluation.harness.methods.describe_patches", counting)
    return calls


@pytest.mark.parametrize("name", MODELS)
def test_patches_are_described_as_by_the_model_and_once(
    name: str, patches: PatchSet, cache: DescriptorCache, described: list[int]
) -> None:
    expected = describe_patches(patches.take(np.arange(40)), to_inference(doap.load(name, fast=False)))
    calls: list[tuple[int, int]] = []
    for _ in range(2):
        (method,) = open_methods([name], cache=cache)
        actual = method.describe_patches(Selection(patches), lambda done, total: calls.append((done, total)))
        np.testing.assert_array_equal(actual, expected)
    assert described == [40]
    assert calls == [(40, 40)]
    assert method.bytes == actual.nbytes / 40
    assert method.metadata()["name"] == name


def test_some_patches_are_described_in_their_order(patches: PatchSet, cache: DescriptorCache) -> None:
    (method,) = open_methods(MODELS[:1], cache=cache)
    whole = method.describe_patches(Selection(patches))
    some = np.array([33, 2, 2, 31])
    np.testing.assert_allclose(method.describe_patches(Selection(patches, some)), whole[some], atol=1e-2)


@pytest.mark.parametrize("name", MODELS)
def test_frames_are_described_as_by_the_model_and_once(name: str, cache: DescriptorCache, described: list[int]) -> None:
    model = to_inference(doap.load(name, fast=False))
    expected = (
        describe_sift(IMAGE, FRAMES, True)
        if name == "rootsift"
        else describe_patches(extract_patches(IMAGE, FRAMES, model.input_size, model.extent), model)
    )
    for _ in range(2):
        np.testing.assert_array_equal(open_methods([name], cache=cache)[0].describe_frames(IMAGE, FRAMES), expected)
    assert described == ([] if name == "rootsift" else [len(FRAMES)])


def test_at_an_extent_all_read_the_same_patch(cache: DescriptorCache, described: list[int]) -> None:
    for method in open_methods(MODELS, extent=5.0, cache=cache):
        patches = extract_patches(IMAGE, FRAMES, method.model.input_size, 5.0)
        actual = method.describe_frames(IMAGE, FRAMES)
        np.testing.assert_array_equal(actual, describe_patches(patches, method.model))
        assert (method.extent, method.in_image) == (5.0, False)
    assert len(described) == 3


def test_the_own_extent_is_that_of_the_detector(tmp_path: Path, cache: DescriptorCache) -> None:
    specs = [with_extents(tmp_path / "mine.safetensors", dog=5.0, harris=3.0)]
    for detector, expected in (("dog", 5.0), ("harris", 3.0), ("hessian", 5.0), ("", 5.0)):
        (method,) = open_methods(specs, cache=cache, detector=detector)
        assert method.metadata()["extent"] == expected
        patches = extract_patches(IMAGE, FRAMES, method.model.input_size, expected)
        np.testing.assert_array_equal(method.describe_frames(IMAGE, FRAMES), describe_patches(patches, method.model))
    (requested,) = open_methods(specs, extent=4.0, cache=cache, detector="dog")
    assert requested.extent == 4.0


def test_any_change_is_described_again(patches: PatchSet, cache: DescriptorCache, described: list[int]) -> None:
    (method,) = open_methods(MODELS[:1], cache=cache)
    method.describe_patches(Selection(patches))
    changed = patches.take(np.arange(40))
    changed[17, 3, 3] ^= 1
    method.describe_patches(Selection(PatchSet([changed], groups=np.arange(40) // 2)))
    (other,) = open_methods(["doap-demo-256b"], cache=cache)
    other.describe_patches(Selection(patches))
    (uncached,) = open_methods(MODELS[:1], cache=DescriptorCache(cache.folder, overwrite=True))
    uncached.describe_patches(Selection(patches))
    (at_another_extent,) = open_methods(MODELS[:1], extent=3.0, cache=cache)
    method.describe_frames(IMAGE, FRAMES)
    at_another_extent.describe_frames(IMAGE, FRAMES)
    method.describe_frames(IMAGE, FRAMES[:-1])
    assert described == [40, 40, 40, 40, 50, 50, 49]


def test_without_cache_each_array_is_made_once_per_run(
    patches: PatchSet, cache: DescriptorCache, described: list[int]
) -> None:
    for _ in range(2):
        (method,) = open_methods(MODELS[:1], cache=DescriptorCache(cache.folder, overwrite=True))
        first, second = (method.describe_patches(Selection(patches)) for _ in range(2))
        np.testing.assert_array_equal(first, second)
    assert described == [40, 40]


def float32_weights(name: str) -> list[Any]:
    """Return names and values of the folded weights."""
    network = optimize_for_inference(doap.load(name, fast=False), torch.float32).network
    return [part for name, value in network.state_dict().items() for part in (name, value.numpy())]


def test_keys_are_those_of_version_0_1(patches: PatchSet) -> None:
    """Descriptors cached by earlier versions stay valid."""
    (method,) = open_methods(["doap-demo-128"])
    network = method.model.network
    assert isinstance(network, InferenceNetwork)
    mode = str(network.precision).removeprefix("torch.")
    assert method.key == content_key(1, "", "Tiny", "real", mode, "cpu", *float32_weights("doap-demo-128"))
    (aligned,) = open_methods(["doap-st-128"])
    assert aligned.key == content_key(1, "", "Transformed", "real", mode, "cpu", *float32_weights("doap-st-128"))
    assert Selection(patches).key == content_key(content_key(patches.take(np.arange(40))))


def test_descriptors_of_three_extents_are_not_those_before_small_patches_were_padded(tmp_path: Path) -> None:
    path = make_teacher(tmp_path / "three.safetensors", network="l2net", width=4, surround=2)
    (method,) = open_methods([path])
    network = method.model.network
    assert isinstance(network, InferenceNetwork)
    mode = str(network.precision).removeprefix("torch.")
    key = (1, "", "L2Net", "real", mode, "cpu")
    assert method.key != content_key(*key, *float32_weights(path))
    assert method.key == content_key(*key, "small patches are padded", *float32_weights(path))


def test_settings_of_a_transformer_have_keys_of_their_own(cache: DescriptorCache) -> None:
    """Padding and bounds are not among the weights."""
    settings: list[tuple[Padding, bool]] = [("replicate", True), ("zeros", True), ("replicate", False)]
    keys = []
    for padding, bounded in settings:
        model = doap.load("doap-st-128", fast=False)
        assert isinstance(model.network, TransformedNetwork)
        model.network.transformer.padding, model.network.transformer.bounded = padding, bounded
        keys.append(Method("st", "st", model, None, PatchExtractor("cpu"), cache).key)
    (shipped,) = open_methods(["doap-st-128"])
    assert keys[0] == shipped.key
    assert len(set(keys)) == 3


@pytest.mark.parametrize("damage", ["shortened", "flipped bit"])
def test_a_damaged_file_is_made_again(
    patches: PatchSet, cache: DescriptorCache, described: list[int], damage: str
) -> None:
    (method,) = open_methods(MODELS[:1], cache=cache)
    expected = np.array(method.describe_patches(Selection(patches)))
    (file,) = cache.folder.glob("*.npy")
    content = file.read_bytes()
    flipped = content[:999] + bytes([content[999] ^ 64]) + content[1000:]
    file.write_bytes(content[:1000] if damage == "shortened" else flipped)
    (method,) = open_methods(MODELS[:1], cache=DescriptorCache(cache.folder))
    np.testing.assert_array_equal(method.describe_patches(Selection(patches)), expected)
    assert described == [40, 40]


def test_descriptors_that_are_not_numbers_are_neither_used_nor_cached(
    tmp_path: Path, patches: PatchSet, cache: DescriptorCache
) -> None:
    model = doap.load("doap-demo-128", fast=False)
    with torch.no_grad():
        for weights in model.network.parameters():
            weights.mul_(1e35)  # finite, but products overflow
    doap.save(model, tmp_path / "large.safetensors", read_card(find_weights("doap-demo-128")).architecture)
    (method,) = open_methods([str(tmp_path / "large.safetensors")], cache=cache)
    with pytest.raises(DoapError, match="doap-demo-128: some descriptors are not numbers"):
        method.describe_patches(Selection(patches))
    with pytest.raises(DoapError, match="doap-demo-128: some descriptors are not numbers"):
        method.describe_frames(IMAGE, FRAMES)
    assert list(cache.folder.iterdir()) == []


def test_different_contents_have_different_keys() -> None:
    parts = [("a", "b"), ("ab",), (b"ab",), (np.zeros(2, np.uint8),), (np.zeros((2, 1), np.uint8),), (0.0,), (0,)]
    assert len({content_key(*each) for each in parts}) == len(parts)
    strided = np.arange(10)[::2]
    assert content_key(strided) == content_key(strided.copy())


def test_models_of_one_name_are_listed_by_path(tmp_path: Path, cache: DescriptorCache) -> None:
    shipped = Path(doap.__file__).parent / "weights"
    for suffix in (".safetensors", ".json"):
        (tmp_path / f"copy{suffix}").write_bytes((shipped / f"doap-demo-128{suffix}").read_bytes())
    specs = ["doap-demo-128", str(tmp_path / "copy.safetensors")]
    first, second = open_methods(specs, cache=cache)
    assert [first.name, second.name] == specs
    assert first.key == second.key  # the same content is not described twice


@pytest.mark.parametrize(
    ("specs", "message"), [([], "no model"), (["sift", "sift"], "sift: given twice"), (["x"], "no such")]
)
def test_what_cannot_be_compared_is_refused(specs: list[str], message: str, cache: DescriptorCache) -> None:
    with pytest.raises(DoapError, match=message):
        open_methods(specs, cache=cache)
