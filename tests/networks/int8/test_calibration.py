import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import doap
from doap.errors import DoapError
from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import Descriptor
from doap.networks.int8 import calibrate
from doap.networks.int8.calibration import best_range, sample_values
from doap.networks.int8.layers import Layer, layer_inputs, read_layers


def test_values_without_outliers_keep_their_range() -> None:
    assert best_range(np.linspace(0, 7, 1000, dtype=np.float32)) == pytest.approx(7)
    assert best_range(np.linspace(-7, 7, 1000, dtype=np.float32)) == pytest.approx(7)


def test_a_rare_outlier_is_clipped_as_the_error_demands() -> None:
    """Minimise (100 - r)² / N of the clipped outlier and (r / 255)² / 12 of the rounded values."""
    values = np.random.default_rng(0).uniform(0, 20, 1_000_000).astype(np.float32)
    values[0] = 100
    assert best_range(values) == pytest.approx(100 / (1 + 1_000_000 / (12 * 255**2)), rel=0.05)


def test_zeros_have_a_range() -> None:
    assert best_range(np.zeros(10, np.float32)) > 0


def test_the_normal_distribution_gives_the_known_optimum() -> None:
    """The optimal uniform quantiser of 256 levels spans ±3.92 standard deviations (Hui and Neuhoff, 2001)."""
    values = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
    assert best_range(values) == pytest.approx(3.92, abs=0.15)


def test_sampled_values_do_not_keep_the_others_in_memory() -> None:
    values = torch.arange(10_000.0).reshape(10, 10, 100)
    sampled = sample_values(values, 100)
    assert sampled.tolist() == list(range(0, 10_000, 101))
    assert sampled.untyped_storage().nbytes() == 4 * len(sampled)


def random_patches(count: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32), dtype=np.uint8)


@pytest.mark.parametrize("network", ["l2net", "residual", "tiny", "windows"])
def test_one_range_per_layer_of_its_inputs(network: str) -> None:
    architecture = Architecture.model_validate({"network": network, "width": 8, "dimensions": 256})
    model = Descriptor(build_network(architecture).eval(), "real", 12.0, "small")
    patches = random_patches(120)
    ranges = calibrate(model, patches)
    inputs = layer_inputs(model, torch.from_numpy(patches[:, None]).float())
    assert len(ranges) == len(read_layers(model)) == len(inputs)
    for largest, values in zip(ranges, inputs, strict=True):
        assert 0.2 * values.abs().max() * 0.99 <= largest <= values.abs().max() * 1.01


@pytest.mark.parametrize("network", ["l2net", "residual", "tiny", "windows"])
def test_the_layers_compute_the_network(network: str) -> None:
    architecture = Architecture.model_validate({"network": network, "width": 8, "dimensions": 256})
    model = Descriptor(build_network(architecture).eval(), "real", 12.0, "small")
    patches = torch.from_numpy(random_patches(4)[:, None]).float()
    layers, inputs = read_layers(model), layer_inputs(model, patches)
    assert isinstance(layers[-1], Layer)
    last = inputs[-1].permute(0, 2, 3, 1).flatten(1) if inputs[-1].ndim == 4 else inputs[-1]
    computed = last.double().numpy() @ layers[-1].weight.T + layers[-1].bias
    np.testing.assert_allclose(computed, model.network(patches).detach().numpy(), rtol=1e-3, atol=1e-4)


def test_too_few_patches_and_other_networks_are_refused() -> None:
    with pytest.raises(DoapError, match="doap-demo-128: 99 patches are too few"):
        calibrate(doap.load("doap-demo-128", fast=False), random_patches(99))
    with pytest.raises(DoapError, match="TransformedNetwork has no int8 form"):
        calibrate(doap.load("doap-st-128", fast=False), random_patches(100))
