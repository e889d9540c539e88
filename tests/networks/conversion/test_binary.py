import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import doap
from doap.networks.architecture import Architecture, build_network
from doap.networks.baselines.tfeat import TFeat
from doap.networks.card import Origin, read_card
from doap.networks.conversion import binarise
from doap.networks.descriptor import Descriptor
from doap.networks.registry import find_card, save


def save_random(path: Path, kind: str = "real", dimensions: int = 16, network: str = "l2net") -> Path:
    """Write a narrow model with statistics of batch normalisation, a figure and a note."""
    architecture = Architecture.model_validate({"network": network, "dimensions": dimensions, "width": 2})
    built = build_network(architecture)
    with torch.no_grad():
        built(torch.rand(16, 1, built.input_size, built.input_size) * 255)
    origin = Origin(licence="CC0", data="noise", figures={"AP": 90.0}, notes={"limits": "random"})
    model = Descriptor(built, "binary" if kind == "binary" else "real", 7.5, "mine", {"dog": 8.5})
    save(model, path, architecture, origin)
    return path


@pytest.mark.parametrize("network", ["l2net", "cs-l2net", "tiny"])
def test_bits_are_the_signs_of_the_unit_vectors(tmp_path: Path, network: str) -> None:
    source = save_random(tmp_path / "mine.safetensors", network=network)
    patches = np.random.default_rng(0).integers(0, 256, (40, 64, 64), dtype=np.uint8)
    expected = np.packbits(doap.describe_patches(patches, doap.load(source, fast=False)) > 0, axis=1)
    binary = doap.load(binarise(source, tmp_path / "bits.safetensors"), fast=False)
    assert np.array_equal(doap.describe_patches(patches, binary), expected)
    assert (binary.kind, binary.bytes, binary.name) == ("binary", 2, "bits")
    assert (binary.extent, binary.extents) == (7.5, {"dog": 8.5})


def test_the_card_names_the_source_and_drops_its_figures(tmp_path: Path) -> None:
    source = save_random(tmp_path / "mine.safetensors")
    output = binarise(str(source), tmp_path / "new" / "bits.safetensors", name="L2Net+")
    card = read_card(output)
    assert card.name == "L2Net+"
    assert card.sha256 == hashlib.sha256(output.read_bytes()).hexdigest()
    assert card.architecture == read_card(source).architecture
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    history = f"binarised by the sign of the activations, from mine, SHA-256 {digest}"
    expected = Origin(licence="CC0", data="noise", notes={"limits": "random", "conversion": history})
    assert card.origin == expected


def test_a_shipped_model_is_found_by_its_name(tmp_path: Path) -> None:
    card = read_card(binarise("doap-demo-128", tmp_path / "x.safetensors"))
    assert (card.kind, card.architecture.dimensions) == ("binary", 128)
    assert card.origin.recipe["kind"] == "real"  # how it was trained


@pytest.mark.parametrize("name", ["doap-demo-128", "doap-128@64"])
def test_a_calibrated_model_stays_calibrated(tmp_path: Path, name: str) -> None:
    output = binarise(name, tmp_path / "bits.safetensors")
    card = find_card(name)
    assert card is not None
    assert read_card(output).activation_ranges == card.activation_ranges
    patches = np.random.default_rng(0).integers(0, 256, (20, 32, 32), dtype=np.uint8)
    floats, integers = (doap.describe_patches(patches, doap.load(output, int8=int8)) for int8 in (False, True))
    assert np.unpackbits(floats ^ integers, axis=1).mean() < 0.05


@pytest.mark.parametrize(
    ("source", "output", "message"),
    [
        ("binary.safetensors", "new.safetensors", "binary.safetensors: binary already"),
        ("odd.safetensors", "new.safetensors", "12 dimensions give no whole bytes"),
        ("rootsift", "new.safetensors", "rootsift: a baseline without a card"),
        ("tfeat.safetensors", "new.safetensors", "a baseline without a card"),
        ("nothing", "new.safetensors", "no model of this name"),
        ("doap-demo-128", "new.pth", "models are written as .safetensors"),
        ("doap-demo-128", "odd.safetensors", "odd.safetensors: exists already"),
        ("doap-demo-128", "card.safetensors", "card.json: exists already"),
        ("doap-demo-128", "model.safetensors", "config.json: exists already"),
    ],
)
def test_what_cannot_be_binarised_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, output: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    save_random(Path("binary.safetensors"), kind="binary")
    save_random(Path("odd.safetensors"), dimensions=12)
    save_file(TFeat().state_dict(), "tfeat.safetensors")
    for name in ("card.json", "config.json"):
        Path(name).write_text(json.dumps({}))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(doap.DoapError, match=message) as caught:
        binarise(source, Path(output))
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
