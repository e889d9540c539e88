from pathlib import Path

import numpy as np
import pytest
import skimage
import torch
from torch import nn

import doap
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.networks.architecture import Architecture, build
from doap.networks.descriptor import Descriptor, describe
from doap.networks.fast import Fast, fastest, fold_normalisation
from doap.networks.network import PatchNetwork

ARCHITECTURES = {
    "l2net": Architecture(width=8),
    "cs-l2net": Architecture(network="cs-l2net", dimensions=64, width=4),
    "tiny": Architecture(network="tiny", width=8),
    "st": Architecture(width=4, transformer=True),
}


@pytest.fixture(scope="module")
def patches() -> np.ndarray:
    image = skimage.data.camera()
    return extract_patches(image, detect_dog(image, 300), 65, 12.0)


def with_statistics(architecture: Architecture) -> PatchNetwork:
    """A network whose batch normalisation has something to do."""
    network = build(architecture)
    size = network.input_size
    with torch.no_grad():
        for _ in range(5):
            network(torch.rand(16, 1, size, size) * 255)
    return network.eval()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_folding_changes_nothing_but_rounding(name: str) -> None:
    network = with_statistics(ARCHITECTURES[name]).double()
    values = torch.rand(7, 1, network.input_size, network.input_size, dtype=torch.float64) * 255
    with torch.no_grad():
        expected = network(values)
        found = fold_normalisation(network)(values)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    assert not any(isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) for module in network.modules())


@pytest.mark.parametrize("name", ["doap-demo-128", "doap-demo-256b"])
def test_the_fastest_mode_describes_the_same(name: str, patches: np.ndarray) -> None:
    model = doap.load(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    exact, fast = describe(patches, model), describe(patches, fastest(model))
    assert (exact.shape, exact.dtype) == (fast.shape, fast.dtype)
    if model.kind == "real":
        assert (exact * fast).sum(1).min() > 0.999
    else:
        assert (np.unpackbits(exact) != np.unpackbits(fast)).mean() < 0.01
    for key, value in model.state_dict().items():  # the model itself is as it was
        torch.testing.assert_close(value, before[key], atol=0, rtol=0)


def test_published_peers_are_the_same_in_the_fastest_mode(published_baselines: Path, patches: np.ndarray) -> None:
    tried = 0
    for path in sorted(published_baselines.glob("*.safetensors")):
        model = doap.load(path)
        cosine = (describe(patches, model) * describe(patches, fastest(model))).sum(1)
        assert cosine.min() > 0.998, path.name
        tried += 1
    assert tried >= 6


def test_a_handcrafted_model_is_returned_itself() -> None:
    model = doap.load("rootsift")
    assert fastest(model) is model


def test_bfloat16_is_used_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Descriptor(with_statistics(ARCHITECTURES["l2net"]), "real", 12.0, "x")
    for wanted, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr("doap.networks.fast.multiplies_bfloat16", lambda _device, wanted=wanted: wanted)
        network = fastest(model).network
        assert isinstance(network, Fast)
        with torch.no_grad():
            assert network(torch.rand(2, 1, 32, 32)).dtype == dtype
