import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import doap as package
from doap.bridges.hub import save_pretrained
from doap.networks import registry
from doap.networks.architecture import Architecture, build_network
from doap.networks.card import read_card, write_card
from doap.networks.registry import find_weights
from doap.types import Grey
from support.command_line import Doap


def copy_model(folder: Path) -> Path:
    """Copy a shipped model, without activation ranges."""
    source, target = find_weights("doap-demo-128"), folder / "own.safetensors"
    shutil.copy(source, target)
    write_card(target, read_card(source).model_copy(update={"activation_ranges": []}))
    return target


def test_ranges_are_written_on_the_card(doap: Doap, tmp_path: Path, photo: Grey) -> None:
    weights = copy_model(tmp_path)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    before = read_card(weights)
    status, shown, _ = doap("calibrate", "own.safetensors", "photo.png", "--keypoints", "200")
    assert status == 0
    assert shown.strip().endswith("from 200 patches of 1 photo")
    card = read_card(weights)
    assert len(card.activation_ranges) == 4
    assert card.model_copy(update={"activation_ranges": []}) == before
    assert package.load(weights, int8=True).name == "doap-demo-128"


def test_shipped_models_are_calibrated_by_path_or_as_a_copy(
    doap: Doap, tmp_path: Path, photo: Grey, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = copy_model(tmp_path)
    monkeypatch.setattr(registry, "WEIGHTS_FOLDER", tmp_path)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    status, _, errors = doap("calibrate", "own", "photo.png", "--keypoints", "200")
    assert (status, errors.count("\n")) == (1, 1)
    assert errors.startswith("doap: own: a shipped model, whose card is not changed; calibrate a copy of it")
    assert not read_card(shipped).activation_ranges
    copy = save_pretrained("own", tmp_path / "copy")
    assert doap("calibrate", "copy", "photo.png", "--keypoints", "200")[0] == 0
    assert not read_card(shipped).activation_ranges
    assert doap("calibrate", "own.safetensors", "photo.png", "--keypoints", "200")[0] == 0
    assert len(read_card(shipped).activation_ranges) == 4
    assert read_card(copy / "model.safetensors") == read_card(shipped)


def test_errors_are_one_line(doap: Doap, tmp_path: Path) -> None:
    copy_model(tmp_path)
    architecture = Architecture(network="hynet", width=4)
    hynet = package.Descriptor(build_network(architecture), "real", 12.0, "hynet")
    registry.save(hynet, tmp_path / "hynet.safetensors", architecture)
    Image.fromarray(np.zeros((64, 64), np.uint8)).save(tmp_path / "black.png")
    for arguments, message in (
        (("own.safetensors", "black.png"), "0 patches are too few to calibrate"),
        (("own.safetensors", "none.png"), "none.png: no such file"),
        (("rootsift", "black.png"), "rootsift: has no card"),
        # Before the photos are looked for.
        (("hynet.safetensors", "none.png"), "hynet: HyNet has no int8 form, only L2Net, Residual, Tiny and Windows"),
    ):
        status, _, errors = doap("calibrate", *arguments)
        assert (status, errors.count("\n")) == (1, 1)
        assert message in errors
    assert not read_card(tmp_path / "own.safetensors").activation_ranges
