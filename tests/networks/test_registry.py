import hashlib
import json
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from doap import DoapError, describe_patches, list_models, load
from doap.matching.nearest import mutual_nearest
from doap.networks.architecture import Architecture, build_network
from doap.networks.baselines.tfeat import TFeat
from doap.networks.card import Origin, read_card
from doap.networks.descriptor import Descriptor, device_of
from doap.networks.inference import optimize_for_inference
from doap.networks.registry import save


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "mine.safetensors"
    architecture = Architecture(dimensions=16, width=2)
    origin = Origin(licence="CC0", recipe={"epochs": 3})
    save(Descriptor(build_network(architecture), "binary", 7.5, "mine"), path, architecture, origin)
    return path


def test_round_trip(saved: Path) -> None:
    model = load(saved, fast=False)
    assert (model.kind, model.extent, model.name, model.network.dimensions) == ("binary", 7.5, "mine", 16)
    assert not model.training
    assert read_card(saved).origin.licence == "CC0"
    patches = np.random.default_rng(0).integers(0, 256, (20, 32, 32), dtype=np.uint8)
    assert describe_patches(patches, model).shape == (20, 2)


def test_extents_per_detector_are_saved_and_other_detectors_use_that_of_dog(saved: Path) -> None:
    architecture = read_card(saved).architecture
    extents = {"dog": 8.5, "harris-affine": 3.0}
    save(Descriptor(build_network(architecture), "binary", 7.5, "mine", extents), saved, architecture)
    for model in (load(saved, fast=False), optimize_for_inference(load(saved, fast=False))):
        assert [model.extent_for(name) for name in ("dog", "harris-affine", "harris")] == [8.5, 3.0, 8.5]


def test_a_fast_model_cannot_be_saved(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"mine: .* cannot be saved; load it with fast=False"):
        save(load(saved), tmp_path / "new.safetensors", read_card(saved).architecture)
    assert not (tmp_path / "new.safetensors").exists()


def test_weights_of_another_architecture_are_not_saved(saved: Path) -> None:
    before, architecture = saved.read_bytes(), read_card(saved).architecture
    wider = Descriptor(build_network(Architecture(dimensions=16, width=4)), "binary", 7.5, "mine")
    with pytest.raises(DoapError, match=r"^mine: its tensors are not those of the architecture; load it with"):
        save(wider, saved, architecture)
    assert saved.read_bytes() == before


@pytest.mark.parametrize("name", ["doap-demo-128", "doap-demo-256b", "rootsift"])
def test_all_forms_of_a_model_can_be_matched_with_each_other(name: str) -> None:
    exact, fast = load(name, fast=False), load(name)
    assert (exact.name, exact.kind, exact.bytes, exact.extents) == (fast.name, fast.kind, fast.bytes, fast.extents)
    patches = np.random.default_rng(0).integers(0, 256, (50, 8, 8), dtype=np.uint8).repeat(8, 1).repeat(8, 2)
    pairs, _ = mutual_nearest(describe_patches(patches, exact), describe_patches(patches, fast))
    np.testing.assert_array_equal(pairs, np.arange(50)[:, None].repeat(2, 1))


def test_cards_without_extents_and_sources_load(saved: Path) -> None:
    card = json.loads(saved.with_suffix(".json").read_text())
    del card["extents"], card["origin"]["sources"]
    saved.with_suffix(".json").write_text(json.dumps(card))
    assert load(saved).extent_for("dog") == 7.5


def test_weights_come_back_bit_for_bit(tmp_path: Path) -> None:
    architecture = Architecture(dimensions=8, width=2)
    network = build_network(architecture)
    network(torch.rand(8, 1, 32, 32))  # changes the running statistics
    save(Descriptor(network, "real", 12.0, "x"), tmp_path / "x.safetensors", architecture)
    loaded = load(tmp_path / "x.safetensors", fast=False).network.state_dict()
    for name, value in network.state_dict().items():
        assert torch.equal(value, loaded[name])


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def foreign(path: Path) -> None:
    save_file({"layer": torch.zeros(3)}, path)
    edit_card(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def set_value(path: Path, name: str, value: float, dtype: torch.dtype = torch.float32) -> None:
    """Replace the first value of a tensor, which the card allows."""
    tensors = load_file(path)
    tensors[name] = tensors[name].to(dtype)
    tensors[name].view(-1)[0] = value
    save_file(tensors, path)
    edit_card(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def edit_card(path: Path, **values: object) -> None:
    card = path.with_suffix(".json")
    card.write_text(json.dumps({**json.loads(card.read_text()), **values}))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "damaged": (damage, "its SHA-256 differs from that in mine.json"),
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[:100]), "its SHA-256 differs from that in mine.json"),
    "foreign": (foreign, "its tensors are not those of the architecture"),
    "no card": (lambda p: p.with_suffix(".json").unlink(), r"its card mine\.json cannot be read"),
    "broken card": (lambda p: p.with_suffix(".json").write_text("{"), "not a model card"),
    "binary card": (lambda p: p.with_suffix(".json").write_bytes(b"\xff\xfe\x00"), "not a model card"),
    "unknown key": (lambda p: edit_card(p, surprise=1), "not a model card .surprise"),
    "no such detector": (
        lambda p: edit_card(p, extents={"dogg": 3}),
        "extents.*dogg is not a detector; choose from dog",
    ),
    "no extent": (lambda p: edit_card(p, extents={"dog": 0}), r"not a model card .extents\.dog"),
    "endless extent": (lambda p: edit_card(p, extents={"dog": "inf"}), r"not a model card .extents\.dog"),
    "other input": (lambda p: edit_card(p, input_size=64), "reads 32 pixels, but its card says 64"),
    "NaN": (lambda p: set_value(p, "layers.3.weight", math.nan), r"its tensor layers\.3\.weight holds NaN or infinity"),
    "infinity": (lambda p: set_value(p, "layers.1.running_mean", math.inf), r"layers\.1\.running_mean holds NaN"),
    "beyond float32": (lambda p: set_value(p, "layers.0.weight", 1e300, torch.float64), r"layers\.0\.weight holds NaN"),
    "no variance": (lambda p: set_value(p, "layers.1.running_var", -1), r"layers\.1\.running_var has variances of 0"),
    "bits in no bytes": (
        lambda p: edit_card(p, architecture={"dimensions": 12, "width": 2}),
        "architecture.*bits of a binary descriptor must be a multiple of 8, not 12",
    ),
    "absurd size": (lambda p: edit_card(p, architecture={"width": 10**9}), "not a model card .architecture.width"),
}


