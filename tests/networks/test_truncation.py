"""Models of prefixes: their descriptors are those of the whole model, cut."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import doap
from doap.errors import DoapError
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.networks import split_length, with_length
from doap.networks.architecture import Architecture, build_network, shapes_of
from doap.networks.baselines.tfeat import TFeat
from doap.networks.card import read_card, write_card
from doap.networks.conversion import binarise
from doap.networks.descriptor import Descriptor, describe_patches
from doap.networks.int8 import calibrate
from doap.networks.registry import find_card, find_weights, save
from doap.types import Descriptors, Grey, Kind
from support.nested_models import nested_copy

KINDS = pytest.mark.parametrize("kind", ["real", "binary"])
ARCHITECTURES = [
    Architecture(width=4, dimensions=32),
    Architecture(network="l2net-mean", width=4, dimensions=32),
    Architecture(network="hynet", width=4, dimensions=32),
    Architecture(network="residual", width=4, dimensions=32),
    Architecture(width=4, dimensions=32, surround=1),
    Architecture(network="tiny", width=8, dimensions=32),
    Architecture(network="tiny", width=16, dimensions=256),
    Architecture(network="windows", width=8, dimensions=32),
    Architecture(network="windows", width=16, dimensions=256),
    Architecture(width=4, dimensions=32, transformer=True),
    Architecture(network="tiny", width=16, dimensions=256, transformer=True),
]


@pytest.fixture(scope="module")
def patches(photo: Grey) -> NDArray[np.uint8]:
    return extract_patches(photo, detect_dog(photo, 40), 32, 12.0)


def make_model(architecture: Architecture, kind: Kind, prefixes: list[int]) -> Descriptor:
    """Return an untrained model, with statistics of batch normalisation."""
    torch.manual_seed(0)
    network = build_network(architecture)
    with torch.no_grad():
        for _ in range(20):
            network(torch.rand(32, 1, network.input_size, network.input_size) * 255)
    return Descriptor(network, kind, 12.0, "some", {"dog": 10.0}, prefixes).eval()


def check_prefix_of(short: Descriptors, whole: Descriptors, kind: Kind) -> None:
    """Check descriptors of a prefix: the first bits, or the first components, normalised again."""
    expected = whole[:, : short.shape[1]]
    if kind == "binary":
        np.testing.assert_array_equal(short, expected)
    else:
        np.testing.assert_allclose(short, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)


@KINDS
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda one: f"{one.network}-{one.dimensions}")
def test_descriptors_are_prefixes_and_the_network_an_ordinary_one(
    architecture: Architecture, kind: Kind, patches: NDArray[np.uint8], tmp_path: Path
) -> None:
    lengths = [8, 24] if architecture.dimensions == 32 else [64, 128, 192]
    model = make_model(architecture, kind, lengths)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    whole = describe_patches(patches, model)
    for length in lengths:
        short = model.truncate(length)
        assert (short.name, short.kind, short.extent, short.extents) == (f"some@{length}", kind, 12.0, {"dog": 10.0})
        assert (short.network.dimensions, short.bytes) == (length, length // 8 if kind == "binary" else 4 * length)
        assert short.prefixes == tuple(prefix for prefix in lengths if prefix < length)
        assert not short.training
        check_prefix_of(describe_patches(patches, short), whole, kind)
        smaller = architecture.model_copy(update={"dimensions": length})
        shapes = {name: tuple(value.shape) for name, value in short.network.state_dict().items()}
        assert shapes == shapes_of(smaller)
        doap.save(short, tmp_path / "short.safetensors", smaller)
        saved = doap.load(tmp_path / "short.safetensors", fast=False)
        assert (saved.name, saved.prefixes) == (short.name, short.prefixes)
        np.testing.assert_array_equal(describe_patches(patches, saved), describe_patches(patches, short))
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("dimensions", "message"),
    [
        (64.5, "dimensions must be a whole number, not 64.5"),
        ("64", "dimensions must be a whole number, not '64'"),
        (-64, "doap-tiny-128: dimensions must be at least 1, not -64"),
        (0, "doap-tiny-128: dimensions must be at least 1, not 0"),
    ],
)
def test_a_wrong_length_is_not_called_a_missing_file(dimensions: Any, message: str) -> None:
    with pytest.raises(DoapError) as error:
        doap.load("doap-tiny-128", dimensions=dimensions)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["doap-128", "doap-256b", "doap-st-128", "doap-st-256b", "doap-tiny-128"])
def test_loading_truncates_before_it_optimises(name: str, patches: NDArray[np.uint8], tmp_path: Path) -> None:
    path = nested_copy(name, tmp_path, [32, 64])
    whole = describe_patches(patches, doap.load(path))
    for model in (doap.load(path, dimensions=64), doap.load(f"{path}@64")):
        assert (model.name, model.network.dimensions, model.prefixes) == ("nested@64", 64, (32,))
        check_prefix_of(describe_patches(patches, model), whole, model.kind)
    exact = doap.load(path, fast=False)
    check_prefix_of(describe_patches(patches, exact.truncate(32)), describe_patches(patches, exact), exact.kind)


@pytest.mark.parametrize("name", ["doap-128", "doap-256b", "doap-tiny-128"])
def test_int8_has_the_same_prefixes(name: str, patches: NDArray[np.uint8], tmp_path: Path) -> None:
    path = nested_copy(name, tmp_path, [64])
    short = doap.load(path, int8=True, dimensions=64)
    check_prefix_of(describe_patches(patches, short), describe_patches(patches, doap.load(path, int8=True)), short.kind)


def test_int8_of_residual_blocks_has_the_same_prefixes(patches: NDArray[np.uint8], tmp_path: Path) -> None:
    """Their sums have ranges, too, which are kept."""
    architecture, path = Architecture(network="residual", width=4, dimensions=32), tmp_path / "some.safetensors"
    model = make_model(architecture, "real", [16])
    save(model, path, architecture)
    ranges = calibrate(model, np.concatenate([patches] * 3))
    write_card(path, read_card(path).model_copy(update={"activation_ranges": ranges}))
    short = doap.load(path, int8=True, dimensions=16)
    check_prefix_of(describe_patches(patches, short), describe_patches(patches, doap.load(path, int8=True)), "real")


def test_int8_of_a_head_that_becomes_one_matrix(patches: NDArray[np.uint8], tmp_path: Path) -> None:
    path = nested_copy("doap-tiny-256b", tmp_path, [64])
    card, truncated = find_card(path), find_card(f"{path}@64")
    assert card is not None
    assert truncated is not None
    assert truncated.activation_ranges == card.activation_ranges[:3]
    floats = describe_patches(patches, doap.load(path, fast=False, dimensions=64))
    integers = describe_patches(patches, doap.load(path, int8=True, dimensions=64))
    assert np.unpackbits(floats ^ integers, axis=1).sum(1).mean() < 0.02 * 64


def test_the_whole_length_is_the_model_itself() -> None:
    model = doap.load("doap-demo-128", dimensions=128)
    assert (model.name, model.network.dimensions) == ("doap-demo-128", 128)
    assert model.truncate(128) is model
    card = find_card("doap-demo-128@128")
    assert card is not None
    assert card.name == "doap-demo-128"
    assert doap.load("rootsift@128").name == "rootsift"


def test_the_card_of_a_prefix(tmp_path: Path) -> None:
    path = nested_copy("doap-128", tmp_path, [32, 64])
    card, whole = find_card(f"{path}@64"), read_card(Path(path))
    assert card is not None
    assert (card.name, card.architecture.dimensions, card.prefixes) == ("nested@64", 64, [32])
    assert (card.extents, card.activation_ranges) == (whole.extents, whole.activation_ranges)
    assert (card.origin.figures, whole.origin.figures != {}) == ({}, True)
    step = f"first 64 of 128 dimensions or bits of nested, SHA-256 {whole.sha256}"
    assert card.origin.notes["conversion"].endswith(step)
    assert find_weights(f"{path}@64") == Path(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{nested}@48", "nested: not trained for 48 dimensions or bits, only for 32, 64, 128"),
        ("{nested}@256", "nested: not trained for 256 dimensions or bits, only for 32, 64, 128"),
        ("doap-demo-128@64", "doap-demo-128: not trained for 64 dimensions or bits, only for 128"),
        ("rootsift@64", "rootsift: not trained for 64 dimensions or bits, only for 128"),
        ("doap-nothing@64", "doap-nothing: no such file, and no model of this name"),
        ("{nested}@-1", "nested.safetensors@-1: no such file, and no model of this name"),
    ],
)
def test_other_lengths_are_one_line(name: str, message: str, tmp_path: Path) -> None:
    path = nested_copy("doap-demo-128", tmp_path, [32, 64])
    with pytest.raises(DoapError, match=message) as caught:
        doap.load(name.format(nested=path))
    assert "\n" not in str(caught.value)


def test_networks_and_forms_that_cannot_be_truncated(tmp_path: Path) -> None:
    towers = build_network(Architecture(network="cs-l2net", width=4, dimensions=32))
    for network in (towers, TFeat()):
        model = Descriptor(network, "real", 12.0, "some", prefixes=[8])
        with pytest.raises(DoapError, match=f"{type(network).__name__} cannot be truncated: its activations are not"):
            model.truncate(8)
    path = nested_copy("doap-demo-128", tmp_path, [64])
    assert doap.load(path).prefixes == (64,)
    with pytest.raises(DoapError, match="a fast model cannot be truncated; load it with dimensions=64"):
        doap.load(path).truncate(64)
    with pytest.raises(DoapError, match="an int8 model cannot be truncated; load it with dimensions=64"):
        doap.load(path, int8=True).truncate(64)
    short = doap.load(path, fast=False, dimensions=64)
    with pytest.raises(DoapError, match="nested@64: has 64 dimensions or bits, but the architecture 128"):
        doap.save(short, tmp_path / "short.safetensors", read_card(Path(path)).architecture)


def test_a_truncated_network_trains(patches: NDArray[np.uint8]) -> None:
    short = make_model(ARCHITECTURES[5], "real", [64]).truncate(64).train()
    short.network(torch.from_numpy(patches[:8])[:, None].float()).square().sum().backward()
    assert all(parameter.grad is not None for parameter in short.parameters())


def test_binarised_models_keep_their_prefixes(patches: NDArray[np.uint8], tmp_path: Path) -> None:
    path = nested_copy("doap-demo-128", tmp_path, [20, 64])
    binary = doap.load(binarise(path, tmp_path / "bits.safetensors"), fast=False)
    assert binary.prefixes == (64,)
    check_prefix_of(describe_patches(patches, binary.truncate(64)), describe_patches(patches, binary), "binary")


def test_a_path_that_exists_is_no_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert split_length("doap-128@64") == ("doap-128", 64)
    Path("doap-128@64").mkdir()
    assert split_length("doap-128@64") == ("doap-128@64", None)
    assert split_length("a@64.safetensors") == ("a@64.safetensors", None)


def test_a_name_has_one_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert with_length("doap-128", 64) == with_length("doap-128@64", 64) == "doap-128@64"
    assert with_length("doap-128@64", None) == "doap-128@64"
    assert split_length("doap-128@64@64") == ("doap-128", 64)
    path = nested_copy("doap-demo-128", tmp_path, [32, 64])
    assert doap.load(f"{path}@64", dimensions=64).network.dimensions == 64
    for call in (
        lambda: with_length("doap-128@32", 64),
        lambda: split_length("doap-128@32@64"),
        lambda: doap.load("doap-128@32", dimensions=64),
        lambda: doap.load("doap-128@32@64"),
        lambda: find_card("doap-128@32@64"),
    ):
        with pytest.raises(DoapError, match=r"^doap-128@32: names 32 dimensions or bits already, not 64$"):
            call()
    Path("doap-128@32").mkdir()
    assert with_length("doap-128@32", 64) == "doap-128@32@64"
    assert split_length("doap-128@32@64") == ("doap-128@32", 64)


def test_a_prefix_is_not_confused_with_a_file_of_its_name(tmp_path: Path) -> None:
    path = nested_copy("doap-demo-128", tmp_path, [64])
    other = Path(f"{path}@64")
    other.mkdir()
    for call in (lambda: with_length(path, 64), lambda: doap.load(path, dimensions=64)):
        with pytest.raises(DoapError, match=r"@64: is a file or folder, not the prefix of .*; rename it$"):
            call()
    other.rmdir()
    assert doap.load(path, dimensions=64).name == "nested@64"


@pytest.mark.parametrize(("file", "name"), [("some@64", None), ("some", "some@64")])
def test_a_converted_model_has_not_the_name_of_a_prefix(tmp_path: Path, file: str, name: str | None) -> None:
    with pytest.raises(DoapError, match=r"^some@64: names a prefix of the model some; choose another name$"):
        binarise("doap-demo-128", tmp_path / f"{file}.safetensors", name)
    assert not list(tmp_path.iterdir())
    assert doap.load(binarise("doap-demo-128", tmp_path / f"{file}.safetensors", "some")).name == "some"
