from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import doap
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.networks import inference
from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import Descriptor, describe_patches
from doap.networks.inference import InferenceNetwork, fold_normalisation, optimize_for_inference
from doap.networks.network import PatchNetwork
from doap.types import Grey

ARCHITECTURES = {
    "l2net": Architecture(width=8),
    "cs-l2net": Architecture(network="cs-l2net", dimensions=64, width=4),
    "hynet": Architecture(network="hynet", width=8),
    "tiny": Architecture(network="tiny", width=8),
    "st": Architecture(width=4, transformer=True),
}


@pytest.fixture(scope="module")
def patches(photo: Grey) -> NDArray[np.uint8]:
    return extract_patches(photo, detect_dog(photo, 300), 65, 12.0)


def with_statistics(architecture: Architecture) -> PatchNetwork:
    """Return a network with non-trivial statistics of batch normalisation."""
    network = build_network(architecture)
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
        folded = fold_normalisation(network)(values)
    torch.testing.assert_close(folded, expected, atol=1e-9, rtol=1e-9)
    assert not any(isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) for module in network.modules())


@pytest.mark.parametrize("name", ["doap-demo-128", "doap-demo-256b"])
def test_optimised_models_give_the_same_descriptors(name: str, patches: NDArray[np.uint8]) -> None:
    model = doap.load(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    exact, fast = describe_patches(patches, model), describe_patches(patches, optimize_for_inference(model))
    assert (exact.shape, exact.dtype) == (fast.shape, fast.dtype)
    if model.kind == "real":
        assert (exact * fast).sum(1).min() > 0.999
    else:
        assert (np.unpackbits(exact) != np.unpackbits(fast)).mean() < 0.01
    for key, value in model.state_dict().items():  # the model itself is unchanged
        torch.testing.assert_close(value, before[key], atol=0, rtol=0)


def test_optimised_published_baselines_give_the_same_descriptors(
    published_baselines: Path, patches: NDArray[np.uint8]
) -> None:
    count = 0
    for path in sorted(published_baselines.glob("*.safetensors")):
        model = doap.load(path)
        cosine = (describe_patches(patches, model) * describe_patches(patches, optimize_for_inference(model))).sum(1)
        assert cosine.min() > 0.998, path.name
        count += 1
    assert count >= 6


def test_a_handcrafted_model_is_returned_itself() -> None:
    model = doap.load("rootsift")
    assert optimize_for_inference(model) is model


def test_bfloat16_is_used_where_it_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Descriptor(with_statistics(ARCHITECTURES["l2net"]), "real", 12.0, "x")
    for supported, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(inference, "multiplies_bfloat16", Mock(return_value=supported))
        network = optimize_for_inference(model).network
        assert isinstance(network, InferenceNetwork)
        with torch.no_grad():
            assert network(torch.rand(2, 1, 32, 32)).dtype == dtype