@pytest.mark.parametrize("damage_name", DAMAGES)
def test_damaged_models_are_refused_in_one_line(saved: Path, damage_name: str) -> None:
    apply, message = DAMAGES[damage_name]
    apply(saved)
    with pytest.raises(DoapError, match=message) as caught:
        load(saved)
    assert "\n" not in str(caught.value)


def test_a_card_of_a_large_network_allocates_nothing(saved: Path) -> None:
    """The largest card: its network would take 280 TB."""
    edit_card(saved, architecture={"dimensions": 65536, "width": 4096})
    with pytest.raises(DoapError, match="its tensors are not those of the architecture on its card"):
        load(saved)


def test_published_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    tensors = {name: value.contiguous() for name, value in TFeat().state_dict().items()}
    name = next(iter(tensors))
    tensors[name].view(-1)[0] = math.nan
    save_file(tensors, tmp_path / "tfeat.safetensors")
    with pytest.raises(DoapError, match=rf"tfeat\.safetensors: its tensor {re.escape(name)} holds NaN or infinity"):
        load(tmp_path / "tfeat.safetensors")


def test_pickles_are_never_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "sprung",)  # type: ignore[return-value]

    (tmp_path / "model.pth").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DoapError, match="other formats are not read"):
        load(tmp_path / "model.pth")
    assert not (tmp_path / "sprung").exists()


def test_models_are_listed_by_pattern() -> None:
    names = list_models()
    assert names == sorted(names)
    assert list_models("*tiny*") == [name for name in names if "tiny" in name] != []
    assert list_models("doap-128") == ["doap-128"]
    assert list_models("DOAP-*") == []
    assert list_models("tiny") == []


@pytest.mark.parametrize("suffix", ["", "@64", ".safetensors"])
def test_a_name_longer_than_file_names_is_one_error(suffix: str) -> None:
    with pytest.raises(DoapError, match=re.escape(f"xx{suffix.removesuffix('@64')}: cannot be opened (")):
        load(300 * "x" + suffix)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(DoapError, match=r"no model of this name .*doap-demo-128"):
        load("doap-129")


@pytest.mark.parametrize("device", ["abacus", "cuda:99", "meta", torch.device("meta"), "", 3.5, "privateuseone", "xla"])
def test_a_device_that_is_not_here_is_named(device: Any) -> None:
    with pytest.raises(DoapError, match=f"^device {device}: (not available here|has no values)") as caught:
        load("doap-demo-128", device=device)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("doap-tiny-128", {}),
        ("doap-tiny-128", {"fast": False}),
        ("doap-tiny-128", {"int8": True}),
        ("doap-tiny-256b", {}),
        ("sift", {}),
    ],
)
def test_no_model_can_be_moved_to_a_device_that_is_not_here(name: str, options: Any) -> None:
    model = load(name, **options)
    for move in (lambda: model.to("cuda:99"), lambda: model.cuda(99), lambda: nn.Sequential(model).to("cuda:99")):
        with pytest.raises(DoapError, match=f"^device for {name}: not available here ") as caught:
            move()
        assert "\n" not in str(caught.value)
    assert (device_of(model) or torch.device("cpu")).type == "cpu"


@pytest.mark.parametrize("name", list_models())
def test_every_shipped_model_loads_and_its_card_is_complete(name: str) -> None:
    model = load(name, fast=False)
    assert model.name == name
    card = read_card(Path(__file__).parents[2] / "src" / "doap" / "weights" / f"{name}.safetensors")
    assert card.origin.licence
    assert card.origin.data
    assert card.origin.recipe
    assert card.origin.figures
    assert {"command", "limits"} <= set(card.origin.notes)
