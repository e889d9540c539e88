import json
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from doap import DoapError, load
from doap.networks.architecture import Architecture, build
from doap.networks.centre_surround import CentreSurround
from doap.networks.descriptor import Descriptor
from doap.networks.l2net import L2Net
from doap.networks.registry import read_card, save
from doap.networks.spatial_transformer import Transformed
from doap.networks.tiny import Tiny
from doap.training.recipe import Recipe, read_recipe


@pytest.mark.parametrize(
    ("words", "kind", "input_size"),
    [
        ({}, L2Net, 32),
        ({"transformer": True}, Transformed, 42),
        ({"network": "cs-l2net"}, CentreSurround, 64),
        ({"network": "tiny"}, Tiny, 32),
        ({"network": "tiny", "transformer": True}, Transformed, 42),
    ],
)
def test_words_become_networks(words: dict[str, object], kind: type, input_size: int, tmp_path: Path) -> None:
    architecture = Architecture(dimensions=16, width=2, **words)  # type: ignore[arg-type]
    network = build(architecture, dropout=0.2)
    assert type(network) is kind
    assert (network.dimensions, network.input_size) == (16, input_size)
    dropouts = [m.p for m in network.modules() if isinstance(m, torch.nn.Dropout)]
    assert set(dropouts) == {0.2}
    save(Descriptor(network, "binary", 12.0, "x"), tmp_path / "x.safetensors", architecture)
    assert read_card(tmp_path / "x.safetensors").architecture == architecture
    assert type(load(tmp_path / "x.safetensors").network) is kind


def test_the_transformer_is_as_wide_as_its_network() -> None:
    for width, channels in ((32, 16), (8, 4), (1, 1)):
        network = build(Architecture(dimensions=4, width=width, transformer=True))
        assert isinstance(network, Transformed)
        assert network.transformer.prediction.in_channels == 2 * channels


def test_a_recipe_names_its_network() -> None:
    recipe = Recipe(network="cs-l2net", dimensions=256, width=8)
    assert recipe.architecture == Architecture(network="cs-l2net", dimensions=256, width=8)
    assert Recipe(transformer=True).architecture.transformer


FAULTS = {
    "a transformer before two towers": ({"transformer": True}, "a transformer gives 32x32"),
    "half a dimension": ({"dimensions": 127}, "127 is odd"),
}


@pytest.mark.parametrize("error", FAULTS)
def test_what_does_not_fit_is_refused_in_one_line(error: str, tmp_path: Path) -> None:
    words, message = FAULTS[error]
    words = {"network": "cs-l2net", **words}
    with pytest.raises(ValidationError, match=message):
        Architecture.model_validate(words)
    (tmp_path / "recipe.yaml").write_text(json.dumps(words))  # YAML contains JSON
    with pytest.raises(DoapError, match=message) as caught:
        read_recipe(tmp_path / "recipe.yaml")
    assert "\n" not in str(caught.value)
    assert "recipe.yaml" in str(caught.value)
