import json
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from doap import DoapError, load
from doap.networks.architecture import Architecture, build_network
from doap.networks.card import read_card
from doap.networks.centre_surround import CentreSurround, MeanCentreSurround
from doap.networks.descriptor import Descriptor
from doap.networks.hynet import HyNet
from doap.networks.l2net import L2Net, MeanL2Net
from doap.networks.registry import save
from doap.networks.residual import Residual
from doap.networks.small.tiny import Tiny
from doap.networks.small.windows import Windows
from doap.networks.spatial_transformer import TransformedNetwork
from doap.training.recipes.reading import read_recipe
from doap.training.recipes.recipe import Recipe


@pytest.mark.parametrize(
    ("settings", "network_class", "input_size"),
    [
        ({}, L2Net, 32),
        ({"transformer": True}, TransformedNetwork, 42),
        ({"network": "cs-l2net"}, CentreSurround, 64),
        ({"network": "l2net-mean"}, MeanL2Net, 32),
        ({"network": "cs-l2net-mean"}, MeanCentreSurround, 64),
        ({"network": "hynet"}, HyNet, 32),
        ({"network": "hynet", "transformer": True}, TransformedNetwork, 42),
        ({"network": "residual"}, Residual, 32),
        ({"network": "residual", "depth": 3, "transformer": True}, TransformedNetwork, 42),
        ({"network": "tiny"}, Tiny, 32),
        ({"network": "windows"}, Windows, 32),
        ({"network": "windows", "transformer": True}, TransformedNetwork, 42),
        ({"network": "tiny", "transformer": True}, TransformedNetwork, 42),
    ],
)
def test_an_architecture_builds_its_network(
    settings: dict[str, object], network_class: type, input_size: int, tmp_path: Path
) -> None:
    architecture = Architecture.model_validate({"dimensions": 16, "width": 2, **settings})
    network = build_network(architecture, dropout=0.2)
    assert type(network) is network_class
    assert (network.dimensions, network.input_size) == (16, input_size)
    dropouts = [m.p for m in network.modules() if isinstance(m, torch.nn.Dropout)]
    assert set(dropouts) == {0.2}
    save(Descriptor(network, "binary", 12.0, "x"), tmp_path / "x.safetensors", architecture)
    assert read_card(tmp_path / "x.safetensors").architecture == architecture
    assert type(load(tmp_path / "x.safetensors", fast=False).network) is network_class


def test_the_transformer_is_as_wide_as_its_network() -> None:
    for width, channels in ((32, 16), (8, 4), (1, 1)):
        network = build_network(Architecture(dimensions=4, width=width, transformer=True))
        assert isinstance(network, TransformedNetwork)
        assert network.transformer.prediction.in_channels == 2 * channels


def test_a_recipe_names_its_network() -> None:
    recipe = Recipe(network="cs-l2net", dimensions=256, width=8)
    assert recipe.architecture == Architecture(network="cs-l2net", dimensions=256, width=8)
    assert Recipe(transformer=True).architecture.transformer


def test_a_transformer_is_built_as_the_architecture_says() -> None:
    default = build_network(Architecture(dimensions=4, width=2, transformer=True))
    paper = build_network(Architecture(dimensions=4, width=2, transformer=True, transformer_bounded=False))
    zeros = build_network(Architecture(dimensions=4, width=2, transformer=True, transformer_padding="zeros"))
    built = []
    for network in (default, paper, zeros):
        assert isinstance(network, TransformedNetwork)
        built.append((network.transformer.bounded, network.transformer.padding))
    assert built == [(True, "replicate"), (False, "replicate"), (True, "zeros")]


def test_architectures_recorded_without_the_later_keys_are_read() -> None:
    recorded = {"network": "l2net", "dimensions": 128, "width": 32, "transformer": True}
    assert Architecture.model_validate(recorded) == Architecture(transformer=True)


NEEDS_TRANSFORMER = "transformer_bounded and transformer_padding need transformer=true"
INVALID: dict[str, tuple[dict[str, object], str]] = {
    "transformer before two towers": ({"network": "cs-l2net", "transformer": True}, "a transformer outputs 32x32"),
    "odd dimensions": ({"network": "cs-l2net", "dimensions": 127}, "127 is odd"),
    "depth of L2Net": ({"depth": 3}, "depth=3 needs network=residual, not l2net"),
    "no residual blocks": ({"network": "residual", "depth": 0}, "greater than 0"),
    "bounds of no transformer": ({"transformer_bounded": False}, NEEDS_TRANSFORMER),
    "padding of no transformer": ({"transformer_padding": "zeros"}, NEEDS_TRANSFORMER),
    "unknown padding": ({"transformer": True, "transformer_padding": "border"}, "'replicate' or 'zeros'"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_combinations_are_refused_in_one_line(case: str, tmp_path: Path) -> None:
    settings, message = INVALID[case]
    with pytest.raises(ValidationError, match=message):
        Architecture.model_validate(settings)
    (tmp_path / "recipe.yaml").write_text(json.dumps(settings))  # YAML contains JSON
    with pytest.raises(DoapError, match=message) as caught:
        read_recipe(tmp_path / "recipe.yaml")
    assert "\n" not in str(caught.value)
    assert "recipe.yaml" in str(caught.value)
