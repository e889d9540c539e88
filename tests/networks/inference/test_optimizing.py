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
from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import Descriptor, describe_patches
from doap.networks.inference import InferenceNetwork, fold_normalisation, optimize_for_inference
from doap.networks.inference.layers import InferenceConv
from doap.networks.network import PatchNetwork
from doap.types import Grey

ARCHITECTURES = {
    "l2net": Architecture(width=8),
    "cs-l2net": Architecture(network="cs-l2net", dimensions=64, width=4),
    "hynet": Architecture(network="hynet", width=8),
    "residual": Architecture(network="residual", width=8),
    "residual-st": Architecture(network="residual", width=8, depth=1, transformer=True),
    "tiny": Architecture(network="tiny", width=8),
    "windows": Architecture(network="windows", width=8),
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
    model = doap.load(name, fast=False)
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
        model = doap.load(path, fast=False)
        some = patches[:60]
        cosine = (describe_patches(some, model) * describe_patches(some, optimize_for_inference(model))).sum(1)
        assert cosine.min() > 0.998, path.name
        count += 1
    assert count >= 6


def test_a_handcrafted_model_is_returned_itself() -> None:
    model = doap.load("rootsift")
    assert optimize_for_inference(model) is model


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_all_networks_describe_alike_in_all_dtypes(name: str, dtype: torch.dtype, patches: NDArray[np.uint8]) -> None:
    model = Descriptor(with_statistics(ARCHITECTURES[name]), "real", 12.0, name)
    fast = optimize_for_inference(model, dtype)
    some = patches[:20]  # of many: bfloat16 is slow where a processor does not multiply it
    descriptors = describe_patches(some, fast)
    cosine = (describe_patches(some, model) * descriptors).sum(1)
    assert cosine.min() > {torch.float16: 0.9999, torch.bfloat16: 0.995, torch.float32: 1 - 1e-6}[dtype]
    assert descriptors.dtype == np.float32
    assert not any(parameter.requires_grad for parameter in fast.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_float64_patches_have_float32_descriptors(name: str, dtype: torch.dtype, patches: NDArray[np.uint8]) -> None:
    model = Descriptor(with_statistics(ARCHITECTURES[name]), "real", 12.0, name)
    fast, some = optimize_for_inference(model, dtype), patches[:4].astype(np.float64)
    assert describe_patches(some, fast).dtype == describe_patches(some, model).dtype == np.float32
    assert describe_patches(some, model.double()).dtype == np.float64


@pytest.mark.parametrize("name", doap.list_models())
def test_the_weights_of_shipped_models_are_bounded(name: str) -> None:
    layers = [module for module in doap.load(name).modules() if isinstance(module, InferenceConv)]
    assert len(layers) > 1
    assert all(layer.is_bounded for layer in layers)


@pytest.mark.parametrize("name", ["l2net", "windows", "hynet", "st"])
def test_patches_that_are_not_numbers_have_no_descriptor(name: str) -> None:
    model = Descriptor(with_statistics(ARCHITECTURES[name]), "real", 12.0, name)
    patches = torch.rand(4, 1, 42, 42) * 255
    patches[1, 0, 5, 5], patches[2, 0, 9, 9] = torch.nan, torch.inf
    for dtype in (torch.float32, torch.bfloat16):
        descriptors = optimize_for_inference(model, dtype)(patches)
        assert descriptors.isnan().all(1).tolist() == [False, True, True, False]
        assert descriptors[[0, 3]].isfinite().all()


def test_the_dtype_is_by_default_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Descriptor(with_statistics(ARCHITECTURES["l2net"]), "real", 12.0, "x")
    for dtype in (torch.bfloat16, torch.float32):
        monkeypatch.setattr("doap.networks.inference.optimizing.fastest_dtype", Mock(return_value=dtype))
        network = optimize_for_inference(model).network
        assert isinstance(network, InferenceNetwork)
        assert network.precision == dtype
        convolutions = [layer for layer in network.modules() if isinstance(layer, InferenceConv) and any(layer.padding)]
        assert dtype in {layer.weight.dtype for layer in convolutions}


def test_float16_on_a_cpu_leaves_matrix_products_in_float32() -> None:
    model = Descriptor(with_statistics(ARCHITECTURES["l2net"]), "real", 12.0, "x")
    dtypes = [value.dtype for value in optimize_for_inference(model, torch.float16).parameters() if value.ndim == 4]
    assert dtypes == [torch.float32, *[torch.float16] * 5, torch.float32]


def test_a_fast_model_is_returned_itself() -> None:
    model = doap.load("doap-demo-128")
    assert optimize_for_inference(model) is model
